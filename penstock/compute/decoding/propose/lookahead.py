"""Lookahead decoding (Fu et al. 2024, arXiv:2402.02057): the model guesses for itself. Behind the last token stands a window of guesses
that each pass makes better, as in Jacobi iteration; the runs of tokens that the window goes through on its way are kept, and where one of
them begins with the last token, what follows in it is a candidate. The latest is made longer by the run that begins where it ends.
Needs no second model, but many rows: pays where these are nearly free, for a large model, one sequence, many cores.

The window has `n` - 1 levels of `window` guesses each. In the draft tree, level 0 is a chain behind the last token, and from its token i
hangs column i: a chain of the i-th guesses of levels 1, 2, ... What the model chooses at the end of a column is a new guess, and completes
the column to an n-gram, which goes into a pool. So the window's drafts are there to be improved; the drafts that get accepted are the
candidates, n-grams of the pool that begin with the last token: `n` - 1 tokens each, or (1 + `chained`) times as many.
"""
import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.compute.decoding.propose.contract import MAX_DRAFTS, Draftable, Drafts, Host
from penstock.core.needs import Needs
from penstock.core.registry import check_ranges


@dataclass(slots=True)
class TreeBuilder:
    """A draft tree under construction."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)

    def add(self, token: int, parent: int) -> int:
        """Adds a draft and returns its index."""
        self.tokens.append(token)
        self.parents.append(parent)
        return len(self.tokens) - 1

    def child(self, token: int, parent: int) -> int:
        """The index of this child of `parent`, which is added unless it exists."""
        for at, (known, above) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if known == token and above == parent:
                return at
        return self.add(token, parent)


@dataclass(slots=True)
class Window:
    """One sequence's guesses, and its pool of n-grams."""

    levels: list[list[int]]  # [n - 1][window]
    pool: dict[int, OrderedDict[tuple[int, ...], None]] = field(default_factory=dict)  # first token -> the other n - 1, latest last
    num_pooled: int = 0  # tokens of the sequence whose n-grams are in the pool
    proposed: Drafts = field(default_factory=Drafts)
    column_ends: list[int] = field(default_factory=list)  # in `proposed`: the last draft of each column; empty: it has no window


class Lookahead:
    @dataclass(frozen=True, slots=True)
    class Options:
        window: int = 4  # guesses of a level
        n: int = 4  # tokens of an n-gram
        candidates: int = 3  # n-grams that are tried in one step
        chained: int = 1  # n-grams that the latest of them is extended by
        kept: int = 8  # n-grams in the pool for each first token

    needs = Needs(tree_masks=True)

    def __init__(self, options: Options, host: Host | None = None) -> None:
        """Raises UsageError for options out of range."""
        check_ranges("lookahead", options, window=(1, MAX_DRAFTS), n=(2, MAX_DRAFTS), candidates=(1, MAX_DRAFTS), chained=(0, MAX_DRAFTS),
                     kept=(1, MAX_DRAFTS))
        self._options = options
        self._windows: dict[int, Window] = {}  # by sequence

    def lookahead(self) -> int:
        options = self._options
        return (options.window + options.candidates + options.chained) * (options.n - 1)

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        return [self._draft(row) for row in rows]

    def forget(self, seq_id: int) -> None:
        self._windows.pop(seq_id, None)

    def _draft(self, row: Draftable) -> Drafts:
        """Candidates first, then the window if there is room for all of it."""
        window = self._windows.get(row.seq_id)
        if window is None:
            window = self._windows[row.seq_id] = self._first_window(row)
        self._advance(window, row)
        self._pool_tokens(window, row.tokens)
        tree, room = TreeBuilder(), row.room
        for candidate in self._candidates(window, row.tokens[-1]):
            at = -1
            for token in candidate[: room - len(tree.tokens)]:
                at = tree.child(token, at)
        has_room = len(tree.tokens) + self._options.window * (self._options.n - 1) <= room
        window.column_ends = self._add_window(window, tree) if has_room else []
        window.proposed = Drafts(tuple(tree.tokens), tuple(tree.parents))
        return window.proposed

    def _candidates(self, window: Window, last: int) -> list[tuple[int, ...]]:
        """Continuations of the n-grams that begin with the last token, the latest first; the latest is extended by the latest n-gram that
        begins with its own last token."""
        found = list(window.pool.get(last, ()))[: -self._options.candidates - 1 : -1]
        for _ in range(self._options.chained if found else 0):
            if found[0][-1] in window.pool:
                found[0] += next(reversed(window.pool[found[0][-1]]))
        return found

    def _first_window(self, row: Draftable) -> Window:
        """Initial guesses are drawn from the sequence's own tokens, seeded with its id: any will do."""
        rng = random.Random(row.seq_id)
        options = self._options
        return Window([[row.tokens[rng.randrange(len(row.tokens))] for _ in range(options.window)] for _ in range(options.n - 1)])

    def _add_window(self, window: Window, tree: TreeBuilder) -> list[int]:
        """Adds the window's guesses as drafts of their own, and returns the last draft of each column."""
        trunk, columns = -1, []
        for token in window.levels[0]:
            trunk = tree.add(token, trunk)
            columns.append(trunk)
        for level in window.levels[1:]:
            columns = [tree.add(token, at) for token, at in zip(level, columns, strict=True)]
        return columns

    def _advance(self, window: Window, row: Draftable) -> None:
        """Each level takes the guesses of the next one, the last one those that the model chose at the ends of the columns. Then columns
        shift by the number of accepted drafts. The bonus token needs no shift, since each level is one position ahead of the one before."""
        checked = row.checked
        if checked is None or checked.drafts != window.proposed or not checked.choices or not window.column_ends:
            return
        fresh = [checked.choices[1 + end] for end in window.column_ends]
        for column, token in enumerate(fresh):
            ngram = [level[column] for level in window.levels] + [token]
            self._pool(window, ngram[0], tuple(ngram[1:]))
        shift = min(len(checked.path), self._options.window - 1)
        levels = [*window.levels[1:], fresh]
        window.levels = [[*level[shift:], *fresh[:shift]] for level in levels]

    def _pool_tokens(self, window: Window, tokens: Sequence[int]) -> None:
        """Adds the n-grams of the sequence itself."""
        size = self._options.n
        for end in range(max(window.num_pooled, size - 1), len(tokens)):
            self._pool(window, tokens[end - size + 1], tuple(tokens[end - size + 2 : end + 1]))
        window.num_pooled = len(tokens)

    def _pool(self, window: Window, first: int, others: tuple[int, ...]) -> None:
        ngrams = window.pool.setdefault(first, OrderedDict())
        ngrams[others] = None
        ngrams.move_to_end(others)
        if len(ngrams) > self._options.kept:
            ngrams.popitem(last=False)
