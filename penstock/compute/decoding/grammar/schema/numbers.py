"""Numbers as floating point has them: what every validator agrees on, whether it counts in binary or in decimal."""
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any

from penstock.compute.decoding.grammar.schema.errors import UnsupportedError
from penstock.compute.decoding.grammar.schema.records import Bound, Number, Numbers, listed_in

DIGITS = 15  # that every decimal number keeps as a double
PLACES = 20  # behind the point of a bound: more make a regex too deep
STEP_DIGITS = 9  # of what numbers may be multiples of
MOST_REMAINDERS = 100_000  # 100 MB and a second to compile
MOST_BOUNDED = 10_000  # the same beside bounds, where each has to go with each
MOST_LISTED = 1000  # multiples that are listed instead
MOST_LISTED_IN_ALL = 10_000  # of one document: 100 kB, and 0.1 s to compile
EXACT = 1 << 53  # up to here every integer is a double
LAST_WHOLE = 10**18 - 128  # the last double below 10**18, beyond which bounds of integers are rounded


def meet_numbers(a: Numbers, b: Numbers) -> Numbers | None:
    """None: there is no such number."""
    values = listed_in(a.values, b.values)
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
    if Fraction(str(value)) % Fraction(str(of)) != 0:
        return False
    return isinstance(of, int) or (math.isfinite(value / of) and int(value / of) == value / of)


def is_empty(wanted: Numbers) -> bool:
    """Whether bounds, and for integers multiples, leave nothing."""
    low, high = wanted.low, wanted.high
    if low is None or high is None:
        return False
    if low.value > high.value or (low.value == high.value and (low.is_open or high.is_open)):
        return True
    step = step_of(wanted)
    if step is None or next(multiples(wanted, low.value, high.value), None) is not None:
        return False
    first, last = Fraction(str(low.value)) / step, Fraction(str(high.value)) / step
    at = math.floor(first) + 1 if low.is_open else math.ceil(first)
    return at >= last if high.is_open else at > last


def step_of(wanted: Numbers, exactly: bool = False) -> Fraction | None:
    """All of them are multiples of this; None: of nothing. `exactly`: and all of its multiples are some, but not all validators agree."""
    steps = [Fraction(1)] if wanted.integer else []
    steps += [step if exactly else binary(step) for step in map(Fraction, map(str, wanted.multiples))]
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


def written(wanted: Numbers, room: int = MOST_LISTED) -> dict[str, Any]:
    """As llguidance reads it; `room`: numbers that may be listed where fewer could be written without. Raises UnsupportedError for bounds
    and multiples that it would read as something else."""
    low, high = whole_bounds(wanted) if wanted.integer else real_bounds(wanted)
    unit = unit_of(step_of(wanted) or Fraction(1))
    if any(isinstance(of, float) and of > unit for of in wanted.multiples):
        low, high = told_apart(low, high, int(EXACT * unit))
    if low is not None and high is not None and low > high:
        raise UnsupportedError(f"its bounds leave no number that has at most {DIGITS} digits")
    found: dict[str, Any] = {"type": "integer" if wanted.integer else "number"}
    found |= {name: value for name, value in (("minimum", low), ("maximum", high)) if value is not None}
    step = step_of(replace(wanted, integer=False))
    if step is not None:
        named = f"multipleOf {' and '.join(map(str, wanted.multiples))}"
        if is_better_listed(wanted, low, high, room) and (few := listed(wanted, low, high)):
            return {"enum": few}
        if not is_short(step):
            raise UnsupportedError(
                f"{named} cannot be checked exactly: the least multiple that floating point holds has more than {STEP_DIGITS} digits")
        if not all(map(is_near, wanted.multiples)):
            raise UnsupportedError(f"{named} cannot be checked exactly: not all its multiples are whole when doubles are divided")
        bounded = bool(low or high)  # at zero a bound is a sign
        count, most = remainders(step, bounded), MOST_BOUNDED if bounded else MOST_REMAINDERS
        if count > most:
            if few := listed(wanted, low, high):
                return {"enum": few}
            raise UnsupportedError(f"{named} leaves {count:,} remainders; at most {most:,} are told apart")
        found["multipleOf"] = int(step) if step.denominator == 1 else float(step)
    return found


def unit_of(step: Fraction) -> Fraction:
    """The largest power of two that a step, which floating point holds exactly, is a multiple of. Up to 2^53 of these, multiples of a step
    are doubles; larger ones are rounded before they are divided by one. A quotient that is itself beyond 2^53 is whole, as by all steps of
    at most a unit."""
    return Fraction(step.numerator & -step.numerator, step.denominator)


def told_apart(low: Number | None, high: Number | None, most: int) -> tuple[Number, Number]:
    """Bounds within `most`, up to which multiples are doubles."""
    low, high = -most if low is None else max(low, -most), most if high is None else min(high, most)
    if low > high:
        raise UnsupportedError(f"its bounds leave no multiples but those beyond {most:,}, which are not told apart")
    return low, high


def is_near(step: Number) -> bool:
    """Whether a multiple of a step, divided by the double that is nearest to the step, is always rounded to a whole number: that double is
    off by at most 2^-54 of the step."""
    exact = Fraction(str(step))
    return abs(Fraction(step) - exact) * 2**54 <= exact


def is_short(step: Fraction) -> bool:
    """Whether a step that floating point holds exactly has few decimal digits, zeros in front and at the end included."""
    places = step.denominator.bit_length() - 1
    return places <= STEP_DIGITS and step * 10**places < 10**STEP_DIGITS


def whole_bounds(wanted: Numbers) -> tuple[int | None, int | None]:
    """The first integer and the last, of those that are read without rounding."""
    low, high = wanted.low, wanted.high
    first = None if low is None else math.floor(low.value) + 1 if low.is_open else math.ceil(low.value)
    last = None if high is None else math.ceil(high.value) - 1 if high.is_open else math.floor(high.value)
    if (first is not None and first > LAST_WHOLE) or (last is not None and last < -LAST_WHOLE):
        raise UnsupportedError(f"its bounds leave none but integers beyond {LAST_WHOLE:,}, which are not told apart")
    return (None if first is None else int(inside(max(first, -LAST_WHOLE), 1)),
            None if last is None else int(inside(min(last, LAST_WHOLE), -1)))


def real_bounds(wanted: Numbers) -> tuple[Number | None, Number | None]:
    low, high = wanted.low, wanted.high
    if (low is not None and low.value >= EXACT) or (high is not None and high.value <= -EXACT):
        raise UnsupportedError(f"its bounds leave none but numbers beyond {EXACT:,}, which are not told apart")
    return None if low is None else short(low, 1), None if high is None else short(high, -1)


def short(bound: Bound, inward: int) -> Number:
    """The nearest number inside of a bound that every reader gets back. A bound that is left out is left, because a number with more
    digits, such as 0.999...9, could be read as the bound itself."""
    if abs(bound.value) >= EXACT:
        return -inward * (EXACT - 1)
    value = Decimal(str(bound.value))
    unit = Decimal(10) ** max(value.adjusted() - DIGITS + 1 if value else -PLACES, -PLACES)
    near = (value / unit).to_integral_value(ROUND_CEILING if inward > 0 else ROUND_FLOOR) * unit
    if bound.is_open and near == value:
        near += inward * unit
    return int(near) if near == int(near) else float(near)


def is_better_listed(wanted: Numbers, low: Number | None, high: Number | None, room: int) -> bool:
    """Whether a list has more multiples than its step writes, and there is room for it or nothing else."""
    exact, every = step_of(wanted), step_of(wanted, exactly=True)
    if exact is None or every is None or exact == every or low is None or high is None:
        return False
    return not between(every, low, high)[room:] or not between(exact, low, high)


def between(step: Fraction, low: Number, high: Number) -> range:
    """How many steps the multiples between the bounds are from zero."""
    return range(math.ceil(Fraction(str(low)) / step), math.floor(Fraction(str(high)) / step) + 1)


def listed(wanted: Numbers, low: Number | None, high: Number | None) -> list[Number]:
    """All multiples between the bounds, where those are few; [] where not."""
    return [] if low is None or high is None else list(dict.fromkeys(multiples(wanted, low, high)))


def multiples(wanted: Numbers, low: Number, high: Number) -> Iterator[Number]:
    """Those between the bounds by decimal arithmetic and by binary, in order; none where they are many."""
    step = step_of(wanted, exactly=True)
    if step is None or max(abs(low), abs(high)) > LAST_WHOLE:
        return
    steps = between(step, low, high)
    for at in () if steps[MOST_LISTED:] else steps:
        value = at * step
        number = int(value) if value.denominator == 1 else float(value)
        if fits(number, wanted):
            yield number


def few(wanted: Numbers, most: int) -> Sequence[Number] | None:
    """All of them, if there are at most so many; else None."""
    if wanted.values is not None:
        return wanted.values
    if not wanted.integer or wanted.low is None or wanted.high is None:
        return None
    first, last = math.floor(wanted.low.value), math.ceil(wanted.high.value)
    if last - first > most + 1:  # both ends may be left out
        return None
    found = [value for value in range(first, last + 1) if fits(value, wanted)]
    return found if len(found) <= most else None


def remainders(step: Fraction, bounded: bool) -> int:
    """That numbers may leave, of which a grammar needs a state for each; zeros at the end of a step cost nothing where there are no
    bounds."""
    rest = step.numerator
    while rest % 10 == 0 and not bounded:
        rest //= 10
    return rest


def inside(value: Number, inward: int) -> float:
    """The nearest double that is not beyond a bound."""
    near = float(value)
    beyond = near < value if inward > 0 else near > value
    return math.nextafter(near, inward * math.inf) if beyond else near
