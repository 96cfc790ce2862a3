"""Which tokens may be drawn at all: one file a rule, applied in the order of the table to the logits that temperature has scaled."""
from penstock.core.registry import Table

TABLE = Table("filter", {
    "top_k": "penstock.compute.decoding.filters.top_k:TopK",
    "top_p": "penstock.compute.decoding.filters.top_p:TopP",
    "min_p": "penstock.compute.decoding.filters.min_p:MinP",
    "typical_p": "penstock.compute.decoding.filters.typical_p:TypicalP",
})
