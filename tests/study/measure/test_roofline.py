"""The plot holds a line for each type, its ceiling where its rate is, and names the ridge points."""
import pytest

from penstock.core.hardware import Hardware
from penstock.study.measure.roofline import INTENSITY, Axes, Size, attainable, dots, draw, si

HARDWARE = Hardware("box", {1 << 20: 2e11, 1 << 30: 4e10}, {"fp32": 2e11, "bf16": 8e11, "int8": 6.4e12})
SIZE = Size(40, 12)


def text(hardware: Hardware) -> list[str]:
    return ["".join(cell.text for cell in line) for line in draw(hardware, SIZE.rows)]


def test_memory_binds_below_the_ridge_and_arithmetic_above() -> None:
    ridge = HARDWARE.ridge("bf16")
    assert ridge == 20
    assert attainable(HARDWARE, "bf16", ridge / 2) == 4e11 and attainable(HARDWARE, "bf16", ridge * 7) == 8e11


def test_a_line_rises_to_its_ceiling_without_gaps() -> None:
    axes = Axes(SIZE, 4e9, 1e13)
    found = sorted(dots(HARDWARE, "bf16", axes), key=lambda dot: (dot[1], -dot[0]))
    assert {column for _, column in found} == set(range(80))
    rows = [row for row, _ in found]
    assert all(0 <= before - after <= 1 for before, after in zip(rows, rows[1:], strict=False))
    assert rows[0] == 47 and rows[-1] == axes.row(8e11)


def test_axes_are_logarithmic() -> None:
    axes = Axes(SIZE, 1e9, 1e13)
    assert (axes.row(1e13), axes.row(1e9), axes.column(0.1), axes.column(1000.0)) == (0, 47, 0, 79)
    assert axes.intensity(axes.column(10.0)) == pytest.approx(10, rel=0.1)
    assert axes.row(1e10) - axes.row(1e11) == pytest.approx(axes.row(1e12) - axes.row(1e13), abs=1)


def test_the_plot_names_types_and_ridge_points() -> None:
    lines = text(HARDWARE)
    plot = lines[: SIZE.rows]
    order = [line.split()[-1] for line in plot if line.rstrip().endswith(("fp32", "bf16", "int8"))]
    assert order == ["int8", "bf16", "fp32"]
    assert any(line.strip().startswith("1 Top/s") for line in plot) and "op/byte" in lines[SIZE.rows + 1]
    assert [line.split()[0] for line in lines[-3:]] == ["int8:", "bf16:", "fp32:"]
    assert "800 Gop/s" in lines[-2] and "20 op/byte" in lines[-2]


def test_types_of_one_rate_share_a_label() -> None:
    lines = text(Hardware("box", {1: 1e10}, {"fp32": 1e11, "bf16": 1e11}))
    assert sum("fp32" in line and "bf16" in line for line in lines[: SIZE.rows]) == 1


@pytest.mark.parametrize("rates", [
    {"fp32": 1e11}, {"fp32": 1e11, "bf16": 2e11, "int8": 6.4e12},
    {"fp32": 4.7e11, "bf16": 6.92e12, "int16": 6.86e12, "int8": 1.39e13}, dict.fromkeys(("fp32", "bf16", "int16", "int8"), 1e11)])
def test_a_terminal_of_80_columns_has_room(rates: dict[str, float]) -> None:
    lines = text(Hardware("box", {1: 1e10}, rates))
    assert max(map(len, lines)) <= 80 and any(line.endswith(f"1000 {INTENSITY}") for line in lines)


@pytest.mark.parametrize(("columns", "widest"), [(200, 80), (80, 80), (63, 63), (50, 50), (20, 50)])
def test_the_plot_is_as_wide_as_the_terminal(columns: int, widest: int) -> None:
    rates = {"fp32": 4.7e11, "bf16": 6.92e12, "int16": 6.86e12, "int8": 1.39e13}
    lines = ["".join(cell.text for cell in line) for line in draw(Hardware("box", {1: 1e10}, rates), SIZE.rows, columns)]
    plot = lines[: SIZE.rows + 2]
    assert max(map(len, plot)) == widest and plot[-1].split() == ["0.1", "1", "10", "100", "1000", INTENSITY]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_terminal_without_braille_has_the_same_plot(encoding: str) -> None:
    lines, plain = draw(HARDWARE, SIZE.rows, encoding="utf-8"), draw(HARDWARE, SIZE.rows, encoding=encoding)
    assert lines == draw(HARDWARE, SIZE.rows)
    for line, other in zip(lines, plain, strict=True):
        assert [(len(cell.text), cell.text == " ", cell.dtype) for cell in line] == [
            (len(cell.text), cell.text == " ", cell.dtype) for cell in other]
    told = ["".join(cell.text for cell in line) for line in plain]
    assert all(line.encode(encoding).isascii() for line in told)
    assert told[0].endswith(".... int8") and told[SIZE.rows].strip().startswith("++-")
    assert {mark for line in told[: SIZE.rows] for mark in line[12:40]} == set(" .':")


def test_without_rates_there_is_no_plot() -> None:
    assert draw(Hardware("box", {1: 1e10}, {})) == []


@pytest.mark.parametrize(("value", "said"), [
    (0.5, "0.5 "), (999.4, "999 "), (999.6, "1 k"), (4.62e11, "462 G"), (9.999e11, "1 T"), (1.2e13, "12 T"), (2e15, "2 P")])
def test_numbers_have_three_digits_and_a_prefix(value: float, said: str) -> None:
    assert si(value) == said
