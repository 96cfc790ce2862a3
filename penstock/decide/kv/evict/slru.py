"""Segmented LRU: blocks that were found again are protected; those used once are on probation and go first, whatever their age.

A long scan of prompts that never return thus cannot wash out prefixes that do. The classic policy (Karedla, Love and
Wherry, 1994) bounds the protected segment by size; this one by time since the last use, so that it needs no state.
"""
from dataclasses import dataclass

from penstock.core.registry import check_ranges
from penstock.decide.kv.radix import Node


class Slru:
    @dataclass(frozen=True, slots=True)
    class Options:
        uses: int = 2  # sequences that must have used a block before it is protected
        protect_s: float = 600.0  # unused for so long, a protected block is on probation again

        def __post_init__(self) -> None:
            check_ranges("eviction policy slru", self, uses=(1, 1_000_000), protect_s=(0, 1_000_000_000))

    def __init__(self, options: Options | None = None) -> None:
        self._options = options or self.Options()

    def priority(self, node: Node, now: float) -> tuple[float, ...]:
        protected = node.num_uses >= self._options.uses and now - node.last_used_s < self._options.protect_s
        return (float(protected), node.last_used_s)
