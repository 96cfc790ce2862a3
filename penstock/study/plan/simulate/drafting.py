"""Speculative decoding in the twin: the engine's own controller limits the drafts; their acceptance is drawn from measured rates."""
import random
from dataclasses import dataclass

from penstock.compute.decoding.control import controllers
from penstock.compute.decoding.control.contract import Controller, step_load
from penstock.compute.decoding.control.skip import Skip
from penstock.compute.timing import FAR, context_costs
from penstock.core.config import EngineConfig
from penstock.core.drafting import Drafting
from penstock.core.types import PlannedSeq, StepPlan
from penstock.core.work import StepTimer, StepWork


@dataclass(frozen=True, slots=True)
class ProposerModel:
    """How a proposer of chains behaves. `acceptance`: for each position the share of drafts that are accepted there, with all before them,
    so that it never rises; `proposal_rate`: how often it has drafts when it is asked; `propose_s`: seconds to ask it for one sequence."""

    acceptance: tuple[float, ...]
    proposal_rate: float = 1.0
    propose_s: float = 0.0


def proposer_model(seen: Drafting, num_tokens: int, propose_s: float = 0.0) -> ProposerModel:
    """From the drafts of an engine that generated `num_tokens` tokens, each pass yielding its accepted drafts and one token more."""
    passes = num_tokens - seen.num_accepted
    acceptance, lowest = [], 1.0
    for share in seen.acceptance:
        lowest = min(lowest, share)
        acceptance.append(lowest)
    return ProposerModel(tuple(acceptance), min(1.0, seen.passes / passes) if passes > 0 else 1.0, propose_s)


def make_controller(config: EngineConfig, proposer: ProposerModel, timer: StepTimer) -> Controller:
    """As in the engine, except that the step times come from `timer` instead of a measurement."""
    max_drafts = len(proposer.acceptance)

    def measured() -> tuple[list[float], float, float]:
        num_rows = config.max_num_seqs * (1 + max_drafts) + config.max_num_batched_tokens
        curve = [timer.seconds(StepWork(((max(1, count), max(1, count)),), max(1, count))) for count in range(num_rows + 1)]
        return curve, *context_costs(timer.seconds, FAR)

    return controllers.make(config.draft_control, max_drafts, measured)


class SimulatedDrafter:
    """The twin's counterpart of the runner's `Drafter`, without tokens: drafts are counts.

    Called once in each step, in this order: `begin_step`, `verify` for each sequence with drafts, `propose`, `end_step`.
    """

    def __init__(self, controller: Controller, proposer: ProposerModel) -> None:
        self._controller, self._proposer = controller, proposer
        self._skip = Skip(controller)
        self._is_observed = True  # the controller observes this step
        self._num_asked = 0  # in this step
        self._max_tokens: dict[int, int | None] = {}  # by sequence
        self._rng = random.Random(0)

    def begin_step(self, plan: StepPlan, now: float) -> None:
        for seq_id in plan.finished:
            self._skip.end()
            self._controller.forget(seq_id)
            self._skip.begin()
            self._max_tokens.pop(seq_id, None)
        self._max_tokens |= {planned.seq_id: planned.new.params.max_tokens for planned in plan.seqs if planned.new is not None}
        self._is_observed = self._skip.left == 0
        if self._is_observed:
            self._skip.end()
            self._controller.begin_step(now, step_load(plan, max_tokens=[self._max_tokens[planned.seq_id] for planned in plan.seqs]))
        else:
            self._skip.left -= 1

    def verify(self, planned: PlannedSeq) -> int:
        """The number of the sequence's drafts that are accepted."""
        count = self._draw_accepted(planned.num_drafts)
        self._controller.record_verified(planned.seq_id, range(count), planned.num_drafts)
        return count

    def propose(self, plan: StepPlan) -> tuple[dict[int, int], float]:
        """(number of drafts by sequence for the next step, seconds that it took to make them)."""
        self._num_asked = 0
        if not self._is_observed:
            return {}, 0.0
        seq_ids = [planned.seq_id for planned in plan.seqs if planned.samples]
        num_other_rows = sum([len(planned.tokens) for planned in plan.seqs if not planned.samples])
        limits = self._controller.limits(seq_ids, num_other_rows) if seq_ids else None
        num_drafts: dict[int, int] = {}
        for seq_id, limit in zip(seq_ids, limits.max_drafts if limits is not None else (), strict=False):
            if limit and limits is not None:
                self._num_asked += 1
                limit = min(limit, len(self._proposer.acceptance))
                count = limit if self._rng.random() < self._proposer.proposal_rate else 0
                self._controller.record_proposal(seq_id, count)
                num_drafts[seq_id] = 0 if limits.only_counted else count
        return num_drafts, self._num_asked * self._proposer.propose_s

    def _draw_accepted(self, num_drafts: int) -> int:
        """Draws how many drafts of a chain are accepted."""
        drawn = self._rng.random()
        return sum([drawn < share for share in self._proposer.acceptance[:num_drafts]])

    def end_step(self, now: float, drafting_s: float, computing_s: float) -> None:
        if self._is_observed:
            self._controller.end_step(now, drafting_s, computing_s)
            self._skip.begin()
