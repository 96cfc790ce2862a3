"""A row's engines under the traffic that is planned for, played by the twin: all replicas behind a router, while that stays affordable.

Where it does not, one of them is played and dealt every so-manieth request; the others do alike. A policy that was asked for by name is
worth more time than the one that is chosen here.
"""
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from penstock.core.config import EngineConfig
from penstock.study.measure.datasets.traces import Row, parts
from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import Slo
from penstock.study.measure.statistics import distribution
from penstock.study.plan.evaluate import Goal, ms
from penstock.study.plan.load import Load
from penstock.study.plan.simulate.call import Call, Stretches, shares_prefixes
from penstock.study.plan.simulate.play import Bounds
from penstock.study.plan.simulate.twin import Pace, Played, Spread, simulate

AUTO = "auto"  # of --routing: what suits the prompts
SHARED, APART = "prefix", "least_loaded"  # prompts that begin alike, and that do not
IN_TURN = "round_robin"  # what policies are compared with
REQUESTS = 2000  # that are played, at most
LEAST_REQUESTS = 500
MUCH = 100_000  # requests times those that run at once in a replica: a second or two of this machine's time
MUCH_TEXT = 12_000_000  # tokens of prompts: some seconds, where they are long
LEAST_EACH = 100  # requests of each replica, where all are played
TURNS = 10  # and as many times those that run at once in it: begin and end, when fewer are there, must not count for much
NAMED_EFFORT = 800_000.0  # of a play whose policy was named: half a minute at most, so that a row takes about a minute
EACH, ASKED, READ = 5.0, 0.25, 0.03  # effort of a request by itself, for each replica that is asked, for each token of its prompt


@dataclass(frozen=True, slots=True)
class Traffic:
    load: Load
    trace: Sequence[Row] | None
    routing: str = AUTO


@dataclass(slots=True)
class Rehearsal:
    """`running`: about how many requests a replica has at once. `watch` is told how far a play is: requests, of how many. `effort`: of all
    plays so far, in requests times those that run beside each."""

    config: EngineConfig
    pace: Pace
    traffic: Traffic
    running: float
    watch: Callable[[int, int], None] | None = None
    effort: float = 0.0
    _crowded: set[int] = field(default_factory=set)  # numbers of replicas that, played together, had more at once than there is time for
    _asked: dict[int, list[Call]] = field(default_factory=dict)  # by all replicas together
    _played: dict[Spread, Played] = field(default_factory=dict)

    def play(self, count: int, most_open: int | None = None) -> Played:
        """So many replicas, or one of them; `alone` says which. With `most_open`, until more than so many requests are there at once in all
        replicas together."""
        if not self.alone(count):
            played = self._spread(Spread(count, self._policy()), most_open)
            if played.overrun or self._named or self._is_enough(played.samples):
                return played
            self._crowded.add(count)
        asked = calls_of(self.traffic.load, self.traffic.trace, self._most, count)
        return self._simulate(asked, None, None if most_open is None else max(1, most_open // count))

    def unloaded(self) -> Played:
        """What no number of replicas improves on: one request after the other, by a replica that forgets no prefix."""
        asked = self._everything(self._most)
        self.effort += len(asked) * self._effort(1, 1.0)
        whole = sum(call.num_prompt + call.num_output + self.config.block_size for call in asked)
        return simulate(replace(self.config, kv_tokens=max(whole, self.config.kv_tokens or 0)), self.pace, asked, users=1)

    def alone(self, count: int) -> bool:
        """Whether one replica of so many is played, not all."""
        return count == 1 or count in self._crowded or self._needed(count) > self._limit(count)

    def routing(self, count: int) -> tuple[str | None, str]:
        """The policy that was played, and what it gives, or why it is not the one that was asked for; none where there is nothing to
        route."""
        asked = self.traffic.routing
        if count == 1:
            return None, "" if asked == AUTO else f"one replica, so --routing {asked} has nothing to choose from"
        if self.alone(count):
            instead = f"not {asked}: " if self._named else ""
            return IN_TURN, (f"{instead}one of {count:,} replicas played, dealt one request in {count:,}: to play all takes "
                             f"{self._needed(count):,} requests, more than {self._limit(count):,}{self._would_do(count)}")
        policy = self._policy()
        chosen, plain = (self._spread(Spread(count, name)) for name in (policy, IN_TURN))
        told = (f"{chosen.census.prefill_tokens:,} prompt tokens of {len(chosen.samples):,} requests are computed, "
                f"TTFT p99 {ms(tail_s(chosen.samples))}")
        if plain is chosen:
            return policy, told
        return policy, f"{told}; in turn {plain.census.prefill_tokens:,} and {ms(tail_s(plain.samples))}"

    @property
    def _named(self) -> bool:
        """Whether a policy was asked for that one replica, dealt its requests in turn, does not stand for."""
        return self.traffic.routing not in (AUTO, IN_TURN)

    @property
    def _most(self) -> int:
        return max(LEAST_REQUESTS, min(REQUESTS, int(MUCH / max(1.0, self.running)), MUCH_TEXT // self.traffic.load.input))

    def _limit(self, count: int) -> int:
        """Requests that so many replicas together are played with, at most."""
        return self._named_limit(count) if self._named else self._most

    def _named_limit(self, count: int) -> int:
        return max(self._most, int(NAMED_EFFORT / self._effort(count)))

    def _effort(self, count: int, running: float | None = None) -> float:
        """Of one request, beside so many in its replica."""
        return EACH + (self.running if running is None else running) + ASKED * count + READ * self.traffic.load.input

    def _needed(self, count: int) -> int:
        """Requests for so many replicas; all of a trace that has fewer."""
        needed, trace = count * max(LEAST_EACH, round(TURNS * self.running)), self.traffic.trace
        return needed if trace is None else min(needed, len(trace))

    def _is_enough(self, samples: Sequence[Sample]) -> bool:
        """Whether so many were played as it takes for those that turned out to be there at once, or all of a trace."""
        trace = self.traffic.trace
        return TURNS * running(samples) <= len(samples) or (trace is not None and len(samples) >= len(trace))

    def _would_do(self, count: int) -> str:
        fewer = next((less for less in range(count - 1, 1, -1) if not self.alone(less)), 0)
        least = ", which two replicas do not do with either" if count > 2 else ""
        could = f", which {fewer:,} replicas would do with" if fewer else least
        by_name = not self._named and self._needed(count) <= self._named_limit(count)
        return could + ("; a policy that is named with --routing is played" if by_name else "")

    def _everything(self, most: int) -> list[Call]:
        if most not in self._asked:
            self._asked[most] = calls_of(self.traffic.load, self.traffic.trace, most)
        return self._asked[most]

    def _policy(self) -> str:
        if self.traffic.routing != AUTO:
            return self.traffic.routing
        return suited(self._everything(self._most), self.config.prefix_cache)

    def _spread(self, spread: Spread, most_open: int | None = None) -> Played:
        if spread not in self._played:
            asked = self._everything(max(self._most, self._needed(spread.replicas)) if self._named else self._most)
            played = self._simulate(asked, spread, most_open)
            if played.overrun:
                return played
            self._played[spread] = played
        return self._played[spread]

    def _simulate(self, asked: Sequence[Call], spread: Spread | None, most_open: int | None) -> Played:
        self.effort += len(asked) * self._effort(1 if spread is None else spread.replicas)
        watch = self.watch
        told = None if watch is None else lambda done: watch(done, len(asked))
        return simulate(self.config, self.pace, asked, spread=spread, bounds=Bounds(told, most_open))


def suited(asked: Sequence[Call], cached: bool) -> str:
    """The policy for these requests. `cached`: whether replicas keep prefixes."""
    return SHARED if cached and shares_prefixes(asked) else APART


def running(samples: Sequence[Sample]) -> float:
    """Requests that are there at once, on average over the time in which they come."""
    return sum(sample.e2e_s or 0.0 for sample in samples) / (samples[-1].due_s or 1.0)


def tail_s(samples: Sequence[Sample]) -> float:
    """TTFT, p99."""
    return distribution([sample.ttft_s or 0.0 for sample in samples]).at(99) or 0.0


def kept_share(samples: Sequence[Sample], goal: Goal) -> float:
    slo = Slo(goal.most_s)
    return sum(slo.kept(sample) for sample in samples) / len(samples)


def calls_of(load: Load, trace: Sequence[Row] | None, most: int, replicas: int = 1) -> list[Call]:
    """The first that the first of so many replicas is dealt: of the trace's requests at the load's rate; without a trace, of requests of
    the mean lengths that come at random, so that every so-manieth comes after a sum of exponential gaps."""
    if trace is None:
        rng, at_s, found = random.Random(0), 0.0, []
        for number in range(most):
            at_s += rng.gammavariate(replicas, 1 / (load.rate or 1.0))
            first = number << 24
            found.append(Call(at_s, (range(first, first + load.input),), load.output))
        return found
    whole = [row for row in trace if row.num_prompt > 0 and row.num_output > 0]
    stretches = Stretches()
    own = (len(whole) - 1) / (whole[-1].at_s - whole[0].at_s)
    speed = (load.rate or own) / own
    return [Call((row.at_s - whole[0].at_s) / speed, stretches.ranges(parts(row, "trace", number)), row.num_output)
            for number, row in itertools.islice(enumerate(whole), 0, most * replicas, replicas)]
