"""Translates a parsed regex to the set of strings that it matches; anchors and lookaround become operations on sets.

Meanwhile the edges of a string are special characters: before it as many as the regex may have `^` in a row, each of which consumes one,
and after it as many as it may have `$`. They are removed in the end, by derivatives from the left and from the right (derive.py).
"""
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.compute.decoding.grammar.effort import PATTERNS, Effort
from penstock.compute.decoding.grammar.patterns import chars
from penstock.compute.decoding.grammar.patterns.automaton import size
from penstock.compute.decoding.grammar.patterns.derive import left, nullable, right
from penstock.compute.decoding.grammar.patterns.syntax import (
    Edge,
    Either,
    Look,
    Node,
    PatternError,
    Reader,
    Repeat,
    Row,
    Set,
    WordEdge,
)
from penstock.compute.decoding.grammar.patterns.tree import (
    ANYTHING,
    EMPTY,
    Alt,
    Both,
    Chars,
    Other,
    Rep,
    Seq,
    Tree,
    alt,
    both,
    other,
    rep,
    seq,
    shortest,
)
from penstock.compute.decoding.grammar.syntax import MOST_NEEDED

MOST_NODES = 100_000  # of the tree of one pattern
A_CHARACTER = 12  # steps per character of a pattern that is parsed
A_NODE = 12  # steps per node from which an edge is removed

BEGIN, END = -2, -1  # the edges, as code points that no character has
BEGINS, ENDS = Chars(((BEGIN, BEGIN),)), Chars(((END, END),))
BREAK = Chars(((10, 10),))
ALL = rep(Chars(chars.union((*chars.EVERY, (BEGIN, END)))), 0, None)
BEFORE = alt([rep(BEGINS, 0, None), seq([rep(BEGINS, 1, None), ANYTHING])])  # before a match, which may consume the remaining beginnings
REST = alt([rep(ENDS, 0, None), seq([ANYTHING, rep(ENDS, 1, None)])])  # after a match, which may have consumed some of the ends


def matching(pattern: str, widely: bool, effort: Effort) -> Tree:
    """The strings in which the pattern is found: by all dialects of regexes, or, `widely`, by any of them. Raises PatternError."""
    node = read(pattern, widely, effort)
    tree = Following(widely, effort, "a group of a pattern").row(BEFORE, node.items if isinstance(node, Row) else (node,), REST)
    return writable(without_edges(tree, node, effort))


def whole(pattern: str, effort: Effort) -> Tree:
    """The strings that the pattern matches from beginning to end. Raises PatternError."""
    node = read(pattern, False, effort)
    tree = seq([rep(BEGINS, 0, None), Following(False, effort, "a regex").of(node, rep(ENDS, 0, None))])
    return writable(without_edges(tree, node, effort))


def read(pattern: str, widely: bool, effort: Effort) -> Node:
    effort.spend(A_CHARACTER * len(pattern), PATTERNS)
    return Reader(pattern, widely, effort).read()


def writable(tree: Tree) -> Tree:
    """The tree itself. Raises PatternError if it has too many nodes, or if its shortest string is too long: llguidance follows forced text
    character by character."""
    if (nodes := size(tree)) > MOST_NODES:
        raise PatternError(f"a pattern of {nodes:,} parts is too large; at most {MOST_NODES:,} are read")
    if (length := shortest(tree)) > MOST_NEEDED:
        raise PatternError(f"a pattern whose texts have at least {length:,} characters is not obeyed; at most {MOST_NEEDED:,} are needed")
    return tree


def without_edges(tree: Tree, node: Node, effort: Effort) -> Tree:
    """Removes the edges from a set of strings that have as many as `node` may consume."""
    for _ in range(max(1, most_edges(node, begins=True))):
        tree = left(tree, BEGIN, effort)
    tree = within(tree, BEGIN, effort)
    for _ in range(max(1, most_edges(node, begins=False))):
        tree = right(tree, END, effort)
    return within(tree, END, effort)


def most_edges(node: Node, begins: bool) -> int:
    """The maximum number of anchors of one kind in a row."""
    if isinstance(node, Edge):
        return int(node.begins is begins)
    if isinstance(node, Row):
        return sum(most_edges(item, begins) for item in node.items)
    if isinstance(node, Either):
        return max(most_edges(item, begins) for item in node.items)
    return most_edges(node.item, begins) if isinstance(node, Repeat | Look) else 0


@dataclass(frozen=True, slots=True)
class Following:
    """Translates nodes, given the set `then` of what follows them up to the end of the string. `inside`: how errors name a part whose
    preceding text is unknown. Its methods raise PatternError for nodes that are not supported there."""

    widely: bool
    effort: Effort
    inside: str

    @property
    def ends(self) -> Tree:
        """What `$` consumes: in Python also a line break before the end."""
        return alt([ENDS, seq([BREAK, ENDS])]) if self.widely else ENDS

    def of(self, node: Node, then: Tree) -> Tree:
        """The node followed by `then`."""
        if is_alone(node):
            return seq([plain(node), then])
        if isinstance(node, Edge):
            return seq([BEGINS if node.begins else self.ends, then])
        if isinstance(node, Look) and not node.behind and most_edges(node.item, begins=True):
            raise PatternError("a pattern that looks ahead for its beginning cannot be obeyed")
        if isinstance(node, Look) and not node.behind:
            ahead = self._inside(node).of(node.item, REST)
            return both([other(ahead) if node.negative else ahead, then])
        if isinstance(node, Look | WordEdge):
            raise self._unseen(node)
        if isinstance(node, Either):
            return alt([self.of(item, then) for item in node.items])
        if isinstance(node, Repeat):
            if (node.low, node.high) == (0, 1):
                return alt([self.of(node.item, then), then])
            raise PatternError("a pattern that repeats an anchor or what looks around cannot be obeyed")
        assert isinstance(node, Row)
        return self.row(None, node.items, then)

    def row(self, before: Tree | None, items: Sequence[Node], then: Tree) -> Tree:
        """The nodes one after another, followed by `then`, after `before`; None: what precedes them is unknown."""
        self.effort.spend(2 + len(items) // 4, PATTERNS)
        at = next((at for at, item in enumerate(items) if looks_behind(item)), None)
        if at is None:
            alone: list[Tree] = []  # the last first
            for item in reversed(items):
                if is_alone(item):
                    alone.append(plain(item))
                else:
                    then, alone = self.of(item, seq([*reversed(alone), then])), []
            then = seq([*reversed(alone), then])
            return then if before is None else seq([before, then])
        sides, then = self._sides(items[at]), self.row(None, items[at + 1 :], then)
        last = self.of(items[at - 1], EMPTY) if at and isinstance(items[at], WordEdge) else EMPTY
        if not nullable(last):  # what stands before is its last character
            start = self.row(before, items[: at - 1], EMPTY)
            return alt([seq([start, both([last, left]), both([right, then])]) for left, right in sides])
        if before is None:
            raise self._unseen(items[at])
        start = self.row(before, items[:at], EMPTY)
        return alt([seq([both([start, left]), both([right, then])]) for left, right in sides])

    def _unseen(self, node: Node) -> PatternError:
        if isinstance(node, Look):
            return PatternError(f"looking behind, by (?<=...) or (?<!...), is not supported in {self.inside}")
        return PatternError(r"\b and \B are supported only behind ^ or at least one character of the same regex or group")

    def _inside(self, look: Look) -> "Following":
        """Of what must not be there the other reading is meant."""
        return replace(self, widely=not self.widely) if look.negative else self

    def _sides(self, node: Node) -> list[tuple[Tree, Tree]]:
        """Alternatives of what must precede and what must follow a lookbehind or a word boundary."""
        if isinstance(node, Look):
            if most_edges(node.item, begins=False):
                raise PatternError("a pattern that looks behind for its end cannot be obeyed")
            found = seq([ALL, self._inside(node).of(node.item, EMPTY)])
            return [(other(found) if node.negative else found, ALL)]
        assert isinstance(node, WordEdge)
        word = Chars(chars.words(self.widely))
        rest = Chars(chars.union((*(chars.complement(chars.WORD) if self.widely else chars.NO_WORD), (BEGIN, END))))
        sides = [(seq([ALL, one]), seq([two, ALL])) for one, two in ((word, rest), (rest, word), (word, word), (rest, rest))]
        return sides[2:] if node.negative else sides[:2]


def looks_behind(node: Node) -> bool:
    return isinstance(node, WordEdge) or (isinstance(node, Look) and node.behind)


def is_alone(node: Node) -> bool:
    """Whether the node is independent of its surroundings: no anchors, no lookaround."""
    if isinstance(node, Row | Either):
        return all(is_alone(item) for item in node.items)
    return is_alone(node.item) if isinstance(node, Repeat) else isinstance(node, Set)


def plain(node: Node) -> Tree:
    """The set of a node for which `is_alone` holds."""
    if isinstance(node, Set):
        return Chars(node.ranges)
    if isinstance(node, Row):
        return seq([plain(item) for item in node.items])
    if isinstance(node, Either):
        return alt([plain(item) for item in node.items])
    assert isinstance(node, Repeat)
    return rep(plain(node.item), node.low, node.high)


def within(tree: Tree, edge: int, effort: Effort) -> Tree:
    """The set without this edge's character: no `Chars` in the tree contains it."""
    effort.spend(A_NODE, PATTERNS)
    if isinstance(tree, Chars):
        return Chars(chars.without(tree.ranges, edge))
    if isinstance(tree, Seq):
        return seq([within(item, edge, effort) for item in tree.items])
    if isinstance(tree, Alt):
        return alt([within(item, edge, effort) for item in tree.items])
    if isinstance(tree, Both):
        return both([within(item, edge, effort) for item in tree.items])
    if isinstance(tree, Rep):
        return rep(within(tree.item, edge, effort), tree.low, tree.high)
    assert isinstance(tree, Other)
    return other(within(tree.item, edge, effort))
