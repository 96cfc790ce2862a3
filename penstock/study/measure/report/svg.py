"""Plots as SVG that stands in a page: lines, dots and rules between two axes. Colours are the page's, by class; every mark can be asked."""
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 440, 260  # where a phone shows it in 330 pixels, 12 of them are still to be read as 9
LEFT, RIGHT, TOP, BOTTOM = 64, 106, 16, 44
LETTER = 8.8  # about the width of one in a label, in a wide font
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """`ticks`: (value, text) of a scale with marks of its own; else they are chosen."""

    label: str
    low: float
    high: float
    log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()

    def share(self, value: float) -> float:
        """Where a value lies: 0 at `low`, 1 at `high`; what lies outside is put on the edge."""
        if self.log:
            found = math.log(max(value, 1e-300) / self.low) / math.log(self.high / self.low)
        else:
            found = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, found))

    def marks(self) -> Sequence[tuple[float, str]]:
        return self.ticks or [(value, short(value)) for value in (decades(self.low, self.high) if self.log else steps(self.low, self.high))]


@dataclass(frozen=True, slots=True)
class Line:
    points: Sequence[Point]
    label: str
    colour: int = 1  # 1 to 5
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Dots:
    points: Sequence[Point]
    label: str = ""
    colour: int = 1
    radius: float = 2.0


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across the plot at one value of y, such as an objective."""

    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    x: Axis
    y: Axis
    marks: Sequence[Line | Dots | Rule]

    def at(self, point: Point) -> tuple[float, float]:
        return (LEFT + self.x.share(point[0]) * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - self.y.share(point[1]) * (HEIGHT - TOP - BOTTOM))


def draw(chart: Chart) -> str:
    body = [*_frame(chart)]
    labels: list[tuple[float, str, str]] = []
    for mark in chart.marks:
        if isinstance(mark, Line):
            body += _line(chart, mark, labels)
        elif isinstance(mark, Dots):
            body += _dots(chart, mark, labels)
        else:
            _, y = chart.at((chart.x.low, mark.y))
            body.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            labels.append((y, mark.label, "rule-label"))
    body += _labels(labels)
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">\n<title>{escape(chart.title)}</title>\n'
            + "\n".join(body) + "\n</svg>")


def _frame(chart: Chart) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value, text in chart.y.marks():
        _, y = chart.at((chart.x.low, value))
        yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'
    for value, text in chart.x.marks():
        x, _ = chart.at((value, chart.y.low))
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(text)}</text>'
    yield f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>'
    yield f'<text class="name" x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(chart.x.label)}</text>'
    yield f'<text class="name" x="14" y="{(TOP + bottom) / 2}" text-anchor="middle" transform="rotate(-90 14 {(TOP + bottom) / 2})">' \
          f"{escape(chart.y.label)}</text>"


def _line(chart: Chart, mark: Line, labels: list[tuple[float, str, str]]) -> Iterator[str]:
    if not mark.points:
        return
    placed = [chart.at(point) for point in mark.points]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
    dashes = ' stroke-dasharray="5 3"' if mark.dashed else ""
    yield f'<path class="line c{mark.colour}" d="{path}"{dashes}><title>{escape(mark.label)}</title></path>'
    labels.append((placed[-1][1], mark.label, f"t{mark.colour}"))


def _dots(chart: Chart, mark: Dots, labels: list[tuple[float, str, str]]) -> Iterator[str]:
    for point in mark.points:
        x, y = chart.at(point)
        said = f"{mark.label} {chart.x.label}: {short(point[0])}, {chart.y.label}: {short(point[1])}".strip()
        yield f'<circle class="dot d{mark.colour}" cx="{x:.1f}" cy="{y:.1f}" r="{mark.radius:g}"><title>{escape(said)}</title></circle>'
    if len(mark.points) == 1 and mark.label:
        yield _beside(chart.at(mark.points[0]), mark)
    elif mark.points and mark.label:
        labels.append((chart.at(mark.points[-1])[1], mark.label, f"t{mark.colour}"))


def _beside(place: Point, mark: Dots) -> str:
    """The name of a single dot: to its right, else to its left; under a roof there is room below."""
    x, y = place
    gap = mark.radius + 4
    right = x + gap + LETTER * len(mark.label) <= WIDTH - RIGHT
    at = f'x="{x + gap if right else x - gap:.1f}" y="{min(y + 4, HEIGHT - BOTTOM - 4):.1f}" text-anchor="{"start" if right else "end"}"'
    return f'<text class="label t{mark.colour}" {at}>{escape(mark.label)}</text>'


def _labels(labels: list[tuple[float, str, str]]) -> Iterator[str]:
    """At the right edge beside their marks, pushed apart where they would meet: down, and up from the lower edge."""
    last, most, places = 0.0, HEIGHT - BOTTOM + 4.0, []
    for y, text, kind in sorted(labels):
        last = max(y + 4, last + 13)
        places.append((last, text, kind))
    for y, text, kind in reversed(places):
        most = min(y, most)
        yield f'<text class="label {kind}" x="{WIDTH - RIGHT + 6}" y="{most:.1f}">{escape(text)}</text>'
        most -= 13


def steps(low: float, high: float, count: int = 5) -> list[float]:
    """Some `count` round values between two: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / count
    power = 10 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten between two; where those are few, 2 and 5 times as well, and between bounds that are near each other round values."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 2, 5)):
        found = [factor * 10.0**power for power in powers for factor in factors if low * 0.999 <= factor * 10.0**power <= high * 1.001]
        if len(found) >= 3:
            return found
    return steps(low, high)


def short(value: float) -> str:
    """Three digits and a prefix: 12345 -> 12.3k."""
    size = abs(value)
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= limit * 0.9995:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def spread(values: Sequence[float], log: bool = False) -> tuple[float, float]:
    """Bounds of an axis that holds all values; from zero on unless it is logarithmic."""
    known = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    if not known:
        return (1.0, 10.0) if log else (0.0, 1.0)
    low, high = (min(known), max(known)) if log else (0.0, max(known))
    if log:
        return (low / 1.2, high * 1.2)
    return (low, high * 1.05 if high > low else low + 1.0)
