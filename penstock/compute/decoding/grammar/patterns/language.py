"""Translates a parsed regex to the set of strings that it matches; anchors and lookaround become operations on sets.

Meanwhile the edges of a string are special characters: before it as many as the regex may have `^` in a row, each of which consumes one,
and after it as many as it may have `$`. They are removed in the end, by derivatives from the left and from the right (derive.py).
Until then "any text" has one more character that there is not, since trees take ANYTHING for all there is, edges included.
"""
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from penstock.compute.decoding.grammar.effort import PATTERNS, Effort
from penstock.compute.decoding.grammar.patterns import chars, write
from penstock.compute.decoding.grammar.patterns.automaton import size
from penstock.compute.decoding.grammar.patterns.begun import without_sure
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
    EMPTY,
    NOTHING,
    Alt,
    Both,
    Chars,
    Other,
    Rep,
    Seq,
    Tree,
    alt,
    both,
    longest,
    other,
    rep,
    seq,
    shortest,
)
from penstock.compute.decoding.grammar.syntax import MOST_NEEDED

MOST_NODES = 100_000  # of the tree of one pattern
A_CHARACTER = 12  # steps per character of a pattern that is parsed
A_LOOK = 3  # steps per node of a row in which something looks ahead before something looks behind
A_NODE = 12  # steps per node from which an edge is removed

REPEATS = "a pattern that repeats an anchor or what looks around cannot be obeyed"
UNSEEN = (r"a \b, \B or lookbehind in a group, or after another one, cannot be obeyed unless all that it looks at stands in that group and "
          "after the other one")
MARK, BEGIN, END = -3, -2, -1  # any text's own character and the edges, as code points that no character has
BEGINS, ENDS = Chars(((BEGIN, BEGIN),)), Chars(((END, END),))
BREAK = Chars(((10, 10),))
MARKED = chars.union((*chars.EVERY, (MARK, MARK)))
TEXT = rep(Chars(MARKED), 0, None)
ALL = rep(Chars(chars.union((*MARKED, (BEGIN, END)))), 0, None)
START = rep(BEGINS, 0, None)  # before a match that begins with the string
BEFORE = alt([rep(BEGINS, 0, None), seq([rep(BEGINS, 1, None), TEXT])])  # before a match, which may consume the remaining beginnings
REST = alt([rep(ENDS, 0, None), seq([TEXT, rep(ENDS, 1, None)])])  # after a match, which may have consumed some of the ends


def matching(pattern: str, widely: bool, effort: Effort) -> Tree:
    """The strings in which the pattern is found: by all dialects of regexes, or, `widely`, by any of them. Raises PatternError."""
    node = without_sure(read(pattern, widely, effort), is_begun=False)
    tree = Following(widely, effort).row(BEFORE, node.items if isinstance(node, Row) else (node,), REST)
    return writable(without_edges(tree, node, effort))


def whole(pattern: str, effort: Effort) -> Tree:
    """The strings that the pattern matches from beginning to end. Raises PatternError."""
    node = without_sure(read(pattern, False, effort), is_begun=True)
    tree = Following(False, effort).row(START, node.items if isinstance(node, Row) else (node,), rep(ENDS, 0, None))
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
    tree = within(tree, (BEGIN,), effort)
    for _ in range(max(1, most_edges(node, begins=False))):
        tree = right(tree, END, effort)
    return within(tree, (END, MARK), effort)


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
    """Translates nodes, given the set `then` of what follows them up to the end of the string. Its methods raise PatternError for nodes
    that are not supported there."""

    widely: bool
    effort: Effort

    @property
    def ends(self) -> Tree:
        """What `$` consumes: in Python also a line break before the end."""
        return alt([ENDS, seq([BREAK, ENDS])]) if self.widely else ENDS

    def of(self, node: Node, then: Tree) -> Tree:
        """The node followed by `then`."""
        if is_alone(node):
            return seq([plain(node), then])
        if isinstance(node, Edge):
            return seq([BEGINS, then]) if node.begins else self._ended(then)
        if isinstance(node, Look) and not node.behind:
            return both([self._ahead(node), then])
        if isinstance(node, Look | WordEdge):
            raise PatternError(UNSEEN)
        if isinstance(node, Either):
            return alt([self.of(item, then) for item in node.items])
        if isinstance(node, Repeat):
            if (node.low, node.high) == (0, 1):
                return alt([self.of(node.item, then), then])
            return self._repeated(node, then)
        assert isinstance(node, Row)
        return self.row(None, node.items, then)

    def _repeated(self, node: Repeat, then: Tree) -> Tree:
        """A repetition of anchors of one kind: of its rounds, only the first can begin the string, or only the last can end it, but for
        rounds without a character."""
        edges = [most_edges(node.item, begins) for begins in (True, False)]
        if not is_anchored(node.item) or all(edges):
            raise PatternError(REPEATS)
        edge = BEGIN if edges[0] else END
        once = self.of(node.item, EMPTY)
        inner = within(once, (edge,), self.effort)
        is_idle, there = nullable(once), once
        for _ in range(max(edges)):
            there = left(there, edge, self.effort)
            is_idle = is_idle or nullable(there)
        others = rep(inner, 0 if is_idle else max(node.low - 1, 0), None if node.high is None else max(node.high - 1, 0))
        plain = seq([rep(inner, node.low, node.high), then])
        if node.high == 0:
            return plain
        if edges[0]:
            return alt([plain, seq([BEGINS, left(once, BEGIN, self.effort), others, then])])
        return alt([plain, seq([others, right(once, END, self.effort), self._ended(then)])])

    def _ended(self, then: Tree) -> Tree:
        """`$`, followed by `then`. Beginnings that follow it without a character, as in an empty string, are written ahead of it: of a
        string's edges the first come first."""
        found, begun = [], 0
        while True:
            found.append(seq([BEGINS] * begun + [alt([seq([self.ends, then]), self._before_break(then)])]))
            rest = NOTHING if then in (REST, EMPTY) else left(then, BEGIN, self.effort)
            if rest in (NOTHING, then):
                return alt(found)
            then, begun = rest, begun + 1

    def _before_break(self, then: Tree) -> Tree:
        """What follows a `$` that stands before the last line break, as it may in Python, and leaves that to what follows it."""
        if not self.widely or then == REST:  # of which a `$` has had its share
            return NOTHING
        after = left(then, BREAK.ranges[0][0], self.effort)
        return seq([BREAK, write.writable(after, ENDS.ranges) if write.is_plain(after) else both([after, rep(ENDS, 0, None)])])

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
        if any(looks_ahead(item) for item in items[:at]):
            return self._ahead_of_behind(before, items, then)
        after = next((place for place in range(at, len(items)) if not looks_behind(items[place])), len(items))
        nodes = dict.fromkeys(items[at:after])  # which look from one place
        sides, then = [(ALL, ALL)], self.row(None, items[after:], then)
        if most_edges(Row(tuple(items[:at])), begins=False) and left(then, BEGIN, self.effort) != NOTHING:
            raise PatternError("a pattern with a \\b, \\B or lookbehind between a $ and a ^ cannot be obeyed")
        for node in nodes:
            sides = [(both([left, also_left]), both([right, also_right])) for left, right in sides
                     for also_left, also_right in self._sides(node)]
        first = self._first_needed(items[:at]) if all(isinstance(node, WordEdge) for node in nodes) else None
        if first is not None:  # what stands before ends in a character of these items
            start, last = self.row(before, items[:first], EMPTY), self.row(None, items[first:at], EMPTY)
            return alt([seq([start, both([last, left]), both([right, then])]) for left, right in sides])
        start = self.row(before, items[:at], EMPTY)
        for node in nodes if before is None else ():
            if not self._sees(items[:at], start, node):
                raise PatternError(UNSEEN)
        return alt([seq([both([start, left]), both([right, then])]) for left, right in sides])

    def _ahead_of_behind(self, before: Tree | None, items: Sequence[Node], then: Tree) -> Tree:
        """`row`, where something looks ahead before something looks behind: the one must see all that follows, the other what precedes."""
        self.effort.spend(A_LOOK * len(items), PATTERNS)
        at = next(at for at, item in enumerate(items) if looks_ahead(item))
        first, node, rest = items[:at], items[at], items[at + 1 :]
        if not isinstance(node, Look):
            return alt([self.row(before, [*first, *inner, *rest], then) for inner in ways(node)])
        is_at_start = all(isinstance(item, Edge) and item.begins for item in first) and (at > 0 or before in (None, START))
        if is_at_start:  # so there is one place from which it can look
            ahead = seq([*([] if before is None else [before]), *[BEGINS] * at, self._ahead(node)])
            return both([ahead, self.row(before, [*first, *rest], then)])
        if looks_behind(rest[0]):
            return self.row(before, [*first, rest[0], node, *rest[1:]], then)
        return self.row(before, first, both([self._ahead(node), self.row(None, rest, then)]))

    def _ahead(self, node: Look) -> Tree:
        """What may follow a lookahead, up to the end of the string."""
        if most_edges(node.item, begins=True):
            raise PatternError("a pattern that looks ahead for its beginning cannot be obeyed unless it looks from there")
        found = seq([START, self._inside(node).of(node.item, REST)])
        return other(found) if node.negative else found

    def _first_needed(self, items: Sequence[Node]) -> int | None:
        """The last item that cannot be empty, ends of the string aside."""
        for at in range(len(items) - 1, -1, -1):
            tree, is_needed = self.of(items[at], EMPTY), True
            for _ in range(most_edges(items[at], begins=False) + 1):
                is_needed = is_needed and not nullable(tree)
                tree = left(tree, END, self.effort)
            if is_needed:
                return at
        return None

    def _sees(self, items: Sequence[Node], start: Tree, node: Node) -> bool:
        """Whether these items, whose strings are `start`, are always as long as what a lookbehind looks for."""
        most = longest(self._inside(node).of(node.item, EMPTY)) if isinstance(node, Look) else None
        return most is not None and most <= shortest(start) - most_edges(Row(tuple(items)), begins=False)

    def _inside(self, look: Look) -> "Following":
        """Of what must not be there the other reading is meant."""
        return replace(self, widely=not self.widely) if look.negative else self

    def _sides(self, node: Node) -> list[tuple[Tree, Tree]]:
        """Alternatives of what must precede and what must follow a lookbehind or a word boundary."""
        ended = rep(self.ends, 0, None)  # by a `$` before
        if isinstance(node, Look):
            if most_edges(node.item, begins=False):
                raise PatternError("a pattern that looks behind for its end cannot be obeyed")
            found = seq([ALL, self._inside(node).of(node.item, EMPTY), ended])
            return [(other(found) if node.negative else found, ALL)]
        assert isinstance(node, WordEdge)
        word, rest = Chars(chars.words(self.widely)), Chars(chars.complement(chars.WORD) if self.widely else chars.NO_WORD)
        before, after = ({each: seq([ALL, each, ended]) for each in (word, rest)}, {each: seq([START, each, ALL]) for each in (word, rest)})
        no_before, no_after = seq([START, ended]), seq([START, rep(ENDS, 0, None)])
        if not node.negative:
            return [(before[word], alt([after[rest], no_after])), (alt([before[rest], no_before]), after[word])]
        sides = [(before[word], after[word]), (before[rest], alt([after[rest], no_after])), (no_before, after[rest])]
        return [*sides, (no_before, no_after)] if self.widely else sides  # in an empty string ECMAScript finds \B, Python 3.13 does not


def looks_behind(node: Node) -> bool:
    return isinstance(node, WordEdge) or (isinstance(node, Look) and node.behind)


def looks_ahead(node: Node) -> bool:
    """Whether the node, or a part of it, is a lookahead."""
    if isinstance(node, Row | Either):
        return any(map(looks_ahead, node.items))
    return looks_ahead(node.item) if isinstance(node, Repeat) else isinstance(node, Look) and not node.behind


def ways(node: Node) -> list[tuple[Node, ...]]:
    """What may stand in place of a group: the items of a row, in each of its alternatives."""
    if isinstance(node, Row):
        return [node.items]
    if isinstance(node, Either):
        return [(item,) for item in node.items]
    assert isinstance(node, Repeat)
    if (node.low, node.high) != (0, 1):
        raise PatternError(REPEATS)
    return [(node.item,), ()]


def is_alone(node: Node) -> bool:
    """Whether the node is independent of its surroundings: no anchors, no lookaround."""
    if isinstance(node, Row | Either):
        return all(is_alone(item) for item in node.items)
    return is_alone(node.item) if isinstance(node, Repeat) else isinstance(node, Set)


def is_anchored(node: Node) -> bool:
    """Whether nothing but anchors depends on the surroundings of the node."""
    if isinstance(node, Row | Either):
        return all(map(is_anchored, node.items))
    return is_anchored(node.item) if isinstance(node, Repeat) else isinstance(node, Set | Edge)


def plain(node: Node) -> Tree:
    """The set of a node for which `is_alone` holds."""
    if isinstance(node, Set):
        return Chars(MARKED if node.ranges == chars.EVERY else node.ranges)
    if isinstance(node, Row):
        return seq([plain(item) for item in node.items])
    if isinstance(node, Either):
        return alt([plain(item) for item in node.items])
    assert isinstance(node, Repeat)
    return rep(plain(node.item), node.low, node.high)


def within(tree: Tree, codes: Sequence[int], effort: Effort) -> Tree:
    """The set without these characters: no `Chars` in the tree contains one."""
    effort.spend(A_NODE, PATTERNS)
    if isinstance(tree, Chars):
        return Chars(reduce(chars.without, codes, tree.ranges))
    if isinstance(tree, Seq):
        return seq([within(item, codes, effort) for item in tree.items])
    if isinstance(tree, Alt):
        return alt([within(item, codes, effort) for item in tree.items])
    if isinstance(tree, Both):
        return both([within(item, codes, effort) for item in tree.items])
    if isinstance(tree, Rep):
        return rep(within(tree.item, codes, effort), tree.low, tree.high)
    assert isinstance(tree, Other)
    return other(within(tree.item, codes, effort))
