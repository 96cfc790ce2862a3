"""What two shapes have in common."""
from collections.abc import Sequence
from dataclasses import replace

from penstock.compute.decoding.grammar.effort import PARTS
from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.patterns.tree import NOTHING, Tree, alt, both, other
from penstock.compute.decoding.grammar.patterns.write import is_plain
from penstock.compute.decoding.grammar.schema.document import Goal, is_impossible, join
from penstock.compute.decoding.grammar.schema.numbers import meet_numbers
from penstock.compute.decoding.grammar.schema.records import (
    Arrays,
    Booleans,
    Nulls,
    Numbers,
    Objects,
    Record,
    Region,
    Shape,
    Strings,
    bulk,
    listed_in,
)

MAX_PATTERN = 1200  # characters of its regex in JSON


def meet(a: Shape, b: Shape, algebra: Algebra) -> Shape:
    """Empty: nothing."""
    found = {}
    for kind in a:
        if kind in b:
            algebra.effort.spend(bulk(a[kind]) + bulk(b[kind]), PARTS)
            record = a[kind] if a[kind] == b[kind] else of_records(a[kind], b[kind], algebra)
            if record is not None:
                found[kind] = record
    return found


def of_records(a: Record, b: Record, algebra: Algebra) -> Record | None:
    """Of one type; None: nothing, as far as that is seen without looking into items and properties."""
    if isinstance(a, Numbers) and isinstance(b, Numbers):
        return meet_numbers(a, b)
    if isinstance(a, Strings) and isinstance(b, Strings):
        return meet_strings(a, b, algebra)
    if isinstance(a, Arrays) and isinstance(b, Arrays):
        return meet_arrays(a, b)
    if isinstance(a, Objects) and isinstance(b, Objects):
        return meet_objects(a, b, algebra)
    if isinstance(a, Booleans) and isinstance(b, Booleans):
        return Booleans(a.values & b.values) if a.values & b.values else None
    assert isinstance(a, Nulls)
    return a


def least(a: int | None, b: int | None) -> int | None:
    return a if b is None else b if a is None else min(a, b)


def meet_strings(a: Strings, b: Strings, algebra: Algebra) -> Strings | None:
    """Values are looked at one by one. Formats say nothing of listed values: they are what their author listed."""
    values = listed_in(a.values, b.values)
    found = Strings(
        max(a.low, b.low), least(a.high, b.high), tuple(dict.fromkeys((*a.patterns, *b.patterns))),
        tuple(dict.fromkeys((*a.excluded, *b.excluded))), tuple(dict.fromkeys((*a.formats, *b.formats))), values)
    if found.high is not None and found.low > found.high:
        return None
    if found.values is None:
        return found
    left = tuple(text for text in found.values if fits(text, found, algebra))
    return Strings(values=left) if left else None


def fits(text: str, wanted: Strings, algebra: Algebra) -> bool:
    if len(text) < wanted.low or (wanted.high is not None and len(text) > wanted.high):
        return False
    return all(algebra.holds(tree, text) for tree in wanted.patterns) and not any(algebra.holds(tree, text) for tree in wanted.excluded)


def meet_arrays(a: Arrays, b: Arrays) -> Arrays | None:
    high = least(a.high, b.high)
    if high is not None and max(a.low, b.low) > high:
        return None
    length = max(len(a.prefix), len(b.prefix))
    return Arrays(
        tuple([join(a.item(at), b.item(at)) for at in range(length)]), join(a.rest, b.rest), max(a.low, b.low), high,
        a.unique or b.unique, tuple(dict.fromkeys((*a.contains, *b.contains))), max(a.evaluated, b.evaluated))


def meet_objects(a: Objects, b: Objects, algebra: Algebra) -> Objects | None:
    """Named properties must be what both sides want of that name."""
    high = least(a.high, b.high)
    required = tuple(dict.fromkeys((*a.required, *b.required)))
    if high is not None and max(a.low, b.low, len(required)) > high:
        return None
    named = {name: join(goal_of(a, name, algebra), goal_of(b, name, algebra)) for name in dict.fromkeys((*a.named, *b.named))}
    if any(is_impossible(goal) for name in required if (goal := named.get(name))):
        return None
    return Objects(
        named, crossed(a, b, algebra), join(a.rest, b.rest), required, max(a.low, b.low), high, join(a.names, b.names),
        tuple(dict.fromkeys((*a.some, *b.some))), a.evaluated | b.evaluated, a.all_evaluated or b.all_evaluated)


def goal_of(objects: Objects, name: str, algebra: Algebra) -> Goal:
    """What the property of this name must be."""
    if name in objects.named:
        return objects.named[name]
    return next((region.goal for region in objects.regions if algebra.holds(region.names, name)), objects.rest)


def crossed(a: Objects, b: Objects, algebra: Algebra) -> tuple[Region, ...]:
    """Where regions overlap, both goals hold; outside of a side's regions, its goal for the rest does."""
    found: list[Region] = []
    for mine in a.regions:
        met = [its for its in b.regions if algebra.overlap(mine.names, its.names)]
        found += [joined(common(mine.names, its.names), mine, its) for its in met]
        found.append(replace(mine, names=beside(mine.names, met), goal=join(mine.goal, b.rest)))
    for its in b.regions:
        met = [mine for mine in a.regions if algebra.overlap(mine.names, its.names)]
        found.append(replace(its, names=beside(its.names, met), goal=join(a.rest, its.goal)))
    found = inhabited(found, algebra)
    if are_short(found, algebra):
        return tuple(found)
    return together([replace(mine, goal=join(mine.goal, b.rest)) for mine in a.regions],
                    [replace(its, goal=join(a.rest, its.goal)) for its in b.regions], algebra)


def separated(regions: Sequence[Region], algebra: Algebra) -> tuple[Region, ...]:
    """The same said of names that may be in several regions at once, so that no two overlap: where they did, all goals hold."""
    found: list[Region] = []
    for region in regions:
        met = [each for each in found if algebra.overlap(each.names, region.names)]
        apart = [each for each in found if each not in met]
        apart += [joined(common(each.names, region.names), each, region) for each in met]
        apart += [replace(each, names=beside(each.names, [region])) for each in met]
        apart = inhabited([*apart, replace(region, names=beside(region.names, met))], algebra)
        found = apart if not met or are_short(apart, algebra) else list(together(found, [region], algebra))
    return tuple(found)


def together(a: Sequence[Region], b: Sequence[Region], algebra: Algebra) -> tuple[Region, ...]:
    """Regions that overlap become one, for whose names all goals hold: less than there is, but quickly told apart."""
    found: list[Region] = []
    for region in (*a, *b):
        met = [each for each in found if algebra.overlap(each.names, region.names)]
        found = [each for each in found if each not in met]
        for each in met:
            region = replace(joined(alt([each.names, region.names]), each, region), evaluated=each.evaluated and region.evaluated)
        found.append(region)
    return tuple(found)


def joined(names: Tree, a: Region, b: Region) -> Region:
    """Where both speak of these names."""
    return Region(names, join(a.goal, b.goal), a.evaluated or b.evaluated)


def are_short(regions: Sequence[Region], algebra: Algebra) -> bool:
    """Whether llguidance is going to see that they do not overlap."""
    try:
        combined = [region.names for region in regions if not is_plain(region.names)]
        return len(regions) < 2 or all(len(algebra.regex(names, in_json=True)) < MAX_PATTERN for names in combined)
    except PatternError:
        return False


def common(a: Tree, b: Tree) -> Tree:
    return a if a == b else both([a, b])


def beside(names: Tree, regions: Sequence[Region]) -> Tree:
    """Those names that are in none of the regions."""
    if any(region.names == names for region in regions):
        return NOTHING
    return both([names, outside(regions)]) if regions else names


def outside(regions: Sequence[Region]) -> Tree:
    return other(alt([region.names for region in regions]))


def inhabited(regions: Sequence[Region], algebra: Algebra) -> list[Region]:
    """Those that have any name; what is one set of names is one region."""
    by_names: dict[Tree, Region] = {}
    for region in regions:
        if algebra.is_writable(region.names):
            known = by_names.get(region.names)
            by_names[region.names] = region if known is None else joined(region.names, known, region)
    return list(by_names.values())
