"""Backends run programs: each takes a program, its weights and a KV layout once, and then steps."""
from penstock.core.registry import Table

TABLE = Table("backend", {
    "reference": "penstock.compute.backends.reference.backend:Reference",
})
