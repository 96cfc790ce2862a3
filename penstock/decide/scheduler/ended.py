"""Sequences that have ended, until the runner is told about them."""
from collections.abc import Iterable

from penstock.core.types import Seq, StepPlan


class Ended:
    def __init__(self) -> None:
        self.with_outputs = False  # whether the runner learns from what was written
        self._seq_ids: list[int] = []
        self._outputs: list[tuple[int, ...]] = []  # theirs, where told

    def add(self, seq: Seq) -> None:
        self._seq_ids.append(seq.seq_id)
        if self.with_outputs:
            self._outputs.append(() if seq.held else tuple(seq.tokens[seq.num_prompt :]))  # a search's sequences are no answers

    def told(self) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """(ids, outputs), as StepPlan has them."""
        return tuple(self._seq_ids), tuple(self._outputs)

    def clear(self) -> None:
        """A plan tells of them."""
        self._seq_ids.clear()
        self._outputs.clear()

    def give_back(self, plan: StepPlan) -> None:
        """The plan was never committed."""
        self._seq_ids[:0] = plan.finished
        self._outputs[:0] = plan.outputs

    def reset(self, seq_ids: Iterable[int]) -> None:
        """These have ended, too, and nothing is to be learned from any."""
        self._seq_ids = sorted({*self._seq_ids, *seq_ids})
        self._outputs = [()] * len(self._seq_ids) if self.with_outputs else []
