"""Suffix decoding (Oliaro et al. 2024, arXiv:2411.04975): what followed the last tokens before, in this sequence and in what the server
wrote lately, weighted by how often it did. Pays where jobs repeat themselves: agents, edits, templates.

Two tries hold every run of up to `depth` tokens with the number of times it was seen: one of the sequence itself, prompt and output, and
one of the outputs of all that have its salt. The longest end of the sequence that a trie knows is followed downwards along the commonest
tokens, as long as the whole guess is likely enough; the trie whose guess promises more tokens is believed.
"""
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.compute.decoding.propose.contract import Draftable, Drafts
from penstock.core.errors import UsageError
from penstock.core.needs import Needs


@dataclass(frozen=True, slots=True)
class Options:
    k: int = 8  # drafts
    depth: int = 16  # tokens of the longest run that is remembered
    likely: float = 0.3  # of a guess from its beginning to any of its tokens, at least
    remembered: int = 100_000  # output tokens of ended sequences


class Node:
    """A run of tokens: how often it was seen, and what came next."""

    __slots__ = ("children", "count")

    def __init__(self) -> None:
        self.children: dict[int, Node] = {}
        self.count = 0


class Trie:
    """Every run of up to `depth` tokens of some texts."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._root = Node()

    def is_empty(self) -> bool:
        return not self._root.children

    def add(self, token: int, ends: list[Node]) -> list[Node]:
        """A token joins a text. `ends`: the runs at the text's end, the longest first, as the last call for it gave them; none at first."""
        grown = []
        for node in (*(ends[1:] if len(ends) == self._depth else ends), self._root):
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
            for token in tokens[start : start + self._depth]:
                child = node.children[token]
                child.count -= 1
                if not child.count:
                    del node.children[token]  # what lies below was seen no more often
                    break
                node = child

    def longest(self, tokens: Sequence[int]) -> Node | None:
        """The longest end of `tokens` that something is known to follow."""
        for size in range(min(self._depth - 1, len(tokens)), 0, -1):
            node: Node | None = self._root
            for token in tokens[len(tokens) - size :]:
                node = node.children.get(token)
                if node is None:
                    break
            if node is not None and node.children:
                return node
        return None


def follow(node: Node | None, most: int, likely: float) -> tuple[tuple[int, ...], float]:
    """(drafts, how many of them are expected to be right): downwards along the commonest tokens, the lowest id among equals."""
    drafts: list[int] = []
    share, expected = 1.0, 0.0
    while node is not None and len(drafts) < most and node.children:
        total = sum(child.count for child in node.children.values())
        token, child = min(node.children.items(), key=lambda item: (-item[1].count, item[0]))
        share *= child.count / total
        if share < likely:
            break
        drafts.append(token)
        expected += share
        node = child
    return tuple(drafts), expected


@dataclass(slots=True)
class Live:
    """A sequence that goes on: its own trie, and where its end stands in both."""

    own: Trie
    all: Trie  # of its salt
    salt: str
    num_known: int = 0  # tokens that were added
    own_ends: list[Node] = field(default_factory=list)
    all_ends: list[Node] = field(default_factory=list)  # of its output
    output: list[int] = field(default_factory=list)


class Suffix:
    Options = Options
    needs = Needs()

    def __init__(self, options: Options) -> None:
        """Raises UsageError for options without sense."""
        if options.k < 1 or options.depth < 2 or not 0 <= options.likely <= 1 or options.remembered < 0:
            raise UsageError("suffix: k is at least 1, depth at least 2, likely between 0 and 1, and remembered not below 0")
        self._options = options
        self._all: dict[str, Trie] = {}  # by salt
        self._live: dict[int, Live] = {}
        self._ended: deque[tuple[str, list[int]]] = deque()  # salt and output
        self._num_ended = 0

    def lookahead(self) -> int:
        return self._options.k

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        for row in rows:
            self._learn(row)
        return [Drafts(self._guess(row)) for row in rows]

    def forget(self, seq_id: int) -> None:
        live = self._live.pop(seq_id, None)
        if live is None:
            return
        self._ended.append((live.salt, live.output))
        self._num_ended += len(live.output)
        while self._num_ended > self._options.remembered:
            salt, oldest = self._ended.popleft()
            self._num_ended -= len(oldest)
            self._all[salt].remove(oldest)
            if self._all[salt].is_empty() and all(each.salt != salt for each in self._live.values()):
                del self._all[salt]

    def _learn(self, row: Draftable) -> None:
        live = self._live.get(row.seq_id)
        if live is None:
            told = self._all.setdefault(row.salt, Trie(self._options.depth))
            live = self._live[row.seq_id] = Live(Trie(self._options.depth), told, row.salt)
        for at in range(live.num_known, len(row.tokens)):
            token = row.tokens[at]
            live.own_ends = live.own.add(token, live.own_ends)
            if at >= row.num_prompt:
                live.all_ends = live.all.add(token, live.all_ends)
                live.output.append(token)
        live.num_known = len(row.tokens)

    def _guess(self, row: Draftable) -> tuple[int, ...]:
        most, likely, live = min(self._options.k, row.room), self._options.likely, self._live[row.seq_id]
        own, own_expected = follow(next((node for node in live.own_ends if node.children), None), most, likely)
        told, told_expected = follow(live.all.longest(row.tokens), most, likely)
        return own if own_expected >= told_expected else told
