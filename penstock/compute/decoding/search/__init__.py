"""Searches: ways to choose whole sequences instead of one token after another. The engine forks and drops sequences as they decide."""
from penstock.core.registry import Table

TABLE = Table("search", {
    "beam": "penstock.compute.decoding.search.beam:BeamSearch",
})
