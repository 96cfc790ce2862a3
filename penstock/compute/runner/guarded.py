"""Drafting that cannot end the engine: what a proposer or a controller raises, and drafts that no step could verify, end only the
drafting."""
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from penstock.compute.decoding.propose.contract import Draftable, Drafts, Proposer

log = logging.getLogger("penstock.engine")
F = TypeVar("F", bound=Callable[..., Any])
LOST = "failed: %s: %s; nothing is drafted any more, and answers stay the same"


class Guarded:
    """`propose` and `forget` of a proposer. Once it has failed it is not called again: there are no drafts, and nothing to forget.

    It fails by raising anything, MemoryError too, and by drafts that cannot be rows of a step: for another number of sequences, outside the
    vocabulary, after a parent that is not before them, or as a tree although it did not ask for tree masks.
    """

    def __init__(self, proposer: Proposer, vocab_size: int) -> None:
        self.has_failed = False
        self._proposer = proposer
        self._vocab_size = vocab_size

    def propose(self, rows: Sequence[Draftable]) -> Sequence[Drafts]:
        if self.has_failed:
            return [Drafts()] * len(rows)
        try:
            found = self._proposer.propose(rows)
            if len(found) != len(rows):
                raise ValueError(f"it made drafts for {len(found)} sequences, but was asked for {len(rows)}")
            for drafts in found:
                if drafts.tokens:
                    check(drafts, self._vocab_size, self._proposer.needs.tree_masks)
            return found
        except Exception as error:
            self._fail(error)
            return [Drafts()] * len(rows)

    def forget(self, seq_id: int) -> None:
        if self.has_failed:
            return
        try:
            self._proposer.forget(seq_id)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.has_failed = True
        log.error(f"the proposer %s {LOST}", type(self._proposer).__name__, type(error).__name__, error, exc_info=error)


def or_else(default: Any) -> Callable[[F], F]:
    """Of a Drafter's method: once one of them has raised anything, it returns `default`."""

    def guarded(method: F) -> F:
        @functools.wraps(method)
        def call(drafter: Any, *given: Any) -> Any:
            if drafter.is_lost:
                return default
            try:
                return method(drafter, *given)
            except Exception as error:
                drafter.is_lost = True
                log.error(f"drafting {LOST}", type(error).__name__, error, exc_info=error)
                return default

        return cast(F, call)

    return guarded


def check(drafts: Drafts, vocab_size: int, tree_masks: bool) -> None:
    """Raises ValueError for drafts that cannot be a step's rows. `tree_masks`: whether the backend is known to have them."""
    tokens, parents = drafts.tokens, drafts.parents
    if min(tokens) < 0 or max(tokens) >= vocab_size:
        wrong = next(token for token in tokens if not 0 <= token < vocab_size)
        raise ValueError(f"it drafted the token {wrong} of a vocabulary of {vocab_size}")
    if parents is None:
        return
    if len(parents) != len(tokens):
        raise ValueError(f"it named {len(parents)} parents of {len(tokens)} drafts")
    for draft, parent in enumerate(parents):
        if not -1 <= parent < draft:
            raise ValueError(f"its draft {draft} follows draft {parent}, which is not before it")
        if parent != draft - 1 and not tree_masks:
            raise ValueError("it drafted a tree, but its needs do not name tree_masks")
