"""Derivatives of sets of strings, by their first or their last character (Brzozowski, 1964)."""
from penstock.compute.decoding.grammar.effort import PATTERNS, Effort
from penstock.compute.decoding.grammar.patterns.tree import EMPTY, NOTHING, Alt, Both, Chars, Rep, Seq, Tree, alt, both, other, rep, seq


def nullable(tree: Tree) -> bool:
    """Whether the empty string is in the set."""
    if isinstance(tree, Chars):
        return False
    if isinstance(tree, Seq | Both):
        return all(nullable(item) for item in tree.items)
    if isinstance(tree, Alt):
        return any(nullable(item) for item in tree.items)
    if isinstance(tree, Rep):
        return tree.low == 0 or nullable(tree.item)
    return not nullable(tree.item)


def left(tree: Tree, code: int, effort: Effort) -> Tree:
    """The strings s for which this character + s is in the set."""
    if isinstance(tree, Chars):
        effort.spend(1, PATTERNS)
        return EMPTY if any(low <= code <= high for low, high in tree.ranges) else NOTHING
    if isinstance(tree, Seq):
        return _of_sequence(tree.items, code, effort)
    effort.spend(2, PATTERNS)
    if isinstance(tree, Alt):
        return alt([left(item, code, effort) for item in tree.items])
    if isinstance(tree, Both):
        return both([left(item, code, effort) for item in tree.items])
    if isinstance(tree, Rep):
        return seq([left(tree.item, code, effort), one_less(tree)])
    return other(left(tree.item, code, effort))


def right(tree: Tree, code: int, effort: Effort) -> Tree:
    """The strings s for which s + this character is in the set."""
    if isinstance(tree, Chars):
        return left(tree, code, effort)
    if isinstance(tree, Seq):
        found = []
        for at in range(len(tree.items) - 1, -1, -1):
            effort.spend(2 + at // 8, PATTERNS)
            found.append(seq([*tree.items[:at], right(tree.items[at], code, effort)]))
            if not nullable(tree.items[at]):
                break
        return alt(found)
    effort.spend(2, PATTERNS)
    if isinstance(tree, Alt):
        return alt([right(item, code, effort) for item in tree.items])
    if isinstance(tree, Both):
        return both([right(item, code, effort) for item in tree.items])
    if isinstance(tree, Rep):
        return seq([one_less(tree), right(tree.item, code, effort)])
    return other(right(tree.item, code, effort))


def one_less(tree: Rep) -> Tree:
    """Behind the first of the repeated."""
    return rep(tree.item, max(tree.low - 1, 0), None if tree.high is None else tree.high - 1)


def holds(tree: Tree, text: str, effort: Effort) -> bool:
    """Whether the string is in the set."""
    for char in text:
        tree = left(tree, ord(char), effort)
    return nullable(tree)


def _of_sequence(items: tuple[Tree, ...], code: int, effort: Effort) -> Tree:
    found = []
    for at, item in enumerate(items):
        effort.spend(2 + (len(items) - at) // 8, PATTERNS)
        found.append(seq([left(item, code, effort), *items[at + 1 :]]))
        if not nullable(item):
            break
    return alt(found)
