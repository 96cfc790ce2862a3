"""What the runner keeps of a sequence from its first row until the plan says that it has finished."""
from typing import Any

import numpy as np

from penstock.compute.decoding.state import RowState
from penstock.core.types import PlannedSeq, SeqInfo

Array = Any
_FIRST_BLOCKS = 16  # that a table has room for at first
_MOST_STATES = 4096  # tokens


class Known:
    """One sequence: what was asked of it, what sampling remembers, and its block table as an array.

    plain: nothing is asked of it but tokens. scores_prompt: the log-probabilities of its prompt are. chooses: it gets tokens, not an
    embedding. tokens: its prompt and output, as far as they are known here: a drafter that rests misses some.
    """

    __slots__ = ("tokens", "block_ids", "table", "plain", "chooses", "state", "scores_prompt", "info", "_room", "_counted",
                 "_states", "_states_end")

    def __init__(self, info: SeqInfo) -> None:
        self.info = info
        self.tokens = [*info.prompt, *info.output]
        self.state = RowState(info, info.output)
        self.table: Array = np.empty(0, dtype=np.int64)  # [blocks]
        self.block_ids: tuple[int, ...] = ()  # that `table` holds
        self.scores_prompt = info.params.prompt_logprobs is not None
        self.chooses = not info.wants_embedding
        self.plain = self.chooses and not (self.scores_prompt or info.held)
        self._room: Array = np.empty(_FIRST_BLOCKS, dtype=np.int64)  # what `table` is the beginning of
        self._counted = len(info.output)  # output tokens that the state of a held sequence has been told of
        self._states: list[Array] = []  # [n, width] hidden states that no proposer has seen, one after another
        self._states_end = 0  # the token after them

    def take_blocks(self, block_ids: tuple[int, ...]) -> None:
        """A table that has only grown is added to; its room doubles."""
        num_same, count = len(self.block_ids), len(block_ids)
        if block_ids[:num_same] != self.block_ids:
            num_same = 0
        if count > len(self._room):
            self._room, num_same = np.empty(2 * count, dtype=np.int64), 0
        self._room[num_same:count] = block_ids[num_same:]
        self.block_ids, self.table = block_ids, self._room[:count]

    def count_appended(self, planned: PlannedSeq) -> None:
        """A search appends tokens by itself: the state of a held sequence hears of them when they are computed."""
        if self.info.held:
            fresh = planned.tokens[max(0, planned.num_prompt + self._counted - planned.start) :]
            self.state.extend(fresh)
            self._counted += len(fresh)

    def keep_states(self, start: int, states: Array) -> None:
        """Hidden states [n, width] of the tokens from `start` on, which were computed now; the latest without a gap stay, as many as a
        proposer may want."""
        if start != self._states_end:  # preempted, and begun again
            self._states.clear()
        self._states.append(states)
        self._states_end = start + len(states)
        while len(self._states) > 1 and sum(map(len, self._states[1:])) >= _MOST_STATES:
            del self._states[0]

    def take_states(self) -> Array | None:
        """All that were kept, [n, width]; they are not kept any longer."""
        states, self._states = self._states, []
        return np.concatenate(states) if states else None
