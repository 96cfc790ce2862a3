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
    """Blocks of the longest earlier mark on the way along `nodes`, which a prompt begins with, within its own marks."""
    most = max(marked, default=0)
    return max([node.depth for node in nodes if node.ends_mark and node.depth <= most], default=0)


def pin(tree: RadixTree, deepest: Node, marked: Spans) -> int:
    """Pins the marked blocks on the way to `deepest`, each for the longest time of the marks that cover it, as far as the
    tree's bound allows; returns how many are pinned. `deepest` must be at least as deep as the longest mark."""
    for depth in marked:
        tree.cut(deepest, depth)
    pinned = 0
    for node in tree.path(tree.cut(deepest, max(marked))):
        if not node.pinned and 0 < (room := tree.max_pinned - tree.num_pinned) < len(node.block_ids):
            node = tree.cut(node, node.start + room)
        if not tree.pin(node, max(ttl for depth, ttl in marked.items() if depth >= node.depth)):
            break
        pinned = node.depth
    for depth in marked:
        if min(depth, pinned):
            tree.cut(deepest, min(depth, pinned)).ends_mark = True
    return pinned
