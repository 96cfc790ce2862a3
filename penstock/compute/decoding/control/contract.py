"""The interface between the runner and what decides how many tokens are drafted, and the controller that always drafts the maximum."""
from collections.abc import Sequence
from typing import Protocol

from penstock.core.message import message
from penstock.core.types import StepPlan

FRESH_TOKENS = 10  # after which the caches hold again what steps need: a prompt, and waiting for it, leave them to others


@message
class DraftLimits:
    """The number of drafts that each sequence may have in the next step, in the order in which the sequences were given.

    `sure`: see `Draftable`. `only_counted`: they are made to see how many are offered, and not verified.
    """

    max_drafts: Sequence[int]  # [seqs]
    sure: bool = False
    only_counted: bool = False


@message
class StepLoad:
    """The work of one step."""

    num_seqs: int
    num_drafts: int
    num_context_tokens: int  # computed before the step, over all sequences
    is_decode: bool  # every sequence has one token and its drafts, and no draft comes from a grammar
    in_lockstep: bool = False  # without accepted drafts, on average two or more of its sequences will reach their `max_tokens` together
    is_fresh: bool = False  # one of its answers has just begun: such steps take longer


def step_load(plan: StepPlan, has_grammar_drafts: bool = False, max_tokens: Sequence[int | None] = ()) -> StepLoad:
    """`max_tokens` [seqs]: of each sequence's output; empty: the same for all."""
    seqs = plan.seqs
    num_rows = num_drafts = num_context_tokens = num_open = 0
    samples, is_fresh, ends = True, not seqs, set()
    for planned, most in zip(seqs, max_tokens or [0] * len(seqs), strict=True):
        num_output = planned.num_output
        num_rows += len(planned.tokens)
        num_drafts += planned.num_drafts
        num_context_tokens += planned.start
        if not planned.samples:
            samples = False
        if num_output < FRESH_TOKENS:
            is_fresh = True
        if most is None:  # who may say all that fits ends by himself
            num_open += 1
        else:
            ends.add(most - num_output)
    is_decode = samples and num_rows - num_drafts == len(seqs) and not has_grammar_drafts
    return StepLoad(len(seqs), num_drafts, num_context_tokens, is_decode, 2 * (len(ends) + num_open) <= len(seqs), is_fresh)


class Controller(Protocol):
    """Decides how many drafts each sequence may have, from what it observes of each step.

    The calls of one step, in this order: `begin_step`; `record_verified` for each sequence whose drafts the step verified; `limits` if any
    sequence continues; `record_proposal` for each sequence that was given a limit above zero; `end_step`. `forget`, of a sequence that has
    ended, comes before `begin_step`.

    After `end_step` or `forget`, `num_skippable` says how many steps may now be made without any of these calls, and `num_unasked` how many
    without drafts to come of them. `skipped` reports how many were skipped, before any other call.
    """

    def num_skippable(self) -> int:
        """The number of next steps that need not be observed, and after none of which anything is drafted."""
        ...

    def num_unasked(self) -> int:
        """The number of next steps, those that need not be observed included, after none of which `limits` allows drafts."""
        ...

    def skipped(self, num_steps: int) -> None:
        """This many steps were made without being observed."""
        ...

    def begin_step(self, now: float, load: StepLoad) -> None:
        """A step of this load begins at `now` (seconds)."""
        ...

    def record_verified(self, seq_id: int, path: Sequence[int], depth: int) -> None:
        """The step accepted these of the sequence's drafts (indices), of at most `depth` that it could have accepted: the length of the
        longest path through a tree, the number of drafts in a chain."""
        ...

    def limits(self, seq_ids: Sequence[int], num_other_rows: int) -> DraftLimits | None:
        """What these sequences may have in the next step, which has about `num_other_rows` rows of other sequences. None: no drafts."""
        ...

    def record_proposal(self, seq_id: int, num_drafts: int | None) -> None:
        """The proposer was asked for this sequence and made `num_drafts`, which the next step verifies, or fewer or none where it has no
        room for them: such drafts count as rejected. None: it is still reading."""
        ...

    def end_step(self, now: float, drafting_s: float, computing_s: float) -> None:
        """The step ends at `now` (seconds). Deciding and drafting took `drafting_s` of it, by which a skipped step is shorter, and the
        backend's work `computing_s`."""
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

    def num_unasked(self) -> int:
        return self.num_skippable()

    def skipped(self, num_steps: int) -> None:
        pass

    def begin_step(self, now: float, load: StepLoad) -> None:
        pass

    def record_verified(self, seq_id: int, path: Sequence[int], depth: int) -> None:
        pass

    def limits(self, seq_ids: Sequence[int], num_other_rows: int) -> DraftLimits | None:
        return DraftLimits([self._max_drafts] * len(seq_ids))

    def record_proposal(self, seq_id: int, num_drafts: int | None) -> None:
        pass

    def end_step(self, now: float, drafting_s: float, computing_s: float) -> None:
        pass

    def invests(self) -> bool:
        return True

    def invested(self, seconds: float) -> None:
        pass

    def forget(self, seq_id: int) -> None:
        pass
