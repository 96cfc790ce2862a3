"""A prefix tree, and sequences that use it as a KVManager would."""
from penstock.decide.kv.blocks import BlockPool
from penstock.decide.kv.evict.lru import Lru
from penstock.decide.kv.radix import RadixTree

SIZE = 2


def make(num_blocks=8, policy=None, max_pinned=4):
    pool = BlockPool(num_blocks)
    return pool, RadixTree(pool, SIZE, policy or Lru(), max_pinned)


def take(tree, tokens, now=0.0, salt=""):
    """Holds as much of `tokens` as is cached: its end in the tree, and the blocks."""
    found = tree.match(salt, tokens, len(tokens) // SIZE)
    node = tree.cut(found.node, found.num_blocks) if found.num_blocks else None
    return node, [block for each in tree.path(node) for block in tree.acquire(each, now)]


def put(pool, tree, tokens, now=0.0, salt=""):
    """Computes `tokens` as a sequence would: holds its path, and returns the blocks, to be released by `drop`."""
    node, blocks = take(tree, tokens, now, salt)
    new = pool.allocate(len(tokens) // SIZE - len(blocks))
    if new:
        start = len(blocks) * SIZE
        node = tree.insert(node, salt, tokens[start : start + len(new) * SIZE], new, now)
        assert node.block_ids[-len(new) :] == new
    return blocks + new


def drop(tree, blocks, now=0.0):
    tree.release_all(blocks, now)


def cached(tree, tokens, salt=""):
    return tree.match(salt, tokens, len(tokens) // SIZE).num_blocks * SIZE


def end_of(tree, tokens):
    """The node that ends with these, which are cached."""
    found = tree.match("", tokens, len(tokens) // SIZE)
    assert found.num_blocks == len(tokens) // SIZE
    return tree.cut(found.node, found.num_blocks)
