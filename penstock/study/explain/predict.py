"""What the twin says of a way to serve this traffic."""
import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache

from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError
from penstock.core.work import StepTimer, StepWork
from penstock.study.explain.observed import Drafted, Observed
from penstock.study.explain.traffic import OPEN, WARMUP, Traffic, by_dispersion, of_users
from penstock.study.measure.metrics import Window, tokens_within
from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import Slo
from penstock.study.plan.rehearsal import suited
from penstock.study.plan.simulate.twin import Pace, Played, Spread, simulate

DRAWS = 16
DRAWS_OF_USERS = 4
MOST_PLAYED = 1000
VARIED = 0.1  # dispersion, from which on it tells how many users there are
NEAR, STEADIER = 1.1, 0.95  # of the least dispersion of DRAWS: what is worth a better look, and what is no chance
LEAST_ARRIVED = 100  # of fewer the dispersion tells little
UNEVEN = 0.5  # squared coefficient of variation of the gaps, above which nobody sends them evenly
TIMES = (1.0, 1.1, 1.25, 1.4, 1.6, 1.9, 2.3, 2.8, 3.5, 4.5, 6.0)  # as many users as are found: those that are tried
TINY = 1e-3
LEAST_PLAYED = 50


@dataclass(frozen=True, slots=True)
class Way:
    """A way to serve: `replicas` engines that share the traffic, behind a router."""

    config: EngineConfig
    timer: StepTimer
    drafted: Drafted | None = None
    replicas: int = 1

    @property
    def gains(self) -> float:
        """Tokens of a step."""
        return 1.0 if self.drafted is None else self.drafted.tokens


@dataclass(frozen=True, slots=True)
class Figures:
    """Rates of all replicas; latencies in seconds, means but for p99. `kept_share` of the requests keep the objectives, and
    `good_tokens_per_s` are theirs; None and 0 where there are no objectives."""

    output_tokens_per_s: float
    requests_per_s: float
    ttft_s: float
    ttft_p99_s: float
    tpot_s: float
    e2e_s: float
    num_preempted: int
    kept_share: float | None = None
    good_tokens_per_s: float = 0.0

    def as_json(self) -> dict[str, float | None]:
        return asdict(self)


class Drafting:
    """A StepTimer of an engine that drafts: whatever decodes has so many rows more."""

    def __init__(self, timer: StepTimer, rows: float) -> None:
        self._timer, self._rows = timer, round(rows)

    def seconds(self, work: StepWork) -> float:
        more = self._rows
        decodes = sum([rows == 1 for rows, _ in work.contexts])
        contexts = tuple([(rows + more, total + more) if rows == 1 else (rows, total) for rows, total in work.contexts])
        return self._timer.seconds(StepWork(contexts, work.num_logits + more * decodes))


def predict(way: Way, traffic: Traffic, slo: Slo | None = None) -> Figures:
    """Replicas get the same requests as one engine would, together, each where the router that `penstock plan` takes sends it. Raises what
    `simulate` raises."""
    gains = way.gains
    played = play(way, traffic)
    kept = None if slo is None else in_steps(slo, gains)
    crowd = traffic.crowd
    found = (figures_of(played.samples, traffic.closed, kept) if crowd is None else
             figures_within(played.samples, Window(crowd.begin_s, crowd.end_s), kept))
    preempted = played.census.num_preempted
    return replace(
        found, output_tokens_per_s=found.output_tokens_per_s * gains, good_tokens_per_s=found.good_tokens_per_s * gains,
        tpot_s=found.tpot_s / gains, num_preempted=preempted)


def play(way: Way, traffic: Traffic) -> Played:
    timer = way.timer if way.drafted is None else Drafting(way.timer, way.drafted.rows)
    config = replace(way.config, propose=None)  # what drafts did is in the timer and in the lengths
    asked = traffic.calls(config, way.gains)
    spread = None if way.replicas == 1 else Spread(way.replicas, suited(asked, config.prefix_cache))
    return simulate(config, Pace(timer, traffic.delay_s), asked, traffic.users, spread)


def as_they_came(way: Way, traffic: Traffic, seen: Observed, known: bool) -> Traffic:
    """Requests that come on their own meet by chance, and of a few it is chance what others cost them. So no more are played than were
    seen, and of several draws that in which they find as many others as those did. `known`: it is known who they are."""
    tally = seen.tally
    if traffic.crowd is not None or not tally.num_arrived:
        return traffic
    if traffic.closed:
        return who_pause(way, traffic, seen) if not known and by_dispersion(seen) and (tally.dispersion or 0.0) >= VARIED else traffic
    count = min(OPEN, max(LEAST_PLAYED, round(tally.num_arrived / (1 - WARMUP))))
    draws = drawn(traffic, count)
    meetings = [met(play(way, each).samples) for each in draws]
    if not known and steadier(way, traffic, seen, min(found.dispersion for found in meetings)):
        return who_pause(way, traffic, seen)
    return min(zip(draws, meetings, strict=True), key=lambda each: abs(each[1].mean - tally.mean_found))[0]


def drawn(traffic: Traffic, count: int) -> list[Traffic]:
    return [replace(traffic, count=count, draw=number) for number in range(DRAWS)]


def steadier(way: Way, traffic: Traffic, seen: Observed, chance: float) -> bool:
    """Whether what those find who come varies less than it may by chance if they come on their own: with the few that were played for
    other reasons, `chance` at least. Not where they come evenly."""
    tally = seen.tally
    varied, gaps = tally.dispersion, tally.gaps_scv
    if not varied or tally.num_arrived < LEAST_ARRIVED or gaps is None or gaps < UNEVEN:
        return False
    if varied < STEADIER * chance:
        return True
    count = min(MOST_PLAYED, round(tally.num_arrived / (1 - WARMUP)))
    if varied >= NEAR * chance or count <= OPEN:
        return False
    # of more requests chance leaves less
    return varied < STEADIER * min(met(play(way, each).samples).dispersion for each in drawn(traffic, count))


def who_pause(way: Way, traffic: Traffic, seen: Observed) -> Traffic:
    """Of users who pause between an answer and the next request, fewer can come the more are there, so what those find who come varies
    less than if they came on their own. As many users as make it vary as it did."""
    tally = seen.tally
    fewest = max(tally.mean_found, tally.mean_peak, 1.0)
    users = sorted({math.ceil(fewest * times) for times in TIMES})

    @cache
    def varies(count: int) -> float:
        each = of_users(seen, count, traffic.delay_s)
        found = [met(play(way, replace(each, draw=draw)).samples).dispersion for draw in range(DRAWS_OF_USERS)]
        return math.log(max(TINY, statistics.fmean(found)) / max(TINY, tally.dispersion or 0.0))

    first = bisect_left(users, 0.0, hi=len(users) - 1, key=varies)  # it rises with their number
    return of_users(seen, min(users[max(0, first - 1) : first + 1], key=lambda count: abs(varies(count))), traffic.delay_s)


@dataclass(frozen=True, slots=True)
class Met:
    """Requests that are there when one comes, itself included: the mean, and the dispersion as `Tally` has it."""

    mean: float
    dispersion: float


def met(samples: Sequence[Sample]) -> Met:
    """The begin left out."""
    due, ends = sorted(sample.due_s for sample in samples), sorted(sample.end_s or 0.0 for sample in samples)
    found = [at + 1 - bisect_right(ends, due[at]) for at in range(int(WARMUP * len(due)), len(due))]
    mean = statistics.fmean(found)
    return Met(mean, statistics.pvariance(found) / (mean - 1) if mean > 1 else 0.0)


def in_steps(slo: Slo, gains: float) -> Slo:
    """The same objectives where a step that gives `gains` tokens passes for one token."""
    return Slo({name: seconds * gains if name == "tpot" else seconds for name, seconds in slo.most_s.items()})


def figures_of(samples: Sequence[Sample], closed: bool, slo: Slo | None = None) -> Figures:
    """Of a run, the begin left out. In a closed loop what comes until the last request is sent counts: until then all users are there."""
    due = sorted(sample.due_s for sample in samples)
    begin_s = due[int(WARMUP * len(due))]
    measured = [sample for sample in samples if sample.ok and sample.due_s >= begin_s]
    if not measured:
        raise PenstockError(f"none of {len(samples)} requests was answered")
    window = Window(begin_s, max(due[-1] if closed else max(sample.end_s or 0.0 for sample in measured), begin_s + 1e-9))
    done = samples if closed else measured
    return _figures(Parts(done, measured, measured), window, slo)


def figures_within(samples: Sequence[Sample], window: Window, slo: Slo | None = None) -> Figures:
    """What an engine's counters gain in a stretch of time: of whoever gets his first token or his last in it, whenever he came."""
    answered = [sample for sample in samples if sample.ok]
    begun, ended = ([sample for sample in answered if window.holds(getattr(sample, at))] for at in ("first_s", "end_s"))
    if not begun or not ended:
        raise PenstockError(f"none of {len(samples)} requests was answered")
    return _figures(Parts(answered, begun, ended), window, slo)


@dataclass(frozen=True, slots=True)
class Parts:
    """Samples whose tokens count, whose first tokens do, and whose answers as a whole do."""

    tokens: Sequence[Sample]
    begun: Sequence[Sample]
    ended: Sequence[Sample]


def _figures(of: Parts, window: Window, slo: Slo | None) -> Figures:
    tokens = sum(tokens_within(sample, window) for sample in of.tokens)
    answers = sum(window.holds(sample.end_s) for sample in of.tokens)
    ttft = sorted(sample.ttft_s or 0.0 for sample in of.begun)
    kept = None if slo is None else sum(map(slo.kept, of.ended)) / len(of.ended)
    good = 0.0 if slo is None else sum(tokens_within(sample, window) for sample in of.tokens if slo.kept(sample))
    tpot = [found for sample in of.ended if (found := sample.tpot_s) is not None]
    return Figures(
        tokens / window.seconds, answers / window.seconds, statistics.fmean(ttft), ttft[math.ceil(0.99 * len(ttft)) - 1],
        statistics.fmean(tpot) if tpot else 0.0, statistics.fmean(sample.e2e_s or 0.0 for sample in of.ended), 0,
        kept, good / window.seconds)
