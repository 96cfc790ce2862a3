"""Least recently used first."""
from penstock.decide.kv.radix import Node


class Lru:
    def priority(self, node: Node, now: float) -> tuple[float, ...]:
        return (node.last_used_s,)
