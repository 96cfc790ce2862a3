"""Which request goes first; one `Order` (see `penstock.decide.scheduler.queue`) per file."""
from penstock.core.registry import Table

TABLE = Table(
    "order",
    {
        "fcfs": "penstock.decide.scheduler.order.fcfs:Fcfs",
        "priority": "penstock.decide.scheduler.order.priority:Priority",
        "shortest": "penstock.decide.scheduler.order.shortest:Shortest",
        "deadline": "penstock.decide.scheduler.order.deadline:Deadline",
    },
)
