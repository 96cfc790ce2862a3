"""A number that a file or a server told: nothing is computed with one that cannot be."""
from typing import Any

MOST = 1e18  # of whatever is counted or timed here


def amount(told: Any) -> float:
    """A number from 0 on. Raises ValueError for anything else."""
    if type(told) not in (int, float) or not 0 <= told < MOST:
        raise ValueError(f"{told!r:.40} is no number from 0 on")
    return float(told)


def above_zero(told: Any) -> float:
    """Raises ValueError for what is no number above 0."""
    if not (found := amount(told)):
        raise ValueError("0 is no number above 0")
    return found
