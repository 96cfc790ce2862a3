"""Speculation in the twin: the real controller decides how much is drafted; what becomes of drafts is drawn from what was measured."""
import random
from dataclasses import dataclass

from penstock.compute.decoding.control.contract import Always, Control, load_of
from penstock.compute.decoding.control.priced import Priced
from penstock.compute.decoding.control.rest import Rest
from penstock.compute.timing import FAR, context_costs
from penstock.core.config import EngineConfig
from penstock.core.drafting import Drafting
from penstock.core.types import PlannedSeq, StepPlan
from penstock.core.work import StepTimer, StepWork


@dataclass(frozen=True, slots=True)
class Guesses:
    """A proposer. `acceptance`: of chains, the share of drafts at each position that are accepted (those before them included, so that it
    never rises); `had`: the share of askings in which it has any; `asking_s`: seconds of asking for one sequence."""

    acceptance: tuple[float, ...]
    had: float = 1.0
    asking_s: float = 0.0


def guesses_of(seen: Drafting, num_answers: int, asking_s: float = 0.0) -> Guesses:
    """What an engine saw of its drafts while it made `num_answers` tokens in `num_answers` - drafts accepted passes."""
    passes = num_answers - seen.num_accepted
    falling, least = [], 1.0
    for share in seen.acceptance:
        least = min(least, share)
        falling.append(least)
    return Guesses(tuple(falling), min(1.0, seen.passes / passes) if passes > 0 else 1.0, asking_s)


def control_of(config: EngineConfig, guesses: Guesses, timer: StepTimer) -> Control:
    """As the engine's own is made, but for the curve of step times, which comes from the timer."""
    most = len(guesses.acceptance)
    if config.draft_control == "always":
        return Always(most)
    rows = config.max_num_seqs * (1 + most) + config.max_num_batched_tokens
    seconds = [timer.seconds(StepWork(((max(1, count), max(1, count)),), max(1, count))) for count in range(rows + 1)]
    return Priced(seconds, most, *context_costs(timer.seconds, FAR))


class Drafts:
    """Of one step at a time: `began`, `accepted` for each sequence with drafts, `wanted`, `ended`."""

    def __init__(self, control: Control, guesses: Guesses) -> None:
        self._control, self._guesses = control, guesses
        self._rest = Rest(control)
        self._awake = True  # in this step
        self._num_asked = 0  # in this step
        self._rng = random.Random(0)

    def began(self, plan: StepPlan, now: float) -> None:
        for seq_id in plan.finished:
            self._rest.end()
            self._control.forget(seq_id)
            self._rest.begin()
        self._awake = self._rest.left == 0
        if self._awake:
            self._rest.end()
            self._control.began(now, load_of(plan))
        else:
            self._rest.left -= 1

    def accepted(self, planned: PlannedSeq) -> int:
        """Of the sequence's drafts."""
        count = self._right(planned.num_drafts)
        self._control.checked(planned.seq_id, range(count))
        return count

    def wanted(self, plan: StepPlan) -> tuple[dict[int, int], float]:
        """(drafts of each sequence for the next step, seconds that it took to make them)."""
        self._num_asked = 0
        if not self._awake:
            return {}, 0.0
        seq_ids = [planned.seq_id for planned in plan.seqs if planned.samples]
        others = sum([len(planned.tokens) for planned in plan.seqs if not planned.samples])
        rooms = self._control.rooms(seq_ids, others) if seq_ids else None
        found: dict[int, int] = {}
        for seq_id, room in zip(seq_ids, rooms.most if rooms is not None else (), strict=False):
            if room and rooms is not None:
                self._num_asked += 1
                room = min(room, len(self._guesses.acceptance))
                count = room if self._rng.random() < self._guesses.had else 0
                if rooms.dry:
                    self._control.tried(seq_id, room, count, range(self._right(count)))
                else:
                    self._control.offered(seq_id, room, count)
                    found[seq_id] = count
        return found, self._num_asked * self._guesses.asking_s

    def _right(self, num_drafts: int) -> int:
        luck = self._rng.random()
        return sum([luck < share for share in self._guesses.acceptance[:num_drafts]])

    def ended(self, now: float, asking_s: float) -> None:
        if self._awake:
            self._control.ended(now, asking_s, self._num_asked)
            self._rest.begin()
