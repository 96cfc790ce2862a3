"""Lookahead decoding (Fu et al. 2024, arXiv:2402.02057): the target model itself generates n-grams by Jacobi iteration on a window of
guesses for the next tokens, and collects them in a pool; n-grams of the pool that begin with the last token are proposed. Needs no second
model, but many draft rows: `window` * (`n` - 1) for the window, besides those of the proposed n-grams. Helps only where additional rows are
nearly free: a large model, one sequence, many cores.

The window has `n` - 1 levels of `window` guesses each. In the draft tree, level 0 is a chain that follows the last token, and column i is a
chain that follows token i of level 0: the i-th guesses of levels 1, 2, ... The token that the target chooses after the last guess of a
column is a new guess, and completes the column to an n-gram for the pool. So the window's drafts serve to find n-grams; the drafts that are
meant to be accepted are the candidates: the latest n-grams of the pool that begin with the last token, without that token, `n` - 1 drafts
each. The latest candidate is extended `chained` times, by the latest n-gram that begins with its last token.
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
        """Adds a draft. Returns its index."""
        self.tokens.append(token)
        self.parents.append(parent)
        return len(self.tokens) - 1

    def child(self, token: int, parent: int) -> int:
        """The index of the draft `token` that follows `parent`; it is added if there is none."""
        for at, (known, above) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if known == token and above == parent:
                return at
        return self.add(token, parent)


@dataclass(slots=True)
class Window:
    """The window and the n-gram pool of one sequence."""

    levels: list[list[int]]  # [n - 1][window]
    pool: dict[int, OrderedDict[tuple[int, ...], None]] = field(default_factory=dict)  # first token -> the other n - 1, latest last
    num_pooled: int = 0  # tokens of the sequence whose n-grams are in the pool
    proposed: Drafts = field(default_factory=Drafts)
    column_ends: list[int] = field(default_factory=list)  # indices in `proposed` of the last draft of each column; empty: it has no window


class Lookahead:
    @dataclass(frozen=True, slots=True)
    class Options:
        window: int = 4  # guesses per level
        n: int = 4  # length of n-grams, in tokens
        candidates: int = 3  # n-grams that are proposed in one step
        chained: int = 1  # n-grams by which the latest of these is extended
        kept: int = 8  # n-grams in the pool per first token

    needs = Needs(tree_masks=True, verified_drafts=True)

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
        """The candidates, then the window if there is room for all of it."""
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
        """What follows the last token in the pool's n-grams, latest first. The latest is extended as the module's docstring says."""
        found = list(window.pool.get(last, ()))[: -self._options.candidates - 1 : -1]
        for _ in range(self._options.chained if found else 0):
            if found[0][-1] in window.pool:
                found[0] += next(reversed(window.pool[found[0][-1]]))
        return found

    def _first_window(self, row: Draftable) -> Window:
        """The initial guesses are drawn from the sequence's own tokens, with its id as seed. Their quality does not matter."""
        rng = random.Random(row.seq_id)
        options = self._options
        return Window([[row.tokens[rng.randrange(len(row.tokens))] for _ in range(options.window)] for _ in range(options.n - 1)])

    def _add_window(self, window: Window, tree: TreeBuilder) -> list[int]:
        """Adds the window's guesses to the tree, never shared with a candidate. Returns the index of the last draft of each column."""
        trunk, columns = -1, []
        for token in window.levels[0]:
            trunk = tree.add(token, trunk)
            columns.append(trunk)
        for level in window.levels[1:]:
            columns = [tree.add(token, at) for token, at in zip(level, columns, strict=True)]
        return columns

    def _advance(self, window: Window, row: Draftable) -> None:
        """One Jacobi iteration: each level takes the guesses of the next level, and the last level those that the target chose after the
        columns. Then the columns shift by the number of accepted drafts. The bonus token needs no shift, since the guesses of a level are
        for positions one further than those of the level before."""
        verification = row.verification
        if verification is None or verification.drafts != window.proposed or not verification.choices or not window.column_ends:
            return
        fresh = [verification.choices[1 + end] for end in window.column_ends]
        for column, token in enumerate(fresh):
            ngram = [level[column] for level in window.levels] + [token]
            self._pool(window, ngram[0], tuple(ngram[1:]))
        shift = min(len(verification.path), self._options.window - 1)
        levels = [*window.levels[1:], fresh]
        window.levels = [[*level[shift:], *fresh[:shift]] for level in levels]

    def _pool_tokens(self, window: Window, tokens: Sequence[int]) -> None:
        """Adds the n-grams that have come into the sequence since the last call."""
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
