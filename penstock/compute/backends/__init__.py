"""Backends run programs: each takes a program, its weights and a KV layout once, and then steps."""
from penstock.core.registry import Table

TABLE = Table("backend", {
    "cpu": "penstock.compute.backends.cpu.backend:Cpu",
    "reference": "penstock.compute.backends.reference.backend:Reference",
}, also=("auto",))
