"""The controllers by name, as `--draft-control` takes them."""
from collections.abc import Callable, Sequence

from penstock.compute.decoding.control.contract import Always, Controller
from penstock.compute.decoding.control.patient import Patient
from penstock.compute.decoding.control.priced import Priced

ALWAYS, PATIENT, PRICED = "always", "patient", "priced"
NAMES = (ALWAYS, PATIENT, PRICED)


def make(name: str, max_drafts: int, measured: Callable[[], tuple[Sequence[float], float, float]]) -> Controller:
    """`max_drafts` of a sequence; `measured`: the times that a controller with prices needs, as `Priced` has them."""
    if name == ALWAYS:
        return Always(max_drafts)
    step_s, context_s, pair_s = measured()
    return (Patient if name == PATIENT else Priced)(step_s, max_drafts, context_s, pair_s)
