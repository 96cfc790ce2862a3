"""A roofline drawn in the terminal: operations a second that can be reached, by operations for each byte of memory, both in logarithms.

Method: Williams, Waterman, Patterson, "Roofline", 2009. Dots are those of braille, two by four in a character; where it has no braille, the
upper and the lower half of a character are told apart.
"""
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.core.hardware import Hardware

BRAILLE = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # [row][column] of a character
UPPER, LOWER = sum(map(sum, DOTS[:2])), sum(map(sum, DOTS[2:]))
ASCII = str.maketrans("┤└─┴", "|+-+") | {
    BRAILLE + dots: ":" if dots & UPPER and dots & LOWER else "'" if dots & UPPER else "." for dots in range(1, 1 << 8)}
LEFT, RIGHT = 0.1, 1000.0  # operations for a byte
WIDTH, NARROW = 80, 50  # of the whole, in characters: at most, at least
MARGIN = 12  # of them for the rates on the left
INTENSITY = "op/byte"


@dataclass(frozen=True, slots=True)
class Size:
    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Axes:
    """Where an intensity and a rate lie among the dots; the first row is the highest."""

    size: Size
    bottom: float  # operations a second
    top: float

    def column(self, intensity: float) -> int:
        return round(_share(intensity, LEFT, RIGHT) * (2 * self.size.columns - 1))

    def row(self, rate: float) -> int:
        return round((1 - _share(rate, self.bottom, self.top)) * (4 * self.size.rows - 1))

    def intensity(self, column: int) -> float:
        return float(LEFT * (RIGHT / LEFT) ** (column / (2 * self.size.columns - 1)))


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    dtype: str | None = None  # whose line it belongs to


def draw(hardware: Hardware, rows: int = 14, width: int | None = None, encoding: str | None = None) -> list[list[Cell]]:
    """Lines of cells: the plot and its axis, no wider than WIDTH and than a terminal of `width` characters, where that has NARROW of them,
    and the ridge points. The line of a slower type covers that of a faster one where they meet. `encoding`: that it will be written in;
    None: any."""
    dtypes = sorted(hardware.ops_per_s, key=lambda dtype: -hardware.ops_per_s[dtype])
    if not dtypes:
        return []
    bandwidth = hardware.memory_bandwidth()
    bottom, top = LEFT * bandwidth, 1.5 * hardware.ops_per_s[dtypes[0]]
    labels = labels_of(hardware, dtypes, Axes(Size(1, rows), bottom, top))
    whole = WIDTH if width is None else min(WIDTH, max(NARROW, width))
    size = Size(whole - MARGIN - max(len(f"{RIGHT:g} {INTENSITY}") - 1, *(len(label) for label in labels.values())), rows)
    axes = Axes(size, bottom, top)
    grid = [[0] * size.columns for _ in range(size.rows)]
    owners: list[list[str | None]] = [[None] * size.columns for _ in range(size.rows)]
    for dtype in dtypes:
        for row, column in dots(hardware, dtype, axes):
            grid[row // 4][column // 2] |= DOTS[row % 4][column % 2]
            owners[row // 4][column // 2] = dtype
    lines = []
    for row, (patterns, names) in enumerate(zip(grid, owners, strict=True)):
        cells = [Cell(f"{_tick(axes, row):>10} ┤")]
        cells += [Cell(chr(BRAILLE + dot) if dot else " ", name) for dot, name in zip(patterns, names, strict=True)]
        lines.append(cells + [Cell(f" {dtype}", dtype) for dtype in labels.get(row, "").split()])
    lines += [[Cell(text)] for text in _axis(size)]
    lines += [[Cell(text, dtype)] for dtype, text in ridges(hardware, dtypes)]
    return lines if has_dots(encoding) else [[replace(cell, text=cell.text.translate(ASCII)) for cell in line] for line in lines]


def has_dots(encoding: str | None) -> bool:
    try:
        chr(BRAILLE).encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def labels_of(hardware: Hardware, dtypes: list[str], axes: Axes) -> dict[int, str]:
    """The types whose ceilings are in a row, with a space before each."""
    found: dict[int, str] = {}
    for dtype in dtypes:
        row = axes.row(hardware.ops_per_s[dtype]) // 4
        found[row] = f"{found.get(row, '')} {dtype}"
    return found


def dots(hardware: Hardware, dtype: str, axes: Axes) -> Iterator[tuple[int, int]]:
    """(row, column) of each dot of a type's line: the slope of the memory, then the type's own ceiling; without gaps."""
    last = None
    for column in range(2 * axes.size.columns):
        row = axes.row(attainable(hardware, dtype, axes.intensity(column)))
        if row < 4 * axes.size.rows:
            yield from ((each, column) for each in range(row, max(row, (row if last is None else last) - 1) + 1))
        last = row


def attainable(hardware: Hardware, dtype: str, intensity: float) -> float:
    """Operations a second at so many operations for each byte read from memory."""
    return min(hardware.ops_per_s[dtype], intensity * hardware.memory_bandwidth())


def ridges(hardware: Hardware, dtypes: list[str]) -> Iterator[tuple[str, str]]:
    """(type, sentence) of each ridge point, where reading stops to bind."""
    for dtype in dtypes:
        yield dtype, f"{dtype:>12}: {si(hardware.ops_per_s[dtype])}op/s from the ridge point at {hardware.ridge(dtype):.3g} op/byte on"


def si(value: float) -> str:
    """Three digits and a prefix of ten: 4.62e11 -> "462 G"."""
    for prefix in ("", "k", "M", "G", "T"):
        if value < 999.5:
            return f"{value:.3g} {prefix}"
        value /= 1000
    return f"{value:.3g} P"


def _tick(axes: Axes, row: int) -> str:
    """The decade whose middle row this is, if any."""
    first = math.ceil(math.log10(axes.bottom))
    for power in range(first, math.floor(math.log10(axes.top)) + 1):
        if axes.row(10.0**power) // 4 == row:
            return f"{si(10.0**power)}op/s"
    return ""


def _axis(size: Size) -> Iterator[str]:
    decades = round(math.log10(RIGHT / LEFT))
    line, marks = ["─"] * size.columns, [" "] * (size.columns + 6)
    for decade in range(decades + 1):
        at = round(decade / decades * (size.columns - 1))
        line[at] = "┴"
        text = f"{LEFT * 10**decade:g}"
        marks[at : at + len(text)] = text
    yield " " * (MARGIN - 1) + "└" + "".join(line)
    yield " " * MARGIN + "".join(marks).rstrip() + f" {INTENSITY}"


def _share(value: float, low: float, high: float) -> float:
    """Where a value lies between two, in logarithms: 0 at `low`, 1 at `high`."""
    return math.log(value / low) / math.log(high / low)
