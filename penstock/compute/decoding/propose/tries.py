"""What `suffix` knows: tries of the runs of tokens that it has seen, and the guesses that follow from them. The native module has the same
in csrc/drafts; this is its meaning, and what is used where it was not built."""
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

Row = tuple[int, Sequence[int], int]  # a sequence, its tokens since the last call, drafts at most


class Tries(Protocol):
    """Of each sequence that goes on a trie of its tokens, and of each salt one of the outputs of all that have it."""

    def begin(self, seq_id: int, num_prompt: int, salt: str) -> None:
        """A sequence that is not known yet; the first of its tokens will be the prompt's."""
        ...

    def guess(self, rows: Sequence[Row]) -> list[tuple[int, ...]]:
        """What is likely to follow in each. All new tokens are learned before any guess is made."""
        ...

    def forget(self, seq_id: int) -> None:
        """The sequence has ended. Unknown ids are ignored."""
        ...


def best_tries(depth: int, likely: float, doubt: float, remembered: int) -> Tries:
    """The native ones where they were built."""
    try:
        from penstock import _native
    except ImportError:
        return PythonTries(depth, likely, doubt, remembered)
    form = _native.Tries if hasattr(_native, "Tries") else PythonTries
    made: Tries = form(depth, likely, doubt, remembered)
    return made


class Node:
    """A run of tokens: how often it was seen, and what came next."""

    __slots__ = ("children", "count")

    def __init__(self) -> None:
        self.children: dict[int, Node] = {}
        self.count = 0


class Trie:
    """Every run of up to `depth` tokens of some texts."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._root = Node()

    def is_empty(self) -> bool:
        return not self._root.children

    def add(self, token: int, ends: list[Node]) -> list[Node]:
        """A token joins a text. `ends`: the runs at the text's end, the longest first, as the last call for it gave them; none at first."""
        grown = []
        for node in (*(ends[1:] if len(ends) == self.depth else ends), self._root):
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = Node()
            child.count += 1
            grown.append(child)
        return grown

    def remove(self, tokens: Sequence[int]) -> None:
        """Takes back a whole text."""
        for start in range(len(tokens)):
            node = self._root
            for token in tokens[start : start + self.depth]:
                child = node.children[token]
                child.count -= 1
                if not child.count:
                    del node.children[token]  # what lies below was seen no more often
                    break
                node = child

    def longest(self, tokens: Sequence[int]) -> tuple[Node | None, int]:
        """The longest end of `tokens` that something is known to follow, and its size."""
        for size in range(min(self.depth - 1, len(tokens)), 0, -1):
            node = self._find(tokens[len(tokens) - size :])
            if node is not None and node.children:
                return node, size
        return None, 0

    def _find(self, run: Sequence[int]) -> Node | None:
        node = self._root
        for token in run:
            child = node.children.get(token)
            if child is None:
                return None
            node = child
        return node


def follow(trie: Trie, tokens: Sequence[int], most: int, likely: float, doubt: float) -> tuple[tuple[int, ...], float]:
    """(drafts, how many of them are expected to be right): downwards along the commonest tokens, the lowest id among equals; below the
    longest runs, on from the longest end that something is known to follow. After a run of n tokens that was followed m times, doubt / n of
    m + doubt / n are taken to be something else."""
    drafts: list[int] = []
    share, expected = 1.0, 0.0
    node, size = trie.longest(tokens)
    while len(drafts) < most:
        if size == trie.depth:
            node, size = trie.longest([*tokens[-trie.depth :], *drafts])
        if node is None or not node.children:
            break
        total = sum(child.count for child in node.children.values())
        token, child = min(node.children.items(), key=lambda item: (-item[1].count, item[0]))
        share *= child.count / (total + doubt / size)
        if share < likely:
            break
        drafts.append(token)
        expected += share
        node, size = child, size + 1
    return tuple(drafts), expected


@dataclass(slots=True)
class Live:
    """A sequence that goes on: its own trie, and where its end stands in both."""

    own: Trie
    all: Trie  # of its salt
    salt: str
    num_prompt: int
    tokens: list[int] = field(default_factory=list)
    own_ends: list[Node] = field(default_factory=list)
    all_ends: list[Node] = field(default_factory=list)  # of its output


class PythonTries:
    """See `Tries`."""

    def __init__(self, depth: int, likely: float, doubt: float, remembered: int) -> None:
        self._depth, self._likely, self._doubt, self._remembered = depth, likely, doubt, remembered
        self._all: dict[str, Trie] = {}  # by salt
        self._live: dict[int, Live] = {}
        self._ended: deque[tuple[str, list[int]]] = deque()  # salt and output
        self._num_ended = 0

    def begin(self, seq_id: int, num_prompt: int, salt: str) -> None:
        told = self._all.setdefault(salt, Trie(self._depth))
        self._live[seq_id] = Live(Trie(self._depth), told, salt, num_prompt)

    def guess(self, rows: Sequence[Row]) -> list[tuple[int, ...]]:
        for seq_id, tokens, _ in rows:
            self._learn(self._live[seq_id], tokens)
        return [self._follow(self._live[seq_id], most) for seq_id, _, most in rows]

    def forget(self, seq_id: int) -> None:
        live = self._live.pop(seq_id, None)
        if live is None:
            return
        output = live.tokens[live.num_prompt :]
        if output:
            self._ended.append((live.salt, output))
            self._num_ended += len(output)
        self._tidy(live.salt)
        while self._num_ended > self._remembered:
            salt, oldest = self._ended.popleft()
            self._num_ended -= len(oldest)
            self._all[salt].remove(oldest)
            self._tidy(salt)

    def _tidy(self, salt: str) -> None:
        if self._all[salt].is_empty() and all(each.salt != salt for each in self._live.values()):
            del self._all[salt]

    def _learn(self, live: Live, tokens: Sequence[int]) -> None:
        for token in tokens:
            live.own_ends = live.own.add(token, live.own_ends)
            if len(live.tokens) >= live.num_prompt:
                live.all_ends = live.all.add(token, live.all_ends)
            live.tokens.append(token)

    def _follow(self, live: Live, most: int) -> tuple[int, ...]:
        own, own_expected = follow(live.own, live.tokens, most, self._likely, self._doubt)
        told, told_expected = follow(live.all, live.tokens, most, self._likely, self._doubt)
        return own if own_expected >= told_expected else told
