"""The index of suffix.py: tries that count n-grams, and the drafts that are read from them.

csrc/drafts/tries.h implements the same in C++. This module specifies it, and replaces it where the native module was not built.
"""
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.compute.decoding.propose.native import native_or

Row = tuple[int, Sequence[int], int]  # sequence id, its tokens since the last call, maximum number of drafts


class Tries(Protocol):
    """One trie per live sequence, of its prompt and output, and one per salt, of the outputs of all sequences with that salt."""

    def begin(self, seq_id: int, num_prompt: int, salt: bytes) -> None:
        """Adds a sequence. The first `num_prompt` of the tokens passed to `guess` are its prompt."""
        ...

    def guess(self, rows: Sequence[Row]) -> list[tuple[int, ...]]:
        """Adds the new tokens of all rows, then returns the drafts for each."""
        ...

    def end(self, seq_id: int, tokens: Sequence[int]) -> None:
        """Adds the last tokens of a sequence that has ended to the trie of its salt alone, and forgets the sequence."""
        ...

    def forget(self, seq_id: int) -> None:
        """Ends a sequence: its trie is dropped, its output stays in the trie of its salt for a while. Unknown ids are ignored."""
        ...


def best_tries(depth: int, likely: float, doubt: float, remembered: int) -> Tries:
    """The native implementation if it was built, otherwise the one in Python. Parameters: see `Suffix.Options`."""
    return native_or(PythonTries, "Tries")(depth, likely, doubt, remembered)


class Node:
    """An n-gram: how often it was seen, and by next token the n-grams that are one token longer."""

    __slots__ = ("children", "count")

    def __init__(self) -> None:
        self.children: dict[int, Node] = {}
        self.count = 0


class Trie:
    """Counts every n-gram of up to `depth` tokens in a set of texts."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._root = Node()

    def is_empty(self) -> bool:
        return not self._root.children

    def add(self, token: int, ends: list[Node]) -> list[Node]:
        """Appends a token to a text. `ends`: the nodes of the n-grams at the text's end, longest first, as returned by the last call for
        this text; [] for a new text. Returns the same after the token."""
        grown = []
        for node in (*(ends[1:] if len(ends) == self.depth else ends), self._root):
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = Node()
            child.count += 1
            grown.append(child)
        return grown

    def remove(self, tokens: Sequence[int]) -> None:
        """Removes a whole text."""
        for start in range(len(tokens)):
            node = self._root
            for token in tokens[start : start + self.depth]:
                child = node.children[token]
                child.count -= 1
                if not child.count:
                    del node.children[token]  # longer n-grams were seen no more often
                    break
                node = child

    def longest(self, tokens: Sequence[int]) -> tuple[Node | None, int]:
        """The node of the longest suffix of `tokens` that has children, and the suffix's length; (None, 0) if there is none."""
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


def follow(trie: Trie, tokens: Sequence[int], max_drafts: int, likely: float, doubt: float) -> tuple[tuple[int, ...], float]:
    """Returns (drafts, expected number of accepted drafts).

    From the node of the longest suffix down, follows the most frequent next token, the lowest id among equals. A token that was seen c
    times after an n-gram of n tokens that was continued m times has the probability c / (m + doubt / n). N-grams of `depth` tokens have no
    children: from there it continues at the longest suffix that has some.
    """
    drafts: list[int] = []
    probability, expected = 1.0, 0.0  # of all drafts so far
    node, size = trie.longest(tokens)
    while len(drafts) < max_drafts:
        if size == trie.depth:
            node, size = trie.longest([*tokens[-trie.depth :], *drafts])
        if node is None or not node.children:
            break
        total = sum(child.count for child in node.children.values())
        token, child = min(node.children.items(), key=lambda item: (-item[1].count, item[0]))
        probability *= child.count / (total + doubt / size)
        if probability < likely:
            break
        drafts.append(token)
        expected += probability
        node, size = child, size + 1
    return tuple(drafts), expected


@dataclass(slots=True)
class Live:
    """A live sequence, its own trie and that of its salt, and in both the nodes of the n-grams at its end (see `Trie.add`)."""

    own: Trie
    shared: Trie  # of its salt
    salt: bytes
    num_prompt: int
    tokens: list[int] = field(default_factory=list)
    own_ends: list[Node] = field(default_factory=list)
    shared_ends: list[Node] = field(default_factory=list)  # of its output only

    def add_shared(self, token: int) -> None:
        if len(self.tokens) >= self.num_prompt:
            self.shared_ends = self.shared.add(token, self.shared_ends)
        self.tokens.append(token)


class PythonTries:
    """`Tries` in Python."""

    def __init__(self, depth: int, likely: float, doubt: float, remembered: int) -> None:
        self._depth, self._likely, self._doubt, self._remembered = depth, likely, doubt, remembered
        self._shared: dict[bytes, Trie] = {}  # by salt
        self._live: dict[int, Live] = {}
        self._ended: deque[tuple[bytes, list[int]]] = deque()  # salt and output, oldest first
        self._num_ended = 0  # output tokens in `_ended`

    def begin(self, seq_id: int, num_prompt: int, salt: bytes) -> None:
        shared = self._shared.setdefault(salt, Trie(self._depth))
        self._live[seq_id] = Live(Trie(self._depth), shared, salt, num_prompt)

    def guess(self, rows: Sequence[Row]) -> list[tuple[int, ...]]:
        for seq_id, tokens, _ in rows:
            self._add(self._live[seq_id], tokens)
        return [self._guess_one(self._live[seq_id], max_drafts) for seq_id, _, max_drafts in rows]

    def end(self, seq_id: int, tokens: Sequence[int]) -> None:
        live = self._live[seq_id]
        for token in tokens:
            live.add_shared(token)
        self.forget(seq_id)

    def forget(self, seq_id: int) -> None:
        live = self._live.pop(seq_id, None)
        if live is None:
            return
        output = live.tokens[live.num_prompt :]
        if output:
            self._ended.append((live.salt, output))
            self._num_ended += len(output)
        self._drop_unused(live.salt)
        while self._num_ended > self._remembered:
            salt, oldest = self._ended.popleft()
            self._num_ended -= len(oldest)
            self._shared[salt].remove(oldest)
            self._drop_unused(salt)

    def _drop_unused(self, salt: bytes) -> None:
        if self._shared[salt].is_empty() and all(each.salt != salt for each in self._live.values()):
            del self._shared[salt]

    def _add(self, live: Live, tokens: Sequence[int]) -> None:
        for token in tokens:
            live.own_ends = live.own.add(token, live.own_ends)
            live.add_shared(token)

    def _guess_one(self, live: Live, max_drafts: int) -> tuple[int, ...]:
        own, own_expected = follow(live.own, live.tokens, max_drafts, self._likely, self._doubt)
        shared, shared_expected = follow(live.shared, live.tokens, max_drafts, self._likely, self._doubt)
        return own if own_expected >= shared_expected else shared
