"""A set of strings as a deterministic finite automaton: decides emptiness, and eliminates complements and intersections."""
from collections.abc import Iterable
from heapq import heappop, heappush

from penstock.compute.decoding.grammar.effort import PATTERNS, Effort
from penstock.compute.decoding.grammar.patterns import chars
from penstock.compute.decoding.grammar.patterns.chars import Ranges
from penstock.compute.decoding.grammar.patterns.derive import left, nullable
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
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
    longest,
    rep,
    seq,
    shortest,
)
from penstock.compute.decoding.grammar.patterns.write import is_plain

MAX_STATES = 400
MAX_WORK = 400_000  # nodes visited to construct the states of one automaton
MAX_SIZE = 60_000  # nodes and character ranges of the tree made from an automaton
MAX_WRITTEN = 20 * MAX_SIZE  # of all intermediate trees together
TOO_COMPLEX = "a pattern, or what it excludes, is too complex to be combined with another"
TOO_MANY = f"a pattern, or what it excludes, needs more than {MAX_STATES} states"


class Automaton:
    """Built from derivatives (derive.py). State 0 is the initial state. `steps[state]`: for each successor the characters that lead to it.
    No step leads to a dead end. `ends[state]`: what may follow there beside the steps. Where texts of limited length are left out of a set,
    that is the set itself as soon as it has all that begins so.

    Raises PatternError for a set that needs more states than MAX_STATES or more work than MAX_WORK.
    """

    def __init__(self, tree: Tree, effort: Effort) -> None:
        effort.spend(size(tree), PATTERNS)
        letters = alphabet(tree, effort)
        states = {tree: 0}
        is_less = is_less_texts(tree)
        queue = [tree]
        steps: list[dict[int, Ranges]] = []
        work = 0
        while len(steps) < len(queue):
            now = queue[len(steps)]
            large = size(now)
            effort.spend(large, PATTERNS)
            if is_less and is_plain(now):
                steps.append({})
                continue
            work += large * len(letters)
            if work > MAX_WORK:
                raise PatternError(TOO_COMPLEX)
            found: dict[int, list[tuple[int, int]]] = {}
            for letter in letters:
                effort.spend(2 + len(letter) // 8, PATTERNS)
                then = left(now, letter[0][0], effort)
                if then == NOTHING:
                    continue
                if then not in states:
                    states[then] = len(states)
                    queue.append(then)
                    if len(states) > MAX_STATES:
                        raise PatternError(TOO_MANY)
                found.setdefault(states[then], []).extend(letter)
            steps.append({state: chars.union(ranges) for state, ranges in found.items()})
        whole = {state: tree for tree, state in states.items() if is_less and is_plain(tree)}
        self.ends = {state: EMPTY for tree, state in states.items() if nullable(tree)} | whole
        live = self._live(steps)
        self.steps = [{state: by for state, by in each.items() if state in live} for each in steps]

    def is_empty(self) -> bool:
        return not self.ends

    def _live(self, steps: list[dict[int, Ranges]]) -> set[int]:
        """The states from which an end can be reached."""
        before: dict[int, set[int]] = {}
        for state, each in enumerate(steps):
            for then in each:
                before.setdefault(then, set()).add(state)
        live, queue = set(self.ends), list(self.ends)
        while queue:
            for state in before.get(queue.pop(), ()):
                if state not in live:
                    live.add(state)
                    queue.append(state)
        return live

    def tree(self, effort: Effort) -> Tree:
        """The same set by sequence, choice and repetition alone: Kleene's state elimination, states with few neighbours first.

        Raises PatternError if the tree exceeds MAX_SIZE, or all intermediate ones MAX_WRITTEN.
        """
        if self.is_empty():
            return NOTHING
        first, last = -1, -2
        out: dict[int, dict[int, Tree]] = {first: {0: EMPTY}, last: {}}
        out |= {state: {then: Chars(by) for then, by in each.items()} for state, each in enumerate(self.steps)}
        for state, end in self.ends.items():
            out[state][last] = end
        into: dict[int, set[int]] = {state: set() for state in out}
        for state, each in out.items():
            for then in each:
                into[then].add(state)
        left_over = set(range(len(self.steps)))
        written = 0
        while left_over:
            effort.spend(2 * len(left_over), PATTERNS)
            state = min(left_over, key=lambda each: (len(into[each] - {each}) * len(out[each].keys() - {each}), each))
            left_over.remove(state)
            loop = rep(out[state].pop(state, NOTHING), 0, None)
            for before in into[state] - {state}:
                there = out[before].pop(state)
                for then, onward in out[state].items():
                    found = alt([out[before].get(then, NOTHING), seq([there, loop, onward])])
                    large = size(found, of_ranges=True)
                    effort.spend(2 + large // 2, PATTERNS)
                    written += large
                    if large > MAX_SIZE or written > MAX_WRITTEN:
                        raise PatternError("a pattern, or what it excludes, is too large")
                    out[before][then] = found
                    into[then].add(before)
            for then in out[state]:
                into[then].discard(state)
        return out[first].get(last, NOTHING)


def is_less_texts(tree: Tree) -> bool:
    """Whether a set without complements and intersections is meant, less texts of limited length."""
    if not isinstance(tree, Both):
        return False
    left_out = [item for item in tree.items if isinstance(item, Other)]
    others = [item for item in tree.items if not isinstance(item, Other)]
    return len(others) == 1 and is_plain(others[0]) and all(is_plain(item.item) and longest(item.item) is not None for item in left_out)


def has_text(tree: Tree, effort: Effort) -> bool:
    """Whether a set has any string. Best-first search by the remaining length, so most sets need few of their states.

    Raises PatternError if MAX_STATES or MAX_WORK is exceeded before the answer is known.
    """
    effort.spend(size(tree), PATTERNS)
    letters = alphabet(tree, effort)
    states = {tree}
    queue: list[tuple[int, int, Tree]] = [(0, 0, tree)]  # minimum number of characters still needed, the state's number, the state
    work = 0
    while queue:
        now = heappop(queue)[2]
        if nullable(now):
            return True
        large = size(now)
        effort.spend(large, PATTERNS)
        work += large * len(letters)
        if work > MAX_WORK:
            raise PatternError(TOO_COMPLEX)
        for letter in letters:
            effort.spend(2, PATTERNS)
            then = left(now, letter[0][0], effort)
            if then == NOTHING or then in states:
                continue
            if len(states) == MAX_STATES:
                raise PatternError(TOO_MANY)
            heappush(queue, (shortest(then), len(states), then))
            states.add(then)
    return False


def alphabet(tree: Tree, effort: Effort) -> list[Ranges]:
    """All characters, in classes: those that no set in the tree distinguishes are in one class."""
    sets = sorted(set(sets_in(tree)))
    edges = {edge for ranges in sets for low, high in ranges for edge in (low, high + 1)}
    bounds = [0, *sorted(edge for edge in edges if 0 < edge <= chars.LAST), chars.LAST + 1]
    places = {low: at for at, low in enumerate(bounds)}
    inside = [0] * (len(bounds) - 1)  # for each interval between two bounds: one bit per set that contains it
    for number, ranges in enumerate(sets):
        effort.spend(2 + len(bounds) // 8, PATTERNS)
        for low, high in ranges:
            for at in range(places[max(low, 0)], places[max(high + 1, 0)]):
                inside[at] |= 1 << number
    groups: dict[int, list[tuple[int, int]]] = {}
    for at, low in enumerate(bounds[:-1]):
        groups.setdefault(inside[at], []).append((low, bounds[at + 1] - 1))
    found = [chars.intersection(chars.union(ranges), chars.EVERY) for ranges in groups.values()]
    return [ranges for ranges in found if ranges]


def sets_in(tree: Tree) -> Iterable[Ranges]:
    if isinstance(tree, Chars):
        yield tree.ranges
    elif isinstance(tree, Seq | Alt | Both):
        for item in tree.items:
            yield from sets_in(item)
    elif isinstance(tree, Rep | Other):
        yield from sets_in(tree.item)


def size(tree: Tree, of_ranges: bool = False) -> int:
    """The number of nodes; with `of_ranges`, a set of characters counts as its number of ranges."""
    if isinstance(tree, Chars):
        return len(tree.ranges) if of_ranges else 1
    if isinstance(tree, Rep | Other):
        return 1 + size(tree.item, of_ranges)
    return 1 + sum([size(item, of_ranges) for item in tree.items])
