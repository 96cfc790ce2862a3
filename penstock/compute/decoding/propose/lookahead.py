"""Lookahead decoding (Fu et al. 2024, arXiv:2402.02057): the model guesses for itself. Behind the last token stands a window of guesses
that each pass makes better, as in Jacobi iteration; the runs of tokens that the window goes through on its way are kept, and where one of
them begins with the last token, what follows in it is a candidate. The latest is made longer by the run that begins where it ends.
Needs no second model, but many rows: pays where these are nearly free, for a large model, one sequence, many cores.

The window has `n` - 1 levels of `window` guesses. Level 0 is a chain behind the last token; from its column i hangs the chain of level 1,
2, ... of column i, so that the model's choice at the end of column i is the next guess there, and the whole column with it a run of `n`.
These guesses are made to be corrected: what is accepted are candidates, of `n` - 1 tokens, or (1 + `chained`) times as many.
"""
import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.compute.decoding.propose.contract import MOST, Draftable, Drafts, Host
from penstock.core.needs import Needs
from penstock.core.registry import check_ranges


@dataclass(slots=True)
class Growing:
    """A draft tree while it is made."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)

    def add(self, token: int, parent: int) -> int:
        self.tokens.append(token)
        self.parents.append(parent)
        return len(self.tokens) - 1

    def child(self, token: int, parent: int) -> int:
        """A new draft after `parent`, or the one that is there."""
        for at, (known, above) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if known == token and above == parent:
                return at
        return self.add(token, parent)


@dataclass(slots=True)
class Window:
    """One sequence's guesses, and the runs that were seen in it."""

    levels: list[list[int]]  # [n - 1][window]
    runs: dict[int, OrderedDict[tuple[int, ...], None]] = field(default_factory=dict)  # first token -> what followed, the latest last
    num_read: int = 0  # tokens of the sequence whose runs are kept
    offered: Drafts = field(default_factory=Drafts)
    ends: list[int] = field(default_factory=list)  # in `offered`: the last draft of each column


class Lookahead:
    @dataclass(frozen=True, slots=True)
    class Options:
        window: int = 4  # guesses of a level
        n: int = 4  # tokens of a run
        candidates: int = 3  # runs that are tried at once
        chained: int = 1  # runs that the latest of them is made longer by
        kept: int = 8  # runs that are kept for each token that begins one

    needs = Needs(tree_masks=True)

    def __init__(self, options: Options, host: Host | None = None) -> None:
        """Raises UsageError for options without sense."""
        check_ranges("lookahead", options, window=(1, MOST), n=(2, MOST), candidates=(1, MOST), chained=(0, MOST), kept=(1, MOST))
        self._options = options
        self._windows: dict[int, Window] = {}

    def lookahead(self) -> int:
        options = self._options
        return (options.window + options.candidates + options.chained) * (options.n - 1)

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        return [self._guess(row) for row in rows]

    def forget(self, seq_id: int) -> None:
        self._windows.pop(seq_id, None)

    def _guess(self, row: Draftable) -> Drafts:
        window = self._windows.get(row.seq_id)
        if window is None:
            window = self._windows[row.seq_id] = self._begin(row)
        self._advance(window, row)
        self._read(window, row.tokens)
        tree, room = Growing(), row.room
        for run in self._candidates(window, row.tokens[-1]):
            at = -1
            for token in run[: room - len(tree.tokens)]:
                at = tree.child(token, at)
        window.ends = self._hang(window, tree) if len(tree.tokens) + self._options.window * (self._options.n - 1) <= room else []
        window.offered = Drafts(tuple(tree.tokens), tuple(tree.parents))
        return window.offered

    def _candidates(self, window: Window, last: int) -> list[tuple[int, ...]]:
        """What followed the last token in the runs that begin with it, the latest first."""
        found = list(window.runs.get(last, ()))[: -self._options.candidates - 1 : -1]
        for _ in range(self._options.chained if found else 0):
            if found[0][-1] in window.runs:
                found[0] += next(reversed(window.runs[found[0][-1]]))
        return found

    def _begin(self, row: Draftable) -> Window:
        """Guesses of the sequence's own tokens, drawn by its id: any will do."""
        numbers = random.Random(row.seq_id)
        options = self._options
        return Window([[row.tokens[numbers.randrange(len(row.tokens))] for _ in range(options.window)] for _ in range(options.n - 1)])

    def _hang(self, window: Window, tree: Growing) -> list[int]:
        """The window's guesses as drafts of their own; the last of each column."""
        trunk, columns = -1, []
        for token in window.levels[0]:
            trunk = tree.add(token, trunk)
            columns.append(trunk)
        for level in window.levels[1:]:
            columns = [tree.add(token, at) for token, at in zip(level, columns, strict=True)]
        return columns

    def _advance(self, window: Window, row: Draftable) -> None:
        """Takes in what the model chose at the ends of the columns, and moves the window as far as the sequence has come."""
        checked = row.checked
        if checked is None or checked.drafts != window.offered or not checked.choices or not window.ends:
            return
        fresh = [checked.choices[1 + end] for end in window.ends]
        for column, token in enumerate(fresh):
            run = [level[column] for level in window.levels] + [token]
            self._keep(window, run[0], tuple(run[1:]))
        gone = min(len(checked.path), self._options.window - 1)  # the first column stands behind one token more with every pass
        levels = [*window.levels[1:], fresh]
        window.levels = [[*level[gone:], *fresh[:gone]] for level in levels]

    def _read(self, window: Window, tokens: Sequence[int]) -> None:
        """Keeps the runs of the sequence itself."""
        size = self._options.n
        for end in range(max(window.num_read, size - 1), len(tokens)):
            self._keep(window, tokens[end - size + 1], tuple(tokens[end - size + 2 : end + 1]))
        window.num_read = len(tokens)

    def _keep(self, window: Window, first: int, rest: tuple[int, ...]) -> None:
        runs = window.runs.setdefault(first, OrderedDict())
        runs[rest] = None
        runs.move_to_end(rest)
        if len(runs) > self._options.kept:
            runs.popitem(last=False)
