"""Search strategies, which choose whole sequences instead of one token after another. The engine forks and drops sequences accordingly."""
from penstock.core.registry import Table

TABLE = Table("search", {
    "beam": "penstock.compute.decoding.search.beam:BeamSearch",
})
