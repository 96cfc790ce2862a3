"""What running devices costs: dollars and kilowatt-hours. What a part's price or power is needed for is None where it is not given."""
from typing import Any

from penstock.core.catalogue.part import Part

HOURS_A_YEAR = 365.25 * 24


def usd_per_million(usd_per_hour: float, tokens_per_s: float) -> float | None:
    """Dollars for a million tokens; None where none are made."""
    return usd_per_hour / 3600 / tokens_per_s * 1e6 if tokens_per_s else None


def kwh_per_year(watts: float) -> float:
    """Of devices that draw so much the whole year."""
    return watts * HOURS_A_YEAR / 1000


def bill(part: Part, devices: int, good_per_s: float, tokens_per_s: float) -> dict[str, Any]:
    """Fields of a Configuration. `good_per_s`: requests that keep the SLO, of which a dollar buys no number where devices cost nothing."""
    dollars = None if part.price is None else devices * part.price
    watts = None if part.power is None else devices * part.power
    return {
        "usd_per_hour": dollars, "watts": watts, "goodput_per_usd": good_per_s * 3600 / dollars if dollars else None,
        "usd_per_million_output_tokens": None if dollars is None else usd_per_million(dollars, tokens_per_s),
        "kwh_per_year": None if watts is None else kwh_per_year(watts)}
