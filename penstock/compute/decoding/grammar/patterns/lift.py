"""A set of strings as an intersection of sets, as far as no automaton is needed: who reads the result intersects them as it goes."""
from itertools import product
from math import prod

from penstock.compute.decoding.grammar.patterns.tree import Alt, Both, Chars, Rep, Seq, Tree, alt, seq
from penstock.compute.decoding.grammar.patterns.write import is_plain

MOST_COMBINED = 12  # sets that llguidance intersects at one place: its time, without any limit, grows by a factor with each


def lifted(tree: Tree, most: int = MOST_COMBINED) -> tuple[Tree, ...]:
    """Sets whose intersection is the set: at most `most`, or else the set alone."""
    if is_plain(tree):
        return (tree,)
    parts: tuple[Tree, ...] = (tree,)
    if isinstance(tree, Both):
        parts = tuple([part for item in tree.items for part in lifted(item, most)])
    elif isinstance(tree, Seq):
        parts = in_row(tree, most)
    elif isinstance(tree, Alt):
        choices = [lifted(item, most) for item in tree.items]
        if prod(map(len, choices)) <= most:
            parts = tuple([alt(list(chosen)) for chosen in product(*choices)])
    return parts if len(parts) <= most else (tree,)


def in_row(tree: Seq, most: int) -> tuple[Tree, ...]:
    """An intersection in a row is one of rows where all else in it has a fixed length, so that all split a string at the same places."""
    at = next(at for at, item in enumerate(tree.items) if not is_plain(item))
    before, after = tree.items[:at], tree.items[at + 1 :]
    if any(length(item) is None for item in (*before, *after)):
        return (tree,)
    return tuple([seq([*before, part, *after]) for part in lifted(tree.items[at], most)])


def length(tree: Tree) -> int | None:
    """Characters of each string of a set that has no complements and intersections; None where they differ."""
    if isinstance(tree, Chars):
        return 1
    if isinstance(tree, Seq | Alt):
        found = [length(item) for item in tree.items]
        known = [each for each in found if each is not None]
        if len(known) < len(found) or (isinstance(tree, Alt) and len(set(known)) > 1):
            return None
        return known[0] if isinstance(tree, Alt) else sum(known)
    if isinstance(tree, Rep) and tree.low == tree.high and (one := length(tree.item)) is not None:
        return tree.low * one
    return None
