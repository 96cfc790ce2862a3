"""May this sequence enter now? One `Batching` (see `penstock.decide.scheduler.entry`) per file."""
from penstock.core.registry import Table

TABLE = Table(
    "batching mode",
    {
        "continuous": "penstock.decide.scheduler.batching.continuous:Continuous",
        "dynamic": "penstock.decide.scheduler.batching.dynamic:Dynamic",
        "static": "penstock.decide.scheduler.batching.static:Static",
    },
)
