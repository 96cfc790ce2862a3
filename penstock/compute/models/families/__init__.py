"""Architectures by the name in config.json: each is a file of facts, how its config reads and what its tensors are called."""
from penstock.core.registry import Table

TABLE = Table("architecture", {
    "LlamaForCausalLM": "penstock.compute.models.families.llama:FAMILY",
})
