"""Products are timed through the backend's own kernels, in every weight format."""
from collections.abc import Callable

import pytest

from penstock.study.measure import products
from penstock.study.measure.products import FORMATS, INNER, ROWS, STREAMED, STREAMED_ROWS, Products, exposed_reading


def test_every_format_is_measured_with_few_rows_and_many() -> None:
    pytest.importorskip("penstock._native", reason="the native module is not installed")
    multiplied = Products(1)
    for found in (multiplied.rates(), multiplied.rates()):
        assert list(found) == [(form, inner, rows) for form in FORMATS for inner in INNER for rows in ROWS]
        assert all(1e6 < rate < 1e15 for rate in found.values())


@pytest.mark.parametrize(("added_s", "bandwidth", "shares"), [
    (1e-9, 1.0, {products.LEAST_EXPOSED}), (1e-3, 1e15, {products.MOST_EXPOSED}), (1e-3, (2 << 20) / 2e-3, {0.5}),
    (-1e-3, 1e15, {products.LEAST_EXPOSED})])
def test_what_reading_adds_is_a_share_of_its_time(
        monkeypatch: pytest.MonkeyPatch, added_s: float, bandwidth: float, shares: set[float]) -> None:
    """However long the products themselves take at the moment; more rows never have more of it than a few."""

    class Slowing:
        """A machine that takes twice as long for everything, each time that reading is timed."""

        now_s = 0.5

        def __init__(self, form: str, inner: int, threads: int, names: list[str]) -> None:
            self.count, self.weight_bytes, self.reads = len(names), len(set(names)) << 20, len(set(names)) > 1

        def timer(self, rows: int) -> Callable[[], float]:
            def timed() -> float:
                if self.reads:
                    Slowing.now_s *= 2
                return Slowing.now_s * self.count + (added_s if self.reads else 0.0)

            Slowing.now_s = 2**-30
            return timed

    monkeypatch.setattr(products, "Chain", Slowing)
    monkeypatch.setattr(products, "STREAMS", (2 << 20,))
    found = exposed_reading(1, lambda size, threads: bandwidth, 1 << 40)
    assert list(found) == [(form, 2 << 20, rows) for form in STREAMED for rows in STREAMED_ROWS]
    assert {round(share, 3) for share in found.values()} == shares


def test_no_more_is_read_than_may_be_and_it_is_called_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads have matrices so large that the fewest, two, are more than the bytes meant."""
    pytest.importorskip("penstock._native", reason="the native module is not installed")
    monkeypatch.setattr(products, "STREAMS", (1 << 20, 2 << 20))
    monkeypatch.setattr(products, "STREAMED", ("bf16",))
    asked: list[int] = []

    def bandwidth(size: int, threads: int) -> float:
        asked.append(size)
        return 1e15

    found = exposed_reading(2, bandwidth, 3 << 20)
    sizes = {size for _, size, _ in found}
    assert len(sizes) == 1 and set(asked) == sizes and 2 << 20 <= sizes.pop() <= 3 << 20
    assert exposed_reading(2, bandwidth, 1 << 20) == {}
