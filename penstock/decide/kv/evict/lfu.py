"""Least frequently used first; among equals the least recently used."""
from penstock.decide.kv.radix import Node


class Lfu:
    def priority(self, node: Node, now: float) -> tuple[float, ...]:
        return (node.num_uses, node.last_used_s)
