"""Acceptance rules: when a draft may stand in for what the model chooses at its place."""
from penstock.core.registry import Table

TABLE = Table("acceptance rule", {
    "exact": "penstock.compute.decoding.acceptance.exact:Exact",
    "typical": "penstock.compute.decoding.acceptance.typical:Typical",
})
