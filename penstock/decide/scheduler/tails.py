"""Tokens that the runner is told beside those that it computes: what it asked for, and what a search has changed."""
from collections.abc import Collection, Mapping, Sequence

from penstock.core.types import Seq, StepPlan


class Tails:
    def __init__(self) -> None:
        self._asked: Sequence[tuple[int, int]] = ()  # with the last result: whose tokens, from which on
        self._changed: dict[int, int] = {}  # by seq_id: from which token on, until a step is committed that tells of it

    def change(self, seq: Seq, start: int, tokens: Sequence[int]) -> None:
        """From `start` on the sequence has these of `tokens` now."""
        seq.tokens[start:] = tokens[start:]
        self._changed[seq.seq_id] = min(start, self._changed.get(seq.seq_id, start))

    def forget(self, seq_id: int) -> None:
        self._changed.pop(seq_id, None)

    def of(self, planned: Collection[int], seqs: Mapping[int, Seq]) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
        """As StepPlan has them, of the sequences that are `planned`."""
        if not (self._asked or self._changed):
            return ()
        wanted = (*self._asked, *self._changed.items())
        return tuple([(seq_id, start, tuple(seqs[seq_id].tokens[start:])) for seq_id, start in wanted if seq_id in planned])

    def commit(self, plan: StepPlan, asks: Sequence[tuple[int, int]]) -> None:
        """The plan has told of its sequences. `asks`: what its result asks for."""
        for seq_id, _, _ in plan.tails:
            self._changed.pop(seq_id, None)
        self._asked = asks
