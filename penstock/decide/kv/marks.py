"""Explicit prompt caching: the prefixes that `cache_control` marks pin in the tree, counted in whole blocks.

A mark is read when a mark of an earlier request ended exactly where one of its whole blocks does and is still pinned; sharing
only the beginning of somebody's marked prefix reads nothing. What is not read is created, so that two equal requests
in a row report the same number, first as created, then as read.
"""
from collections.abc import Sequence

from penstock.core.types import CacheMark
from penstock.decide.kv.radix import Node, RadixTree

Spans = dict[int, float]  # whole blocks from the start of the prompt -> seconds to live


def spans(marks: Sequence[CacheMark], num_prompt: int, block_size: int) -> Spans:
    """The blocks that lie wholly inside each mark. A mark that covers no whole block has none."""
    found: Spans = {}
    for mark in marks:
        num_blocks = min(mark.num_tokens, num_prompt) // block_size
        if num_blocks:
            found[num_blocks] = max(mark.ttl_s, found.get(num_blocks, 0.0))
    return found


def num_read(nodes: Sequence[Node], marked: Spans) -> int:
    """Blocks of the longest earlier mark among the first `nodes` of a prompt, within its own marks."""
    ends = [node.depth for node in nodes[: max(marked, default=0)] if node.ends_mark]
    return max(ends, default=0)


def pin(tree: RadixTree, deepest: Node, marked: Spans) -> int:
    """Pins the marked blocks on the way to `deepest`, each for the longest time of the marks that cover it, as far as the
    tree's bound allows; returns how many are pinned. `deepest` must be at least as deep as the longest mark."""
    path: list[Node] = []
    node: Node | None = deepest
    while node is not None and node.parent is not None:
        path.append(node)
        node = node.parent
    path.reverse()
    pinned = 0
    for node in path[: max(marked)]:
        if not tree.pin(node, max(ttl for depth, ttl in marked.items() if depth >= node.depth)):
            break
        pinned = node.depth
    for depth in marked:
        if min(depth, pinned):
            path[min(depth, pinned) - 1].ends_mark = True
    return pinned
