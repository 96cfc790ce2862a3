"""The grammar state of one sequence: masks of the tokens that may come next, and the tokens that must come next."""
from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from penstock.compute.arrays import Array
from penstock.compute.decoding.grammar.ahead import MAX_FORCED, Ahead
from penstock.compute.decoding.grammar.compiled import FULL, Compiled
from penstock.compute.decoding.grammar.differ import Differ
from penstock.compute.decoding.grammar.odds import Odds
from penstock.compute.decoding.grammar.vocabulary import MOST_S, Vocabulary
from penstock.compute.decoding.grammar.written import Forcing
from penstock.core.types import SamplingParams

EVERYTHING = 0xFFFFFFFF  # a mask word that allows all of its 32 tokens
SLOW_S = 0.002  # thread time of a mask, above which nothing is drafted for the sequence: each draft would cost as much again


class Matcher:
    """Advances by `take`, which is called with every token of the output in order. All other methods leave the grammar where it is.

    ended: why no further token may come. "stop": the grammar is complete, or an end token was taken; "abort": the grammar turned out to be
        too complex at this point, or too slow; None: the answer continues.
    alone: whether no other sequence is in the step, told before its masks are filled. Among others no text is looked for that only masks
        tell of: looking takes longer than its tokens save (docs/LOG.md).
    slow: the last mask took longer than SLOW_S, so nothing should be drafted. Measured time may decide this, since drafts never change an
        answer.
    """

    __slots__ = (
        "alone", "ended", "slow", "_compiled", "_matcher", "_lexer", "_ahead", "_odds", "_differ", "_taken", "_eos", "_other_ends",
        "_ends", "_mutes_eos", "_overdue")

    def __init__(self, compiled: Compiled, vocabulary: Vocabulary, params: SamplingParams) -> None:
        """Special tokens among `params.stop_token_ids` are allowed wherever an end-of-text token is, and end the answer."""
        self.alone = True
        self.ended: str | None = None
        self.slow = False
        self._overdue: tuple[tuple[int, ...], ...] = ()  # drafts behind which a mask took too long
        self._compiled = compiled
        self._matcher, self._lexer = compiled.begin()
        self._ahead = Ahead(vocabulary.spelling) if compiled.forcing is Forcing.MASKS else None
        self._odds = Odds()
        self._differ = Differ(compiled.places, vocabulary.spelled) if compiled.places else None
        self._taken: list[int] = []
        self._eos = vocabulary.end_ids
        self._other_ends = tuple(sorted({token for token in params.stop_token_ids if token in vocabulary.special_ids} - {*self._eos}))
        self._ends = frozenset((*self._eos, *self._other_ends))
        self._mutes_eos = params.ignore_eos

    def take(self, tokens: Sequence[int]) -> int:
        """Advances over `tokens` until the answer has ended. Returns how many of them belong to the answer."""
        for at, token in enumerate(tokens):
            if self.ended is not None:
                return at
            if token in self._ends:
                self.ended = "stop" if self._matcher.is_accepting() or self._is_stop_within(token) else "abort"
            elif not self._consume(token) or not self._differs(token):
                self.ended = "abort"
            elif self._matcher.is_stopped():
                self.ended = "stop"
            self._taken.append(token)
            if self._ahead is not None:
                self._ahead.take(token)
                self._odds.take(token)
        if self._overdue:
            self._end_overdue(tuple(tokens))
        return len(tokens)

    def _end_overdue(self, tokens: tuple[int, ...]) -> None:
        """Ends the answer if a mask by which one of these was chosen took too long: without drafts, no other masks are computed."""
        if self.ended is None and any(len(path) < len(tokens) and tokens[: len(path)] == path for path in self._overdue):
            self.ended = "abort"
        self._overdue = ()

    def fill(self, mask: Array) -> None:
        """Writes the mask of the next token to `mask`, uint32 [width / 32], the lowest bit is the first token's. Releases the GIL."""
        self._fill(mask)
        if self._is_renewed():
            self._fill(mask)
        if not self._matcher.is_error():
            self._look_ahead((), mask)
            if self._matcher.is_error():
                self._recover()

    def _look_ahead(self, drafts: Sequence[int], mask: Array) -> None:
        """`mask`: of what may follow the drafts, behind which the matcher stands."""
        if self._ahead is not None and not self.slow:
            self._ahead.look(self._matcher, drafts, mask, self._write, min(self._odds.most, MAX_FORCED) if self.alone else 0)

    def _fill(self, mask: Array, drafts: Sequence[int] = ()) -> None:
        """`drafts`: those behind which the matcher stands."""
        began = time.thread_time()
        self._write(mask)
        if self._differ is not None:
            self._differ.strike(mask, drafts)
        seconds = time.thread_time() - began
        self.slow = seconds > SLOW_S
        if seconds > MOST_S:
            self._overdue += (tuple(drafts),)

    def _write(self, mask: Array) -> None:
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._other_ends or self._mutes_eos:
            self._change_ends(mask)

    def fill_along(self, drafts: Sequence[int], parents: Sequence[int] | None, masks: Array) -> None:
        """Writes the masks after the last token and after each draft: [1 + drafts, width / 32]. Those after drafts that the grammar forbids
        are arbitrary: such a draft is never accepted."""
        self._fill_all(drafts, parents, masks)
        if self._is_renewed():
            self._fill_all(drafts, parents, masks)
        if self._matcher.is_error():
            self._recover()

    def _fill_all(self, drafts: Sequence[int], parents: Sequence[int] | None, masks: Array) -> None:
        self._fill(masks[0])
        masks[1:] = EVERYTHING
        if parents is None:
            self._fill_chain(drafts, masks)
        else:
            self._fill_tree(drafts, parents, masks)

    def _fill_chain(self, drafts: Sequence[int], masks: Array) -> None:
        num_taken = 0
        for token in drafts:
            if token in self._ends or self._matcher.is_stopped() or not self._matcher.try_consume_tokens([token]):
                break
            num_taken += 1
            self._fill(masks[num_taken], drafts[:num_taken])
        else:
            self._look_ahead(drafts, masks[num_taken])
        if num_taken:
            self._matcher.rollback(num_taken)

    def _fill_tree(self, drafts: Sequence[int], parents: Sequence[int], masks: Array) -> None:
        walk = _Walk(self._matcher, drafts, parents)
        for at, token in enumerate(drafts):
            if token not in self._ends and walk.to(at):
                self._fill(masks[at + 1], walk.taken())
        walk.back()

    def allowed(self, drafts: Sequence[int], parents: Sequence[int] | None) -> list[int]:
        """The indices of the drafts that the grammar allows, in rising order; none where it is slow. End tokens are not allowed."""
        if self.ended is not None or self.slow:
            return []
        if parents is None:
            end = next((at for at, token in enumerate(drafts) if token in self._ends), len(drafts))
            return list(range(self._matcher.validate_tokens(list(drafts[:end]))))
        walk = _Walk(self._matcher, drafts, parents)
        kept: set[int] = set()
        for at, parent in enumerate(parents):
            if (parent < 0 or parent in kept) and drafts[at] not in self._ends and walk.to(at):
                kept.add(at)
        walk.back()
        return sorted(kept)

    def forced(self) -> list[int]:
        """The tokens of the text that must come next, tokenized as the tokenizer does; none where the grammar is slow. The model may still
        choose other tokens that spell the same text; where it does so often, fewer are told."""
        if self.ended is not None or self.slow:
            return []
        if self._ahead is None:
            return self._matcher.compute_ff_tokens()
        return self._odds.expect(self._ahead.tokens() if self.alone else [])

    def _change_ends(self, mask: Array) -> None:
        if any(mask[token >> 5] >> (token & 31) & 1 for token in self._eos):
            if self._mutes_eos:
                others = mask.copy()
                for token in self._eos:
                    others[token >> 5] &= EVERYTHING ^ 1 << (token & 31)
                if others.any():
                    mask[:] = others
            for token in self._other_ends:
                mask[token >> 5] |= 1 << (token & 31)

    def _is_stop_within(self, token: int) -> bool:
        """Whether the request stops at a token that the grammar itself has here."""
        return token in self._other_ends and self._consume(token)

    def _consume(self, token: int) -> bool:
        return self._matcher.consume_token(token) or (self._is_renewed() and self._matcher.consume_token(token))

    def _differs(self, token: int) -> bool:
        """Advances over a token; whether items that must differ still do."""
        return self._differ is None or self._differ.take(token)

    def _is_renewed(self) -> bool:
        """If the lexer is full: starts a new one at this matcher's state. Returns whether that was so, and succeeded."""
        if not (self._matcher.is_error() and FULL in self._matcher.get_error()):
            return False
        self._recover()
        return not self._matcher.is_error()

    def _recover(self) -> None:
        """Replaces a matcher in an error, which llguidance never leaves, by a new one that has consumed the same tokens."""
        self._matcher, self._lexer = self._compiled.begin_after(self._matcher, self._lexer)
        self._matcher.try_consume_tokens(self._taken)


class _Walk:
    """Moves a matcher from draft to draft of a tree, by consuming tokens and rolling back, and finally back to its state."""

    def __init__(self, matcher: Any, drafts: Sequence[int], parents: Sequence[int]) -> None:
        self._matcher = matcher
        self._drafts = drafts
        self._parents = parents
        self._trail: list[int] = []  # drafts that are consumed, in order

    def to(self, at: int) -> bool:
        """Moves to the state after a draft. False, and the state is one before it, if the grammar forbids it or one of its ancestors."""
        path = self._path(at)
        common = next((i for i, (a, b) in enumerate(zip(path, self._trail, strict=False)) if a != b), min(len(path), len(self._trail)))
        self._back_to(common)
        for step in path[common:]:
            if self._matcher.is_stopped() or not self._matcher.try_consume_tokens([self._drafts[step]]):
                return False
            self._trail.append(step)
        return True

    def taken(self) -> list[int]:
        """The drafts behind which the matcher stands."""
        return [self._drafts[step] for step in self._trail]

    def back(self) -> None:
        self._back_to(0)

    def _back_to(self, length: int) -> None:
        if len(self._trail) > length:
            self._matcher.rollback(len(self._trail) - length)
            del self._trail[length:]

    def _path(self, at: int) -> list[int]:
        path = [at]
        while (parent := self._parents[path[-1]]) >= 0:
            path.append(parent)
        return path[::-1]
