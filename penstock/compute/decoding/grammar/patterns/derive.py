"""What is left of a set of texts when one character is taken away at the beginning or at the end (Brzozowski, 1964)."""
from penstock.compute.decoding.grammar.patterns.tree import EMPTY, NOTHING, Alt, Both, Chars, Rep, Seq, Tree, alt, both, other, rep, seq


def nullable(tree: Tree) -> bool:
    """Whether the empty text is in the set."""
    if isinstance(tree, Chars):
        return False
    if isinstance(tree, Seq | Both):
        return all(nullable(item) for item in tree.items)
    if isinstance(tree, Alt):
        return any(nullable(item) for item in tree.items)
    if isinstance(tree, Rep):
        return tree.low == 0 or nullable(tree.item)
    return not nullable(tree.item)


def left(tree: Tree, code: int) -> Tree:
    """The texts that, behind this character, are in the set."""
    if isinstance(tree, Chars):
        return EMPTY if any(low <= code <= high for low, high in tree.ranges) else NOTHING
    if isinstance(tree, Seq):
        return _of_sequence(tree.items, code)
    if isinstance(tree, Alt):
        return alt([left(item, code) for item in tree.items])
    if isinstance(tree, Both):
        return both([left(item, code) for item in tree.items])
    if isinstance(tree, Rep):
        return seq([left(tree.item, code), one_less(tree)])
    return other(left(tree.item, code))


def right(tree: Tree, code: int) -> Tree:
    """The texts that, before this character, are in the set."""
    if isinstance(tree, Chars):
        return left(tree, code)
    if isinstance(tree, Seq):
        found = []
        for at in range(len(tree.items) - 1, -1, -1):
            found.append(seq([*tree.items[:at], right(tree.items[at], code)]))
            if not nullable(tree.items[at]):
                break
        return alt(found)
    if isinstance(tree, Alt):
        return alt([right(item, code) for item in tree.items])
    if isinstance(tree, Both):
        return both([right(item, code) for item in tree.items])
    if isinstance(tree, Rep):
        return seq([one_less(tree), right(tree.item, code)])
    return other(right(tree.item, code))


def one_less(tree: Rep) -> Tree:
    """Behind the first of the repeated."""
    return rep(tree.item, max(tree.low - 1, 0), None if tree.high is None else tree.high - 1)


def holds(tree: Tree, text: str) -> bool:
    """Whether the text is in the set."""
    for char in text:
        tree = left(tree, ord(char))
    return nullable(tree)


def _of_sequence(items: tuple[Tree, ...], code: int) -> Tree:
    found = []
    for at, item in enumerate(items):
        found.append(seq([left(item, code), *items[at + 1 :]]))
        if not nullable(item):
            break
    return alt(found)
