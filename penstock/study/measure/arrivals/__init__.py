"""When requests come: the contract is `Arrivals` in ../load.py."""
from penstock.core.registry import Table

TABLE = Table("arrival process", {
    "closed": "penstock.study.measure.arrivals.closed:Closed",
    "poisson": "penstock.study.measure.arrivals.renewal:Poisson",
    "gamma": "penstock.study.measure.arrivals.renewal:Gamma",
    "constant": "penstock.study.measure.arrivals.renewal:Even",
    "ramp": "penstock.study.measure.arrivals.ramp:Ramp",
    "replay": "penstock.study.measure.arrivals.replay:Replay",
})
