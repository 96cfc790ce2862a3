"""A set of strings as a tree of operations, always simplified, so that equal sets mostly have equal trees."""
from dataclasses import dataclass

from penstock.compute.decoding.grammar.patterns import chars
from penstock.compute.decoding.grammar.patterns.chars import Ranges


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set; if the set is empty, no string at all."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Seq:
    """Concatenation; of nothing: the empty string."""

    items: tuple["Tree", ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """Union."""

    items: frozenset["Tree"]


@dataclass(frozen=True, slots=True)
class Both:
    """Intersection."""

    items: frozenset["Tree"]


@dataclass(frozen=True, slots=True)
class Other:
    """Complement."""

    item: "Tree"


@dataclass(frozen=True, slots=True)
class Rep:
    """Repetition."""

    item: "Tree"
    low: int
    high: int | None  # None: unlimited


Tree = Chars | Seq | Alt | Both | Other | Rep

NOTHING = Chars(())
EMPTY = Seq(())
ANYTHING = Rep(Chars(chars.EVERY), 0, None)


def text(value: str) -> Tree:
    return seq([Chars(chars.of(char)) for char in value])


def seq(items: "list[Tree] | tuple[Tree, ...]") -> Tree:
    """The concatenation."""
    found: list[Tree] = []
    for item in items:
        if item == NOTHING:
            return NOTHING
        if isinstance(item, Seq):
            found += item.items
        elif not (item == ANYTHING and found and found[-1] == ANYTHING):
            found.append(item)
    return found[0] if len(found) == 1 else Seq(tuple(found))


def alt(items: "list[Tree] | tuple[Tree, ...]") -> Tree:
    """The union."""
    found: set[Tree] = set()
    ranges: list[tuple[int, int]] = []
    for item in items:
        for each in item.items if isinstance(item, Alt) else (item,):
            if isinstance(each, Chars):
                ranges += each.ranges
            else:
                found.add(each)
    if ranges:
        found.add(Chars(chars.union(ranges)))
    if ANYTHING in found:
        return ANYTHING
    if not found:
        return NOTHING
    return next(iter(found)) if len(found) == 1 else Alt(frozenset(found))


def both(items: "list[Tree] | tuple[Tree, ...]") -> Tree:
    """The intersection."""
    found: set[Tree] = set()
    for item in items:
        found |= item.items if isinstance(item, Both) else {item}
    found.discard(ANYTHING)
    sets = [each for each in found if isinstance(each, Chars)]
    if len(sets) > 1:
        ranges = sets[0].ranges
        for each in sets[1:]:
            ranges = chars.intersection(ranges, each.ranges)
        found = (found - set(sets)) | {Chars(ranges)}
    if NOTHING in found or any(isinstance(each, Other) and each.item in found for each in found):
        return NOTHING
    if not found:
        return ANYTHING
    return next(iter(found)) if len(found) == 1 else Both(frozenset(found))


def other(item: Tree) -> Tree:
    if isinstance(item, Other):
        return item.item
    if item == ANYTHING:
        return NOTHING
    return ANYTHING if item == NOTHING else Other(item)


def rep(item: Tree, low: int, high: int | None) -> Tree:
    if high == 0 or item == EMPTY or (item == NOTHING and low == 0):
        return EMPTY
    if item == NOTHING or (low, high) == (1, 1):
        return item
    if isinstance(item, Rep) and (item.low, item.high) == (0, None):
        return item
    return Rep(item, low, high)


def texts(tree: Tree, most: int = 64) -> list[str] | None:
    """All strings of a set, if it is easily seen that there are at most `most`; else None."""
    if isinstance(tree, Chars):
        codes = [code for low, high in tree.ranges for code in range(low, min(high, low + most) + 1)]
        return [chr(code) for code in codes] if len(codes) <= most else None
    if isinstance(tree, Alt):
        parts = [texts(item, most) for item in tree.items]
        found = [each for part in parts if part is not None for each in part]
        return sorted(set(found)) if None not in parts and len(found) <= most else None
    if isinstance(tree, Rep) and tree.high is not None and tree.high <= most:
        return texts(alt([Seq((tree.item,) * times) for times in range(tree.low, tree.high + 1)]), most)
    if not isinstance(tree, Seq):
        return None
    found = [""]
    for item in tree.items:
        part = texts(item, most)
        if part is None or len(found) * len(part) > most:
            return None
        found = [before + after for before in found for after in part]
    return found


def shortest(tree: Tree) -> int:
    """A lower bound of the length of its strings, in characters."""
    if isinstance(tree, Chars):
        return 1
    if isinstance(tree, Seq):
        return sum(map(shortest, tree.items))
    if isinstance(tree, Rep):
        return tree.low * shortest(tree.item)
    if isinstance(tree, Alt | Both):
        return (min if isinstance(tree, Alt) else max)(map(shortest, tree.items), default=0)
    return 0


def longest(tree: Tree) -> int | None:
    """An upper bound of the length of its strings, in characters; None: none is known."""
    if isinstance(tree, Chars):
        return 1
    if isinstance(tree, Other):
        return None
    if isinstance(tree, Rep):
        each = longest(tree.item)
        return None if each is None or tree.high is None else each * tree.high
    found = [longest(item) for item in tree.items]
    known = [each for each in found if each is not None]
    if isinstance(tree, Both):
        return min(known, default=None)
    return None if len(known) < len(found) else sum(known) if isinstance(tree, Seq) else max(known)
