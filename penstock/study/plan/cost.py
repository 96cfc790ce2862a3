"""What running devices costs: dollars and kilowatt-hours."""
HOURS_A_YEAR = 365.25 * 24


def usd_per_million(usd_per_hour: float, tokens_per_s: float) -> float:
    """Dollars for a million tokens; infinite where none are made."""
    return usd_per_hour / 3600 / tokens_per_s * 1e6 if tokens_per_s else float("inf")


def kwh_per_year(watts: float) -> float:
    """Of devices that draw so much the whole year."""
    return watts * HOURS_A_YEAR / 1000
