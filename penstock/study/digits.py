"""Figures for people: never in powers of ten."""
import math

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def digits(value: float, count: int = 3) -> str:
    """With so many digits that count, and all of those before the point."""
    return f"{value:,.0f}" if value >= 10 ** (count - 1) else f"{value:.{count}g}"


def duration(seconds: float) -> str:
    """In the largest unit of which it has one at least, down to nanoseconds; less than a thousandth of one is none."""
    size, unit = next((each for each in UNITS if seconds >= each[0]), (1e-9, "ns"))
    return f"{digits(seconds / size) if seconds >= 1e-12 else 0} {unit}"


def rounded_down(value: float, count: int) -> float:
    """To so many digits that count; of a value above 0."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - count)
    return float(f"{math.floor(value / unit * (1 + 1e-12)) * unit:.{count}g}")
