"""Products are timed through the backend's own kernels, in every weight format."""
import pytest

from penstock.compute.formats import CODES, product_form
from penstock.study.measure import products
from penstock.study.measure.products import FORMATS, GROUPED, INNER, ROWS, STREAMED, STREAMED_ROWS, exposed_reading, product_rates


def test_every_format_is_measured_with_few_rows_and_many() -> None:
    pytest.importorskip("penstock._native", reason="the native module is not installed")
    found = product_rates(1)
    assert list(found) == [
        (form, inner, rows) for form in FORMATS for inner in INNER if inner == max(INNER) or form not in GROUPED for rows in ROWS]
    assert all(1e6 < rate < 1e15 for rate in found.values())


def test_formats_are_called_by_what_chooses_their_kernels() -> None:
    codings = {form: coding for form, (coding, _, rounds) in FORMATS.items() if coding is not None and not rounds}
    assert codings.keys() == set(CODES)
    for form, coding in codings.items():
        assert product_form(coding, max(INNER)) == form


def test_what_reading_adds_is_a_share_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against rates that no kernel reaches products take longer by far; against those that every one exceeds, by nothing. More rows never
    have more of it than a few."""
    pytest.importorskip("penstock._native", reason="the native module is not installed")
    monkeypatch.setattr(products, "STREAMS", (2 << 20,))
    points = [(form, 2 << 20, rows) for form in STREAMED for rows in STREAMED_ROWS]
    for rate, shares in ((1e20, {products.MOST_EXPOSED}), (1.0, {products.LEAST_EXPOSED})):
        rates = {(form, max(INNER), rows): rate for form in STREAMED for rows in STREAMED_ROWS}
        found = exposed_reading(1, rates, lambda size, threads: 1e15, 1 << 40)
        assert list(found) == points and set(found.values()) == shares


def test_no_more_is_read_than_may_be_and_it_is_called_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads have matrices so large that the fewest, two, are more than the bytes meant."""
    pytest.importorskip("penstock._native", reason="the native module is not installed")
    monkeypatch.setattr(products, "STREAMS", (1 << 20, 2 << 20))
    monkeypatch.setattr(products, "STREAMED", ("bf16",))
    rates = {("bf16", max(INNER), rows): 1e20 for rows in STREAMED_ROWS}
    asked: list[int] = []

    def bandwidth(size: int, threads: int) -> float:
        asked.append(size)
        return 1e15

    found = exposed_reading(2, rates, bandwidth, 3 << 20)
    sizes = {size for _, size, _ in found}
    assert len(sizes) == 1 and set(asked) == sizes and 2 << 20 <= sizes.pop() <= 3 << 20
    assert exposed_reading(2, rates, bandwidth, 1 << 20) == {}
