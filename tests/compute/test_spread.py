"""What expert parallelism leaves to the busiest device, against experts that are drawn."""
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.compute.spread import PREFERENCE, Spread


def drawn(experts: int, active: int, devices: int, rows: int, rng: random.Random) -> tuple[float, float]:
    """(share of its experts that the device reads which reads most, rows of the busiest over the mean), every expert as likely."""
    each = experts // devices
    sent = [0] * experts
    for _ in range(rows):
        for expert in rng.sample(range(experts), active):
            sent[expert] += 1
    owned = [sent[first:first + each] for first in range(0, experts, each)]
    return max(sum(map(bool, own)) for own in owned) / each, max(map(sum, owned)) * devices / (rows * active)


@pytest.mark.parametrize(("experts", "active", "devices"), [(128, 8, 8), (256, 8, 8), (128, 4, 2), (256, 8, 4), (8, 2, 8)])
@pytest.mark.parametrize("rows", [1, 8, 32, 128])
def test_the_busiest_device_reads_as_much_as_where_experts_are_drawn(experts: int, active: int, devices: int, rows: int) -> None:
    rng = random.Random(rows)
    tries = [drawn(experts, active, devices, rows, rng)[0] for _ in range(200)]
    assert Spread(experts, active, devices).read(rows) == pytest.approx(sum(tries) / len(tries), rel=0.1)


def test_a_device_has_as_many_more_rows_as_was_measured_of_deepseek_r1() -> None:
    """TensorRT-LLM's blog 4: 32 devices, rows over all layers 1,024 on average, with a standard deviation of 491.7."""
    told = Spread(256, 8, 32)
    assert pytest.approx(491.7 / 1024, rel=0.01) == PREFERENCE * (32 / 256)**0.5
    assert told.load(1e6) == pytest.approx(1 + told.above * 491.7 / 1024, rel=0.01) and 2 < told.above < 2.1
    assert told.load(16) > told.load(1024) > told.load(1e6), "few rows are uneven by chance besides"


@given(st.sampled_from([(8, 2), (128, 4), (128, 8), (256, 8)]), st.integers(0, 3), st.floats(0.5, 1e5))
def test_more_devices_are_no_more_even_and_no_less_is_read(sizes: tuple[int, int], power: int, rows: float) -> None:
    one, many = Spread(*sizes), Spread(*sizes, 1 << power)
    assert one.load(rows) == 1 and 1 <= many.load(rows) <= 1 << power
    assert one.read(rows) <= many.read(rows) <= 1 and many.read(rows) <= many.read(2 * rows) + 1e-9
    assert one.each(rows) == many.each(rows) >= 1
