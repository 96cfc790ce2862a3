"""The controllers by name, as `--draft-control` takes them."""
from collections.abc import Callable, Sequence

from penstock.compute.decoding.control.contract import Always, Controller
from penstock.compute.decoding.control.patient import Patient
from penstock.core.errors import UsageError

ALWAYS, PATIENT = "always", "patient"
NAMES = (PATIENT, ALWAYS)


def make(name: str, max_drafts: int, measured: Callable[[], tuple[Sequence[float], float, float]]) -> Controller:
    """`max_drafts` of a sequence; `measured`: the times that a controller with prices needs, as `Patient` has them.

    Raises UsageError for a name that there is none of, as an older version may have written it to a file.
    """
    if name not in NAMES:
        raise UsageError(f"unknown draft controller {name!r}; known: {', '.join(NAMES)}")
    if name == ALWAYS:
        return Always(max_drafts)
    step_s, context_s, pair_s = measured()
    return Patient(step_s, max_drafts, context_s, pair_s)
