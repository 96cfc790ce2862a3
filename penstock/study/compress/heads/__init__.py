"""Heads that can be trained to draft for a model: how each is run over whole sequences while it learns."""
from penstock.core.registry import Table

TABLE = Table("kind of heads", {
    "eagle": "penstock.study.compress.heads.eagle:Eagle",
    "medusa": "penstock.study.compress.heads.medusa:Medusa",
})
