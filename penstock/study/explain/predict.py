"""What the twin says of a way to serve this traffic."""
from dataclasses import dataclass, replace

from penstock.core.config import EngineConfig
from penstock.core.work import StepTimer, StepWork
from penstock.study.explain.figures import Figures, figures_of, figures_within
from penstock.study.explain.observed import Drafted
from penstock.study.explain.traffic import Traffic
from penstock.study.measure.metrics import Window
from penstock.study.measure.slo import Slo
from penstock.study.plan.rehearsal import suited
from penstock.study.plan.simulate.twin import Pace, Played, Spread, simulate


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


class Drafting:
    """A StepTimer of an engine that drafts: the mean of steps in which whatever decodes has drafts to check, and of those in which nothing
    has; and of those with one draft more and less, where there is a fraction of one."""

    def __init__(self, timer: StepTimer, drafted: Drafted) -> None:
        few, share = int(drafted.rows), drafted.share
        more = drafted.rows - few
        self._timer, self._drafting_s = timer, drafted.seconds
        self._parts = [(rows, part) for rows, part in ((0, 1 - share), (few, share * (1 - more)), (few + 1, share * more)) if part]

    def seconds(self, work: StepWork) -> float:
        if all(rows > 1 for rows, _ in work.contexts):
            return self._timer.seconds(work)
        return self._drafting_s + sum([part * self._with(work, rows) for rows, part in self._parts])

    def _with(self, work: StepWork, more: int) -> float:
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
    timer = way.timer if way.drafted is None else Drafting(way.timer, way.drafted)
    config = replace(way.config, propose=None)  # what drafts did is in the timer and in the lengths
    asked = traffic.calls(config, way.gains)
    spread = None if way.replicas == 1 else Spread(way.replicas, suited(asked, config.prefix_cache))
    pace = Pace(timer, traffic.delay_s, ended=traffic.ended(config, way.gains))
    return simulate(config, pace, asked, traffic.users, spread)


def in_steps(slo: Slo, gains: float) -> Slo:
    """The same objectives where a step that gives `gains` tokens passes for one token."""
    return Slo({name: seconds * gains if name == "tpot" else seconds for name, seconds in slo.most_s.items()})
