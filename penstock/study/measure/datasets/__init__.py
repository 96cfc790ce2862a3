"""What is asked: the contract is `Source` in ../load.py."""
from penstock.core.registry import Table

TABLE = Table("dataset", {
    "synthetic": "penstock.study.measure.datasets.synthetic:Synthetic",
    "jsonl": "penstock.study.measure.datasets.jsonl:Jsonl",
    "sharegpt": "penstock.study.measure.datasets.sharegpt:ShareGpt",
    "azure": "penstock.study.measure.datasets.azure:Azure",
    "burstgpt": "penstock.study.measure.datasets.burstgpt:BurstGpt",
    "mooncake": "penstock.study.measure.datasets.mooncake:Mooncake",
})
