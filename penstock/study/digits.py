"""Figures for people: never in powers of ten."""


def digits(value: float, count: int = 3) -> str:
    """With so many digits that count, and all of those before the point."""
    return f"{value:,.0f}" if value >= 10 ** (count - 1) else f"{value:.{count}g}"
