"""The controllers by name, as `--draft-control` takes them."""
from collections.abc import Callable, Sequence

from penstock.compute.decoding.control.contract import Always, Controller
from penstock.compute.decoding.control.patient import Patient

ALWAYS, PATIENT = "always", "patient"
NAMES = (ALWAYS, PATIENT)


def make(name: str, max_drafts: int, measured: Callable[[], tuple[Sequence[float], float, float]]) -> Controller:
    """`max_drafts` of a sequence; `measured`: the times that a controller with prices needs, as `Patient` has them."""
    if name == ALWAYS:
        return Always(max_drafts)
    step_s, context_s, pair_s = measured()
    return Patient(step_s, max_drafts, context_s, pair_s)
