"""The grammar state of one sequence: masks of the tokens that may come next, and the tokens that must come next."""
from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.compute.arrays import Array
from penstock.compute.decoding.grammar.ahead import MAX_FORCED, Ahead
from penstock.compute.decoding.grammar.compiled import Compiled
from penstock.compute.decoding.grammar.differ import Differ
from penstock.compute.decoding.grammar.odds import Odds
from penstock.compute.decoding.grammar.vocabulary import MOST_S, Vocabulary
from penstock.compute.decoding.grammar.written import Forcing
from penstock.core.types import SamplingParams

if TYPE_CHECKING:
    from llguidance import LLMatcher

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
        self._overdue: tuple[tuple[tuple[int, ...], bool], ...] = ()  # drafts behind which a mask took too long, or (True) was not found
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
        num_taken = 0
        for token in tokens:
            if self.ended is not None:
                break
            if token in self._ends:
                self.ended = "stop" if self._matcher.is_accepting() or self._is_stop_within(token) else "abort"
            elif not self._consume(token) or not self._differs(token):
                self.ended = "abort"
            elif self._matcher.is_stopped():
                self.ended = "stop"
            num_taken += 1
            self._taken.append(token)
            if self._ahead is not None:
                self._ahead.take(token)
                self._odds.take(token)
        if self._overdue:
            self._end_overdue(tuple(tokens[:num_taken]))
        return num_taken

    def _end_overdue(self, tokens: tuple[int, ...]) -> None:
        """Ends the answer if a mask by which one of these was chosen took too long, or was not found, so that nothing but an end could be
        chosen: without drafts, no other masks are computed."""
        unfound = [is_unfound for path, is_unfound in self._overdue if len(path) < len(tokens) and tokens[: len(path)] == path]
        if any(unfound) or (unfound and self.ended is None):
            self.ended = "abort"
        self._overdue = ()

    def fill(self, mask: Array) -> None:
        """Writes the mask of the next token to `mask`, uint32 [width / 32], the lowest bit is the first token's. Releases the GIL."""
        self._overdue = ()
        if self._fill(mask):
            self._look_ahead((), mask)

    def fill_along(self, drafts: Sequence[int], parents: Sequence[int] | None, masks: Array) -> None:
        """Writes the masks after the last token and after each draft: [1 + drafts, width / 32]. Those after drafts that the grammar forbids
        are arbitrary: such a draft is never accepted; and so are those behind a mask that is not found: the answer ends there."""
        self._overdue = ()
        masks[1:] = EVERYTHING
        if not self._fill(masks[0]):
            return
        if parents is None:
            self._fill_chain(drafts, masks)
        else:
            self._fill_tree(drafts, parents, masks)

    def _fill_chain(self, drafts: Sequence[int], masks: Array) -> None:
        num_taken = 0
        for token in drafts:
            if token in self._ends or not self.advance(token, drafts[:num_taken]):
                break
            num_taken += 1
            if not self._fill(masks[num_taken], drafts[:num_taken]):
                break
        else:
            self._look_ahead(drafts, masks[num_taken])
        self.back(num_taken)

    def _fill_tree(self, drafts: Sequence[int], parents: Sequence[int], masks: Array) -> None:
        walk = _Walk(self, drafts, parents)
        lost: set[int] = set()  # drafts behind which nothing need be known
        for at, (token, parent) in enumerate(zip(drafts, parents, strict=True)):
            if parent in lost or token in self._ends or not (walk.to(at) and self._fill(masks[at + 1], walk.taken())):
                lost.add(at)
        walk.back()

    def _fill(self, mask: Array, drafts: Sequence[int] = ()) -> bool:
        """Whether the mask was found. `drafts`: those behind which the matcher stands. A mask that a lexer was spent on may be found all
        the same, and lack tokens."""
        began = time.thread_time()
        is_found = self._write(mask)
        if self._renew(drafts):
            began = time.thread_time()
            is_found = self._write(mask)
        if self._differ is not None:
            self._differ.strike(mask, drafts)
        seconds = time.thread_time() - began
        if not is_found and drafts:
            self._mend(drafts)
        self.slow = seconds > SLOW_S
        if seconds > MOST_S or not is_found:
            self._overdue += ((tuple(drafts), not is_found),)
        return is_found

    def _write(self, mask: Array) -> bool:
        """Whether the mask was found: where it was not, it allows nothing but an end."""
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._other_ends or self._mutes_eos:
            self._change_ends(mask)
        return not self._matcher.is_error()

    def _look_ahead(self, drafts: Sequence[int], mask: Array) -> None:
        """`mask`: of what may follow the drafts, behind which the matcher stands."""
        if self._ahead is not None and not self.slow:
            self._ahead.look(self._matcher, drafts, mask, self._write, min(self._odds.most, MAX_FORCED) if self.alone else 0)
            self._mend(drafts)

    def allowed(self, drafts: Sequence[int], parents: Sequence[int] | None) -> list[int]:
        """The indices of the drafts that the grammar allows, in rising order; none where it is slow. End tokens are not allowed."""
        if self.ended is not None or self.slow:
            return []
        if parents is None:
            end = next((at for at, token in enumerate(drafts) if token in self._ends), len(drafts))
            num_allowed = self._matcher.validate_tokens(list(drafts[:end]))
            self._mend()
            return list(range(num_allowed))
        walk = _Walk(self, drafts, parents)
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
            tokens: list[int] = self._matcher.compute_ff_tokens()
            self._mend()
            return tokens
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
        return self._matcher.consume_token(token) or (self._renew() and self._matcher.consume_token(token))

    def _differs(self, token: int) -> bool:
        """Advances over a token; whether items that must differ still do."""
        return self._differ is None or self._differ.take(token)

    def advance(self, token: int, drafts: Sequence[int]) -> bool:
        """Moves from behind some drafts over another one. False, and it stays there, if the grammar forbids it. To be taken `back`."""
        if self._matcher.is_stopped():
            return False
        moved = self._matcher.try_consume_tokens([token]) or (self._renew(drafts) and self._matcher.try_consume_tokens([token]))
        if not moved:
            self._mend(drafts)
        return bool(moved)

    def back(self, num_drafts: int) -> None:
        """Takes so many drafts back that it has moved over."""
        if num_drafts:
            self._matcher.rollback(num_drafts)

    def _renew(self, drafts: Sequence[int] = ()) -> bool:
        """If the lexer is spent: goes on with a new one. Whether it does, so that what failed may succeed."""
        begun = self._compiled.renewed(self._lexer)
        if begun is not None:
            self._go_on(begun, drafts)
        return begun is not None

    def _mend(self, drafts: Sequence[int] = ()) -> None:
        """Replaces a matcher in an error, which llguidance never leaves."""
        if self._matcher.is_error():
            self._go_on(self._compiled.renewed(self._lexer) or self._compiled.begin(), drafts)

    def _go_on(self, begun: tuple[LLMatcher, int], drafts: Sequence[int]) -> None:
        """With a matcher at the start, behind the same tokens and drafts."""
        self._matcher, self._lexer = begun
        self._matcher.try_consume_tokens([*self._taken, *drafts])


class _Walk:
    """Moves a matcher from draft to draft of a tree, and finally back to its state."""

    def __init__(self, matcher: Matcher, drafts: Sequence[int], parents: Sequence[int]) -> None:
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
            if not self._matcher.advance(self._drafts[step], self.taken()):
                return False
            self._trail.append(step)
        return True

    def taken(self) -> list[int]:
        """The drafts behind which the matcher stands."""
        return [self._drafts[step] for step in self._trail]

    def back(self) -> None:
        self._back_to(0)

    def _back_to(self, length: int) -> None:
        self._matcher.back(max(len(self._trail) - length, 0))
        del self._trail[length:]

    def _path(self, at: int) -> list[int]:
        path = [at]
        while (parent := self._parents[path[-1]]) >= 0:
            path.append(parent)
        return path[::-1]
