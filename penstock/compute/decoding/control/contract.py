"""The interface between the runner and what decides how many tokens are drafted, and the controller that always drafts the maximum."""
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.core.types import StepPlan


class Use(Enum):
    """What drafts are made for. VERIFY: to be verified by the next step. COMPARE: a dry trial, whose drafts no step verifies; they are
    compared with the tokens that plain decoding yields in the steps that follow. COUNT: to see how many are offered, and nothing else."""

    VERIFY = "verify"
    COMPARE = "compare"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class DraftLimits:
    """The number of drafts that each sequence may have in the next step, in the order in which the sequences were given.

    `sure`: see `Draftable`.
    """

    max_drafts: Sequence[int]  # [seqs]
    use: Use = Use.VERIFY
    sure: bool = False


@dataclass(frozen=True, slots=True)
class StepLoad:
    """The work of one step."""

    num_seqs: int
    num_rows: int  # drafts included
    num_drafts: int
    num_context_tokens: int  # computed before the step, over all sequences
    is_decode: bool  # every sequence has one token and its drafts, and no draft comes from a grammar
    in_lockstep: bool = False  # without accepted drafts, on average two or more of its sequences will reach their `max_tokens` together


@dataclass(frozen=True, slots=True)
class DraftingCost:
    """What drafts cost in one step, beside computing their rows. A skipped step takes that much less.

    The proposer was asked for `num_asked` sequences, and saw `num_new_tokens` of their tokens for the first time.
    """

    seconds: float
    deciding_s: float = 0.0  # of these, spent in `Controller.limits`
    num_asked: int = 0
    num_new_tokens: int = 0


def step_load(plan: StepPlan, has_grammar_drafts: bool = False, max_tokens: Sequence[int | None] = ()) -> StepLoad:
    """`max_tokens` [seqs]: of each sequence's output; empty: the same for all."""
    seqs, num_rows = plan.seqs, plan.num_tokens
    num_drafts, num_context_tokens = sum([planned.num_drafts for planned in seqs]), sum([planned.start for planned in seqs])
    is_decode = num_rows - num_drafts == len(seqs) and not has_grammar_drafts and all(planned.samples for planned in seqs)
    num_left = {(most or 0) - planned.num_output for planned, most in zip(seqs, max_tokens or [0] * len(seqs), strict=True)}
    return StepLoad(len(seqs), num_rows, num_drafts, num_context_tokens, is_decode, in_lockstep=2 * len(num_left) <= len(seqs))


class Controller(Protocol):
    """Decides how many drafts each sequence may have, from what it observes of each step.

    The calls of one step, in this order: `begin_step`; `record_verified` for each sequence whose drafts the step verified; `record_trial`
    for each whose dry trial is complete; `limits` if any sequence continues; `record_proposal` for each sequence that was given a limit
    above zero, unless its drafts are compared in a dry trial; `end_step`. A sequence that has ended is reported before `begin_step`:
    `record_trial` if it was in a dry trial, then `forget`.

    After `end_step` or `forget`, `num_skippable` says how many steps may now be made without any of these calls. `skipped` reports how many
    were, before any other call.
    """

    def num_skippable(self) -> int:
        """The number of next steps that need not be observed, and after none of which anything is drafted."""
        ...

    def skipped(self, num_steps: int) -> None:
        """This many steps were made without being observed."""
        ...

    def begin_step(self, now: float, load: StepLoad) -> None:
        """A step of this load begins at `now` (seconds)."""
        ...

    def record_verified(self, seq_id: int, path: Sequence[int]) -> None:
        """The step accepted these of the sequence's drafts (indices)."""
        ...

    def record_trial(self, seq_id: int, limit: int, num_drafts: int, path: Sequence[int]) -> None:
        """A dry trial is complete: allowed `limit` drafts, the proposer made `num_drafts`, of which those in `path` (indices) would have
        been accepted."""
        ...

    def limits(self, seq_ids: Sequence[int], num_other_rows: int) -> DraftLimits | None:
        """What these sequences may have in the next step, which has about `num_other_rows` rows of other sequences. None: no drafts."""
        ...

    def record_proposal(self, seq_id: int, limit: int, num_drafts: int) -> None:
        """Allowed `limit` drafts, the proposer made `num_drafts`, which the next step verifies, or fewer or none where it has no room for
        them: such drafts count as rejected. `limit` is lower than the one decided on where the sequence will end before."""
        ...

    def end_step(self, now: float, drafting: DraftingCost) -> None:
        """The step ends at `now` (seconds)."""
        ...

    def invests(self) -> bool:
        """Whether time may be spent now on what may yield drafts later."""
        ...

    def invested(self, seconds: float) -> None:
        """So much was spent on it."""
        ...

    def forget(self, seq_id: int) -> None:
        """A sequence has ended, or a new one with this id begins."""
        ...


class Always:
    """Every sequence may have the maximum in every step."""

    def __init__(self, max_drafts: int) -> None:
        self._max_drafts = max_drafts

    def num_skippable(self) -> int:
        return 0

    def skipped(self, num_steps: int) -> None:
        pass

    def begin_step(self, now: float, load: StepLoad) -> None:
        pass

    def record_verified(self, seq_id: int, path: Sequence[int]) -> None:
        pass

    def record_trial(self, seq_id: int, limit: int, num_drafts: int, path: Sequence[int]) -> None:
        pass

    def limits(self, seq_ids: Sequence[int], num_other_rows: int) -> DraftLimits | None:
        return DraftLimits([self._max_drafts] * len(seq_ids))

    def record_proposal(self, seq_id: int, limit: int, num_drafts: int) -> None:
        pass

    def end_step(self, now: float, drafting: DraftingCost) -> None:
        pass

    def invests(self) -> bool:
        return True

    def invested(self, seconds: float) -> None:
        pass

    def forget(self, seq_id: int) -> None:
        pass
