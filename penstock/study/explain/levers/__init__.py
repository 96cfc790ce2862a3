"""What may move a limit. One `Lever` (see `penstock.study.explain.case`) per file."""
from penstock.core.registry import Table

TABLE = Table(
    "lever",
    {
        "quantize-weights": "penstock.study.explain.levers.weights:Weights",
        "quantize-kv": "penstock.study.explain.levers.kv:KV",
        "larger-batch": "penstock.study.explain.levers.batch:Batch",
        "batching-mode": "penstock.study.explain.levers.batching:BatchingMode",
        "larger-kv-cache": "penstock.study.explain.levers.cache:Cache",
        "speculation": "penstock.study.explain.levers.speculation:Speculation",
        "chunk-size": "penstock.study.explain.levers.chunk:Chunk",
        "prefix-caching": "penstock.study.explain.levers.prefix:Prefix",
        "more-replicas": "penstock.study.explain.levers.replicas:Replicas",
        "other-hardware": "penstock.study.explain.levers.hardware:OtherHardware",
    },
)
