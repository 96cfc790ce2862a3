"""Acceptance rules of speculative decoding: which drafts are accepted although the target chose another token. See contract.py."""
from penstock.core.registry import Table

TABLE = Table("acceptance rule", {
    "exact": "penstock.compute.decoding.acceptance.exact:Exact",
    "typical": "penstock.compute.decoding.acceptance.typical:Typical",
})
