"""Which requests are admitted at all; one `Admission` (see `contract`) per file."""
from penstock.core.registry import Table

TABLE = Table(
    "admission",
    {
        "none": "penstock.decide.scheduler.admission.none:Everybody",
        "deadline": "penstock.decide.scheduler.admission.deadline:Deadline",
    },
    also=("auto",),
)
