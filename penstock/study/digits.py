"""Figures for people: never in powers of ten."""
import math


def digits(value: float, count: int = 3) -> str:
    """With so many digits that count, and all of those before the point."""
    return f"{value:,.0f}" if value >= 10 ** (count - 1) else f"{value:.{count}g}"


def rounded_down(value: float, count: int) -> float:
    """To so many digits that count; of a value above 0."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - count)
    return float(f"{math.floor(value / unit * (1 + 1e-12)) * unit:.{count}g}")
