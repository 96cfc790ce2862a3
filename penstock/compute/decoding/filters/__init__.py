"""Truncation filters of sampling, one per file (`Filter` in portable.py). They are applied in the order of the table, to logits scaled by
temperature."""
from penstock.core.registry import Table

TABLE = Table("filter", {
    "top_k": "penstock.compute.decoding.filters.top_k:TopK",
    "top_p": "penstock.compute.decoding.filters.top_p:TopP",
    "min_p": "penstock.compute.decoding.filters.min_p:MinP",
    "typical_p": "penstock.compute.decoding.filters.typical_p:TypicalP",
})
