"""Removes each `^` of a lookahead that looks from the beginning of the string, where it is always true: `^(?!^-)` is `^(?!-)`."""
from dataclasses import replace

from penstock.compute.decoding.grammar.patterns.syntax import Edge, Either, Look, Node, Repeat, Row, Set

NO_EDGE = Row(())


def without_sure(node: Node, is_begun: bool) -> Node:
    """`is_begun`: whether the node stands at the beginning of the string."""
    return _walk(node, is_begun, False)[0]


def _walk(node: Node, is_begun: bool, is_ahead: bool) -> tuple[Node, bool]:
    """The node, and whether what follows it stands at the beginning of the string. `is_ahead`: it is in a lookahead."""
    if isinstance(node, Edge) and node.begins:
        return (NO_EDGE if is_begun and is_ahead else node), True
    if isinstance(node, Look) and not node.behind:
        return replace(node, item=_walk(node.item, is_begun, True)[0]), is_begun
    if isinstance(node, Row):
        items = []
        for item in node.items:
            found, is_begun = _walk(item, is_begun, is_ahead)
            items.append(found)
        return Row(tuple(items)), is_begun
    if isinstance(node, Either):
        walked = [_walk(item, is_begun, is_ahead) for item in node.items]
        return Either(tuple([found for found, _ in walked])), all(begun for _, begun in walked)
    if isinstance(node, Repeat):
        if node.high != 1:
            return node, False
        found, begun = _walk(node.item, is_begun, is_ahead)
        return replace(node, item=found), begun and (is_begun or node.low > 0)
    return node, is_begun and not isinstance(node, Set)
