"""What the runner keeps of a sequence from its first row until the plan says that it has finished."""
from typing import Any

import numpy as np

from penstock.compute.decoding.state import RowState
from penstock.compute.runner.batch import END, NOTHING, Wanted, wanted_rows
from penstock.core.types import PlannedSeq, SeqInfo

Array = Any
_FIRST_BLOCKS = 16  # that a table has room for at first


class Known:
    """One sequence: what was asked of it, what sampling remembers, and its block table as an array."""

    __slots__ = ("_block_ids", "_counted", "_room", "_scores_prompt", "info", "state", "table")

    def __init__(self, info: SeqInfo) -> None:
        self.info = info
        self.state = RowState(info, info.output)
        self.table: Array = np.empty(0, dtype=np.int64)  # [blocks]
        self._block_ids: tuple[int, ...] = ()  # that `table` holds
        self._room: Array = np.empty(_FIRST_BLOCKS, dtype=np.int64)  # what `table` is the beginning of
        self._counted = len(info.output)  # output tokens that the state of a held sequence has been told of
        self._scores_prompt = info.params.prompt_logprobs is not None

    def plan(self, planned: PlannedSeq) -> Wanted:
        """Takes in what is planned; returns the rows whose logits are wanted."""
        if planned.block_ids is not self._block_ids:
            self._take_blocks(planned.block_ids)
        if self.info.held:
            self._count_appended(planned)
        if self._scores_prompt:
            return wanted_rows(planned, True, not self.info.wants_embedding)
        return END if planned.samples and not self.info.wants_embedding else NOTHING

    def embeds(self, planned: PlannedSeq) -> bool:
        """Whether the step's last row is its embedding."""
        return planned.samples and self.info.wants_embedding

    def _take_blocks(self, block_ids: tuple[int, ...]) -> None:
        """A table that has only grown is added to; its rooms double."""
        num_same, count = len(self._block_ids), len(block_ids)
        if block_ids[:num_same] != self._block_ids:
            num_same = 0
        if count > len(self._room):
            self._room, num_same = np.empty(2 * count, dtype=np.int64), 0
        self._room[num_same:count] = block_ids[num_same:]
        self._block_ids, self.table = block_ids, self._room[:count]

    def _count_appended(self, planned: PlannedSeq) -> None:
        """A search appends tokens by itself: the state hears of them when they are computed."""
        fresh = planned.tokens[max(0, planned.num_prompt + self._counted - planned.start) :]
        self.state.extend(fresh)
        self._counted += len(fresh)
