"""Which unused block goes first; one `EvictPolicy` (see `penstock.decide.kv.radix`) per file."""
from penstock.core.registry import Table

TABLE = Table(
    "eviction policy",
    {
        "lru": "penstock.decide.kv.evict.lru:Lru",
        "lfu": "penstock.decide.kv.evict.lfu:Lfu",
        "slru": "penstock.decide.kv.evict.slru:Slru",
    },
)
