"""Which of several engines a request is sent to; one `Router` (see `contract`) per file."""
from penstock.core.registry import Table

TABLE = Table(
    "routing policy",
    {
        "round_robin": "penstock.decide.routing.round_robin:RoundRobin",
        "least_loaded": "penstock.decide.routing.least_loaded:LeastLoaded",
        "prefix": "penstock.decide.routing.prefix:Prefix",
    },
    also=("auto",),
)
