"""What the runner keeps of a sequence from its first row until the plan says that it has finished."""
import sys
from collections import deque

import numpy as np

from penstock.compute.arrays import Array
from penstock.compute.decoding.state import RowState
from penstock.core.prefix import num_common
from penstock.core.types import PlannedSeq, SeqInfo

_FIRST_BLOCKS = 16  # initial capacity of a block table


class CachedSeq:
    """One sequence: its parameters, the state of its sampler, and its block table as an array.

    tokens: prompt and output, where drafts may be made. Some of the output may be missing while the drafter skips steps; see
    `append_tokens` in drafter.py.
    plain: it needs nothing but sampled tokens. generates: it samples tokens, as opposed to an embedding. scores_prompt: it needs the
    log-probabilities of its prompt. longest: tokens that it may come to.
    """

    __slots__ = ("tokens", "block_ids", "table", "plain", "generates", "state", "scores_prompt", "longest", "info", "_buffer",
                 "num_states", "_appended", "_states", "_states_end")

    def __init__(self, info: SeqInfo, drafts: bool = True, kin: RowState | None = None) -> None:
        """`drafts`: whether any may be made for it. `kin`: see RowState."""
        self.info = info
        self.tokens = [*info.prompt, *info.output] if drafts and not info.held else []
        self.state = RowState(info, info.output, kin)
        self.table: Array = np.empty(0, dtype=np.int64)  # [blocks]
        self.block_ids: tuple[int, ...] = ()  # contents of `table`
        self.scores_prompt = info.params.prompt_logprobs is not None
        self.generates = not info.wants_embedding
        self.longest = sys.maxsize if info.params.max_tokens is None else len(info.prompt) + info.params.max_tokens
        self.plain = self.generates and not (self.scores_prompt or info.held)
        self._buffer: Array = np.empty(_FIRST_BLOCKS, dtype=np.int64)  # `table` is a view of its beginning
        self._appended = list(info.output) if info.held else []  # output of a held sequence that its `state` has counted
        self._states: deque[Array] = deque()  # [n, width] hidden states of successive tokens that no proposer has seen yet
        self.num_states = 0  # tokens whose states these are
        self._states_end = 0  # index of the token after them

    def set_blocks(self, block_ids: tuple[int, ...]) -> None:
        """Updates the table. Only blocks behind those that stay are written; the buffer's capacity doubles."""
        num_same, count = len(self.block_ids), len(block_ids)
        if block_ids[:num_same] != self.block_ids:
            num_same = num_common(self.block_ids, block_ids)
        if count > len(self._buffer):
            self._buffer, num_same = np.empty(2 * count, dtype=np.int64), 0
        self._buffer[num_same:count] = block_ids[num_same:]
        self.block_ids, self.table = block_ids, self._buffer[:count]

    def count_appended(self, planned: PlannedSeq) -> None:
        """Counts, for penalties, the tokens that a search has appended to a held sequence: the runner sees them when they are computed."""
        if self.info.held:
            fresh = planned.tokens[max(0, planned.num_prompt + len(self._appended) - planned.start) :]
            self.state.extend(fresh)
            self._appended += fresh

    def change(self, start: int, tokens: tuple[int, ...]) -> None:
        """From `start` on these are its tokens: all that were missing, or what a search has changed."""
        if not self.info.held:
            self.tokens[start:] = tokens
            return
        at = start - len(self.info.prompt)
        self.state.retract(self._appended[at:])
        self.state.extend(tokens)
        self._appended[at:] = tokens

    def keep_states(self, start: int, states: Array, most: int) -> None:
        """Keeps hidden states [n, width] of the tokens from `start` on for the next proposal: the latest without a gap, whole steps of them
        as far as `most` reach. They are copied: as a part of the step's states they would keep those of all sequences in memory."""
        if start != self._states_end:  # steps came between that output none
            self.drop_states()
        self._states.append(np.array(states[-most:]))
        self.num_states += len(self._states[-1])
        self._states_end = start + len(states)
        while self.num_states - len(self._states[0]) >= most:
            self.num_states -= len(self._states.popleft())

    def states(self) -> Array | None:
        """All kept states, [n, width]."""
        return np.concatenate(self._states) if self._states else None

    def drop_states(self) -> None:
        self._states.clear()
        self.num_states = 0
