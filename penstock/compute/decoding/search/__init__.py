"""Searches: ways to choose whole sequences rather than one token after another. The engine forks and drops sequences as they say."""
from penstock.core.registry import Table

TABLE = Table("search", {
    "beam": "penstock.compute.decoding.search.beam:BeamSearch",
})
