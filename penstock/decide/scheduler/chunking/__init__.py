"""How many prompt tokens a step takes besides the tokens of running answers; one `Chunking` (see `contract`) per file."""
from penstock.core.registry import Table

TABLE = Table(
    "chunking",
    {
        "fixed": "penstock.decide.scheduler.chunking.fixed:Fixed",
        "slo": "penstock.decide.scheduler.chunking.slo:Slo",
    },
    also=("auto",),
)
