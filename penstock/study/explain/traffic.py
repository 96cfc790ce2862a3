"""Requests like those that were observed, for the twin: as many users as took turns, or as many a second as came, with lengths of the same
mean and spread, and the same share of their prompts in common."""
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError
from penstock.core.slo import NO_OBJECTIVES, Objectives
from penstock.decide.scheduler.lengths import REMEMBERED
from penstock.serve.engine.binding import idle_share
from penstock.serve.engine.tally import Tally
from penstock.study.explain.observed import Lengths, Observed
from penstock.study.plan.simulate.call import STRETCH, Call

CLOSED = "closed"  # study/measure/arrivals
FOLLOWING = 0.5  # variance of the times from an ending to the next arrivals, over that of the gaps: with less, they come because of it
SOON = 0.3  # of the time from one ending to the next, on average: who comes earlier comes because of the first
AWAY, LONGER = 0.5, 4.0  # of those who are found; times as long as since the latest ending, which may be another's
TAKING_TURNS = 0.5  # else, dispersion of what those find who come, below which they are users who take turns
EVEN = 0.1  # squared coefficient of variation of the gaps, below which it is a constant rate, at which all find as many, too
ALONE = 2.0  # that ratio of one who asks again and again is 1 at most: the gaps hold the same times, and those of his requests
SPARSE = 0.5  # of the time idle: whoever finds nobody then is one of many, not one who asks again and again
SATURATED = 0.95  # of the time busy, while more wait than run: the queue is no passing one
LEAST, MOST, PER_USER = 400, 1200, 10  # requests that are simulated
OPEN = 400
WARMUP = 0.2  # of the requests that are simulated, which do not count
DRAWS = 16
MOST_AT_ONCE = 100_000  # requests that are played beside each other
STEADY = 0.05  # of those who come: what those find who come varies by no more where as many as leave come back
TOLD_S = 0.1  # pauses of users that are told
TOLD_SHARE = 0.005  # of requests: of fewer it would read 0 %
TELLING = 0.25  # of the time of a request: what less of it is spent outside the engine may be chance


@dataclass(frozen=True, slots=True)
class Crowd:
    """Requests that come on their own while others wait, and perhaps more than can be answered, so that times grow while that lasts. A
    stretch of it is played: `waiting` requests are there when it begins, and `count` come until `end_s`. What an engine's counters would
    gain is read from `begin_s` on, when those who waited have been answered. `answered`: requests a second, where that is fewer than come
    by more than chance."""

    waiting: int
    count: int
    begin_s: float
    end_s: float
    answered: float | None = None

    def arrivals_s(self) -> list[float]:
        """At random: of several draws the one in which the queue that is read is nearest to what it is on average, since that was seen."""
        return [0.0] * self.waiting + min((self._drawn(seed) for seed in range(DRAWS)), key=self._off)

    def _drawn(self, seed: int) -> list[float]:
        rng = random.Random(seed)
        return sorted(rng.uniform(0.0, self.end_s) for _ in range(self.count))

    def _off(self, arrivals_s: Sequence[float]) -> float:
        """By how many requests the mean queue is longer or shorter than if they came evenly."""
        come = sum(self.end_s - max(at_s, self.begin_s) for at_s in arrivals_s)
        return abs(come / (self.end_s - self.begin_s) - self.count * (1 + self.begin_s / self.end_s) / 2)


@dataclass(frozen=True, slots=True)
class Traffic:
    """`users` who ask again when they are answered, or `rate` requests a second that come on their own, perhaps a `crowd` of them.
    `shared`: of a prompt's tokens, those that others begin with, too. `delay_s`: each way between client and engine. `think_s`: of a user
    from an answer to the next request, the mean of a memoryless time: with one that is always the same all users would keep the order in
    which they began. `thinking`: for most of a turn, so that it is not the engine that sets the pace. `objectives`: that each request
    carries. `open_share`: of the requests, that give no max_tokens. `spare`: tokens that answers of the others are shorter than theirs."""

    prompt: Lengths
    output: Lengths
    users: int | None = None
    rate: float | None = None
    shared: float = 0.0
    delay_s: float = 0.0
    think_s: float = 0.0
    crowd: Crowd | None = None
    count: int = OPEN  # requests that come on their own
    thinking: bool = False
    draw: int = 0  # which of the ways in which they may come by chance
    objectives: Objectives = NO_OBJECTIVES
    open_share: float = 0.0
    spare: float = 0.0

    @property
    def closed(self) -> bool:
        return self.users is not None

    def told(self) -> str:
        users, after = (("1 user who asks again once answered", "{} s later") if self.users == 1 else
                        (f"{self.users} users who take turns", "each {} s after an answer"))
        pause = f", {after.format(f'{self.think_s:.2g}')}" if self.think_s >= TOLD_S else ""
        who = users + pause if self.users is not None else f"{self.rate:.3g} requests a second"
        if self.crowd is not None and self.crowd.answered is not None:
            who += f", of which {self.crowd.answered:.3g} are answered, so the queue keeps growing"
        common = f", {self.shared:.0%} of prompt tokens shared" if self.shared else ""
        asked = f", served for {self.objectives}" if self.objectives else ""
        if self.objectives and self.open_share >= TOLD_SHARE:
            asked += f", {self.open_share:.0%} of them without max_tokens"
        if self.objectives and self.spare >= 1:
            asked += f", answers {self.spare:,.0f} tokens below their max_tokens"
        return f"{who}, {self.prompt.mean:,.0f} tokens in, {self.output.mean:,.0f} out{common}{asked}"

    def calls(self, config: EngineConfig, shorter: float = 1.0) -> list[Call]:
        """Always the same ones of a draw. `shorter`: answers take so many times fewer steps than they have tokens."""
        rng, thinking, giving = random.Random(self.draw), random.Random(self.draw + 1), random.Random(self.draw + 2)
        most = longest(config)
        most_s = self.objectives
        tpot_s = None if most_s.tpot_s is None else shorter * most_s.tpot_s  # a step that gives so many tokens passes for one token
        prefix = int(self.shared * self.prompt.mean) // config.block_size * config.block_size
        found = []
        for number, at_s in enumerate(self._arrivals_s(rng)):
            answer, prompt = draw(rng, self.output), max(draw(rng, self.prompt), prefix + 1)
            output = min(answer, max(most // 2, most - prompt))
            length = min(prompt, most - output)
            common, first = min(prefix, length - 1), (number + 1) * STRETCH
            parts = (range(common), range(first, first + length - common)) if common > 0 else (range(first, first + length),)
            after_s = thinking.expovariate(1 / self.think_s) if self.think_s else 0.0
            steps = max(1, round(output / shorter))
            is_open = giving.random() < self.open_share
            e2e_s = None if is_open else most_s.e2e_s  # which needs max_tokens
            spare = 0 if is_open else min(round(self.spare / shorter), most - length - output)
            found.append(Call(at_s, parts, steps, most_s.ttft_s, tpot_s, e2e_s, after_s=after_s, spare=spare, is_open=is_open))
        return found

    def ended(self, config: EngineConfig, shorter: float = 1.0) -> tuple[int, ...]:
        """Answers like these, which the engine had seen end before, as many as it remembers. `shorter`: as in `calls`."""
        rng, most = random.Random("ended"), longest(config)
        return tuple([max(1, round(min(draw(rng, self.output), most) / shorter)) for _ in range(REMEMBERED)]) if self.open_share else ()

    def _arrivals_s(self, rng: random.Random) -> Iterator[float]:
        if self.crowd is not None:
            yield from self.crowd.arrivals_s()
            return
        if self.users is not None:
            yield from [0.0] * max(LEAST, min(MOST, PER_USER * self.users), 2 * self.users)
            return
        gaps = [rng.expovariate(1.0) for _ in range(self.count)]
        counted = gaps[int(WARMUP * self.count) :]
        each_s = len(counted) / (sum(counted) * (self.rate or 1.0))  # so that these come at this rate, not at one that is so by chance
        yield from accumulate([each_s * gap for gap in gaps])


def traffic_of(seen: Observed, came_per_s: float | None = None, load: str | None = None) -> Traffic:
    """`came_per_s`: requests a second, where somebody knows that better: the engine went on answering when nobody came any more. `load`:
    the arrival process, as the report of a bench names it. Raises PenstockError where more were there at once than can be played."""
    tally = seen.tally
    inside, rate = tally.mean_inside, seen.requests_per_s
    if (most := max(inside, tally.mean_found, tally.mean_peak)) > MOST_AT_ONCE:
        raise PenstockError(f"{most:.3g} requests were in the engine at once on average, but the twin plays at most {MOST_AT_ONCE:,}")
    crowded = saturated(seen)
    known = known_users(load)
    known = known if known is None else min(known, tally.num_arrived)  # with fewer requests than users, nobody came twice
    if known is None:
        turns = come_back(tally, rate) if seen.bounded else take_turns(tally, rate, crowded)
    else:
        turns = known > 0
    outside_s = max(0.0, (seen.e2e_s or 0.0) - seconds_inside(seen))
    delay_s = outside_s / 2 if outside_s > TELLING * (seen.e2e_s or 0.0) else tally.wake_s / max(1, tally.num_wakes)
    if not turns and seen.objectives and seen.late_ratio:  # the twin refuses, too
        return alike(seen, rate=rate * (1 + seen.late_ratio), delay_s=delay_s)
    if not turns and crowded and not seen.refused_share:
        staying = max(came_per_s or 0.0, tally.num_arrived / tally.wall_s - seen.left_per_s)
        crowd = crowd_of(seen, staying if staying > 0 else rate)
        return alike(seen, rate=crowd.count / crowd.end_s, crowd=crowd)
    if turns or crowded:
        return of_users(seen, known or max(1, round(max(tally.mean_found, tally.mean_peak) if turns else inside)), delay_s)
    return alike(seen, rate=rate, delay_s=delay_s)


def alike(seen: Observed, **who: Any) -> Traffic:
    """What each request is like, whoever sends it."""
    return Traffic(
        seen.prompt, seen.output, shared=seen.hit_share, objectives=seen.objectives, open_share=seen.open_share, spare=seen.spare, **who)


def of_users(seen: Observed, users: int, delay_s: float) -> Traffic:
    """As many a second as were seen: what a turn takes longer than a request is in the engine passes on the way and while they think."""
    inside_s = seconds_inside(seen)
    away_s = max(0.0, users / seen.requests_per_s - inside_s)
    delay_s = min(delay_s, away_s / 2)
    think_s = away_s - 2 * delay_s
    return alike(seen, users=users, delay_s=delay_s, think_s=think_s, thinking=think_s > inside_s)


def seconds_inside(seen: Observed) -> float:
    """Of a request in the engine (Little's law), without the way to it, which is no queue."""
    tally = seen.tally
    woken_s = tally.wake_s / tally.num_arrived if tally.num_arrived else 0.0
    return tally.mean_inside / seen.requests_per_s - woken_s


def known_users(load: str | None) -> int | None:
    """Of a closed loop, as a bench names it; 0: requests come on their own; None: not known."""
    if load is None:
        return None
    name, _, options = load.partition(":")
    if name != CLOSED:
        return 0
    found = re.fullmatch(r"users=([1-9][0-9]{0,8})", options or "users=1")
    return None if found is None else int(found[1])


def come_back(tally: Tally, rate: float) -> bool:
    """Whether they come because others ended. Of traffic of several kinds that may be true of a part alone: then fewer are there than that
    part has users, and those who are not have not just ended."""
    ratio, away = tally.followed_ratio, max(tally.mean_found, tally.mean_peak) - tally.mean_inside
    if ratio is None or ratio >= FOLLOWING or tally.mean_place is None or tally.mean_place >= SOON:
        return False
    return away < AWAY * tally.mean_found or away < LONGER * rate * tally.since_s / tally.num_followed  # Little's law


def take_turns(tally: Tally, rate: float, crowded: bool) -> bool:
    """Whether they come because others ended. Where that does not show, as where the way back is longer than the time between two
    endings, by how many they find: who takes turns with others finds nearly all of them whenever he comes back; who comes on his own finds
    now more, now fewer."""
    ratio, dispersion = tally.followed_ratio, tally.dispersion
    if come_back(tally, rate):
        return True
    if dispersion is None:
        return idle_share(tally) < SPARSE and (ratio is None or ratio < ALONE)
    if tally.gaps_scv is not None and tally.gaps_scv < EVEN:
        return False
    if crowded:  # of a long queue any change is small
        return dispersion < TAKING_TURNS and dispersion * (tally.mean_found - 1) < STEADY * tally.num_arrived
    return dispersion < TAKING_TURNS


def by_dispersion(seen: Observed) -> bool:
    """Whether users take turns, which shows by nothing but how many they find."""
    tally, rate = seen.tally, seen.requests_per_s
    return not come_back(tally, rate) and take_turns(tally, rate, saturated(seen))


def saturated(seen: Observed) -> bool:
    """More wait than run, and the engine has no pause. Where some are refused, others come in their place when it answers more: they are
    taken for as many users as there were requests on average. Else as many come, whatever it answers."""
    tally = seen.tally
    return tally.busy_s >= SATURATED * tally.wall_s and tally.mean_queued > tally.mean_running


def crowd_of(seen: Observed, came_per_s: float) -> Crowd:
    """While it lasts. The queue grows by what comes and is not answered, so that it was shorter at the begin than on average. When the last
    of those who waited then is answered, it has grown by what came meanwhile."""
    tally, answered = seen.tally, seen.requests_per_s
    growth, queued = came_per_s - answered, tally.mean_queued
    longest_s = max(queued / answered, MOST / came_per_s - queued / answered)  # that is worth playing
    lasted_s = min(tally.wall_s, longest_s, 2 * queued / growth if growth > 0 else math.inf)
    waiting = round(max(0.0, queued - growth * lasted_s / 2) * answered / came_per_s)
    begin_s = waiting / answered
    end_s = begin_s + lasted_s
    return Crowd(waiting, max(1, round(came_per_s * end_s)), begin_s, end_s, fewer(answered, came_per_s, lasted_s))


def fewer(answered: float, came_per_s: float, seconds: float) -> float | None:
    """The rate that is answered, where that is less than comes by more than a standard deviation of what comes by chance (Poisson)."""
    return answered if (came_per_s - answered) * seconds > math.sqrt(came_per_s * seconds) else None


def longest(config: EngineConfig) -> int:
    """Tokens of a prompt and its answer."""
    return min(config.max_model_len or STRETCH, config.kv_tokens or STRETCH) - 1


def draw(rng: random.Random, lengths: Lengths) -> int:
    if lengths.scv < 1e-3:
        return max(1, round(lengths.mean))
    return max(1, round(rng.gammavariate(1 / lengths.scv, lengths.mean * lengths.scv)))
