"""Products are timed through the backend's own kernels, in every weight format."""
import pytest

from penstock.study.measure import products
from penstock.study.measure.products import FORMATS, INNER, ROWS, STREAMED, STREAMED_ROWS, exposed_reading, product_rates


def test_every_format_is_measured_with_few_rows_and_many() -> None:
    pytest.importorskip("penstock._native", reason="the native module is not installed")
    found = product_rates(1)
    assert list(found) == [(form, inner, rows) for form in FORMATS for inner in INNER for rows in ROWS]
    assert all(1e6 < rate < 1e15 for rate in found.values())


def test_what_reading_adds_is_a_share_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against rates that no kernel reaches products take longer by far; against those that every one exceeds, by nothing. More rows never
    have more of it than a few."""
    pytest.importorskip("penstock._native", reason="the native module is not installed")
    monkeypatch.setattr(products, "STREAMS", (2 << 20,))
    points = [(form, 2 << 20, rows) for form in STREAMED for rows in STREAMED_ROWS]
    for rate, shares in ((1e20, {products.MOST_EXPOSED}), (1.0, {products.LEAST_EXPOSED})):
        rates = {(form, max(INNER), rows): rate for form in STREAMED for rows in STREAMED_ROWS}
        found = exposed_reading(1, rates, lambda size, threads: 1e15)
        assert list(found) == points and set(found.values()) == shares
