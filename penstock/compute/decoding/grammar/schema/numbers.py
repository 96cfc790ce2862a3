"""Numbers as floating point has them: what every validator agrees on, whether it counts in binary or in decimal."""
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from penstock.compute.decoding.grammar.schema.errors import UnsupportedError
from penstock.compute.decoding.grammar.schema.records import Bound, Number, Numbers

DIGITS = 15  # that every decimal number keeps as a double
STEP_DIGITS = 9  # of what numbers may be multiples of
MOST_REMAINDERS = 100_000  # 100 MB and a second to compile
EXACT = 1 << 53  # up to here every integer is a double


def meet_numbers(a: Numbers, b: Numbers) -> Numbers | None:
    """None: there is no such number."""
    values = a.values if b.values is None else b.values if a.values is None else tuple(each for each in a.values if each in b.values)
    found = Numbers(
        a.integer or b.integer, higher(a.low, b.low), lower(a.high, b.high), tuple(dict.fromkeys((*a.multiples, *b.multiples))), values)
    if found.values is not None:
        left = tuple(value for value in found.values if fits(value, found))
        return Numbers(values=left) if left else None
    return None if is_empty(found) else found


def higher(a: Bound | None, b: Bound | None) -> Bound | None:
    if a is None or b is None:
        return b if a is None else a
    return max(a, b, key=lambda bound: (bound.value, bound.is_open))


def lower(a: Bound | None, b: Bound | None) -> Bound | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b, key=lambda bound: (bound.value, not bound.is_open))


def fits(value: Number, wanted: Numbers) -> bool:
    """Whether a number is as all but the listed values want it."""
    low, high = wanted.low, wanted.high
    if wanted.integer and value != int(value):
        return False
    if low is not None and (value < low.value or (low.is_open and value == low.value)):
        return False
    if high is not None and (value > high.value or (high.is_open and value == high.value)):
        return False
    return all(is_multiple(value, of) for of in wanted.multiples)


def is_multiple(value: Number, of: Number) -> bool:
    """By decimal arithmetic and by binary."""
    return Fraction(str(value)) % Fraction(str(of)) == 0 and (isinstance(of, int) or int(value / of) == value / of)


def is_empty(wanted: Numbers) -> bool:
    """Whether bounds, and for integers multiples, leave nothing."""
    low, high = wanted.low, wanted.high
    if low is None or high is None:
        return False
    if low.value > high.value or (low.value == high.value and (low.is_open or high.is_open)):
        return True
    step = step_of(wanted)
    if step is None:
        return False
    first, last = Fraction(str(low.value)) / step, Fraction(str(high.value)) / step
    at = math.floor(first) + 1 if low.is_open else math.ceil(first)
    return at >= last if high.is_open else at > last


def step_of(wanted: Numbers) -> Fraction | None:
    """All of them are multiples of this; None: of nothing."""
    steps = [Fraction(1)] if wanted.integer else []
    steps += [binary(Fraction(str(of))) for of in wanted.multiples]
    step = steps[0] if steps else None
    for each in steps[1:]:
        assert step is not None
        step = Fraction(math.lcm(step.numerator * each.denominator, each.numerator * step.denominator), step.denominator * each.denominator)
    return step


def binary(step: Fraction) -> Fraction:
    """The least multiple of a step that floating point holds exactly: whether 0.07 is a multiple of 0.01 depends on who divides, whether
    0.25 is does not."""
    rest = step.denominator
    while rest % 2 == 0:
        rest //= 2
    return step * rest


def written(wanted: Numbers) -> dict[str, Number | str]:
    """As llguidance reads it. Raises UnsupportedError for multiples that it would read as something else."""
    found: dict[str, Number | str] = {"type": "integer" if wanted.integer else "number"}
    for bound, name, inward in ((wanted.low, "minimum", 1), (wanted.high, "maximum", -1)):
        if bound is not None:
            value, is_open = bound.value, bound.is_open
            if abs(value) > EXACT and float(value) != value:
                value, is_open = inside(value, inward), False
            elif is_open and value and not wanted.integer:
                value, is_open = just_inside(value, inward), False
            found["exclusive" + name.capitalize() if is_open else name] = value
    step = step_of(replace(wanted, integer=False))
    if step is not None:
        size = float(step)
        if Fraction(size) != step or len(f"{size:.20f}".strip("0").replace(".", "")) > STEP_DIGITS:
            raise UnsupportedError(f"multipleOf {' and '.join(map(str, wanted.multiples))} has more digits than can be checked exactly")
        if remainders(step) > MOST_REMAINDERS:
            raise UnsupportedError(f"multipleOf {' and '.join(map(str, wanted.multiples))} leaves {remainders(step):,} remainders; at most "
                                   f"{MOST_REMAINDERS:,} are told apart")
        found["multipleOf"] = int(step) if step.denominator == 1 else size
    return found


def remainders(step: Fraction) -> int:
    """That numbers may leave, of which a grammar needs a state for each; zeros at the end of a step cost nothing."""
    rest = step.numerator
    while rest % 10 == 0:
        rest //= 10
    return rest


def just_inside(value: Number, inward: int) -> float:
    """Beside a bound that is left out, at the last of the digits that a double always has: a number with more digits, such as 0.999...9,
    could be read as the bound itself."""
    digits = math.floor(math.log10(abs(value)))
    return float(Decimal(str(value)) + inward * Decimal(10) ** (digits - DIGITS + 1))


def inside(value: Number, inward: int) -> float:
    """The nearest double that is not beyond a bound."""
    near = float(value)
    beyond = near < value if inward > 0 else near > value
    return math.nextafter(near, inward * math.inf) if beyond else near
