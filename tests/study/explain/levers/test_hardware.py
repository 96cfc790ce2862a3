from dataclasses import replace

from penstock.core.catalogue.read import Catalogue
from penstock.study.explain.levers.hardware import costs


def test_of_price_and_power_what_is_known_is_told() -> None:
    part = replace(Catalogue().part("l4"), price=0.8, power=72.0)
    assert costs(part) == ("0.8 dollars an hour, 72 W",) and costs(replace(part, power=None)) == ("0.8 dollars an hour",)
    assert costs(replace(part, price=None)) == ("72 W",) and costs(replace(part, price=None, power=None)) == ()
