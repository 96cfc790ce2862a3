"""Products are timed through the backend's own kernels, in every weight format."""
import pytest

from penstock.study.measure.products import FORMATS, INNER, ROWS, product_rates


def test_every_format_is_measured_with_few_rows_and_many() -> None:
    pytest.importorskip("penstock._native", reason="the native module is not installed")
    found = product_rates(1)
    assert list(found) == [(form, inner, rows) for form in FORMATS for inner in INNER for rows in ROWS]
    assert all(1e6 < rate < 1e15 for rate in found.values())
