"""Bytes are told in the unit that suits them."""
import pytest

from penstock.core.size import size


@pytest.mark.parametrize(("num_bytes", "told"), [
    (0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (17_867_000, "17.04 MiB"), ((1 << 30) - 1, "1024 MiB"), (1 << 30, "1 GiB"),
    (3 << 40, "3.0 TiB"), (20_000 << 40, "20,000.0 TiB")])
def test_the_unit_suits_the_number(num_bytes: int, told: str) -> None:
    assert size(num_bytes) == told
