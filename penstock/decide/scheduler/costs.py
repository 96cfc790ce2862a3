"""Predicts how long the next steps will take: a StepTimer asked in rounded sizes, cached, and corrected by the steps that were observed.

A timer knows the model's step. What else passes between one step and the next (sampling, text, other programs) shows in the steps
themselves, as took = a * predicted + b, fitted by least squares with forgetting, drawn towards a = 1 and b = 0. Prices do not change with
every step: they stay until what was learned has moved away from them, so that others may cache what they derive from them.
How many steps an answer takes that nothing bounds is learned from those that end (see `lengths`).
"""
from bisect import bisect_right
from collections.abc import Sequence
from math import inf

from penstock.core.types import Seq
from penstock.core.work import StepTimer, StepWork, even_work
from penstock.decide.scheduler.lengths import Lengths, is_open

CONTEXT_BITS = 6  # contexts are rounded up to multiples of 64 tokens
EXACT_ROWS, ROWS_BITS = 32, 4  # chunks of more rows are rounded up to multiples of 16
REMEMBERED = 1 << 16  # steps, and prompts
FORGET = 0.98  # of what was known, with each step: the last 50 count
PRIOR = 5.0  # steps that say a = 1, b = 0
MOST_RATIO = 4.0  # a step that takes longer was held up by something that need not happen again
MOVED = 0.05  # share of a mean step by which prices may be off what was learned
STALE = 100  # steps after which they are renewed anyway

_Rounded = tuple[int, int, int, int]  # decodes, their mean context, rows of a prompt and tokens before these; contexts in 64 tokens


class Correction:
    """`of(predicted)`: how long steps with this prediction really take."""

    __slots__ = ("_size", "_spread", "_sum", "_weight", "level", "rate")

    def __init__(self) -> None:
        self.rate, self.level = 1.0, 0.0  # a and b
        self._weight = self._sum = self._size = 0.0  # of steps: their number, predicted seconds, seconds more than predicted
        self._spread = [0.0, 0.0]  # sums of predicted squared, and of predicted times what was more

    def of(self, predicted_s: float) -> float:
        return max(self.rate * predicted_s + self.level, 0.0)

    def add(self, predicted_s: float, took_s: float) -> None:
        """A step that was predicted to take `predicted_s` seconds took `took_s`."""
        more = min(took_s, MOST_RATIO * self.of(predicted_s)) - predicted_s
        self._weight = FORGET * self._weight + 1
        self._sum = FORGET * self._sum + predicted_s
        self._size = FORGET * self._size + more
        square, product = self._spread
        self._spread = [FORGET * square + predicted_s**2, FORGET * product + predicted_s * more]
        self._solve()

    def is_off(self, rate: float, level: float) -> bool:
        """Whether steps of half and of twice the mean size come to less or more than with this share and amount."""
        mean = self._sum / self._weight
        for size in (mean / 2, 2 * mean):
            learned = self.of(size)
            if abs(learned - rate * size - level) > MOVED * learned:
                return True
        return False

    def _solve(self) -> None:
        """(a - 1, b) of least squares; the prior is worth PRIOR steps of the mean size."""
        square, product = self._spread
        mean = self._sum / self._weight
        s00, s01, s11 = self._weight + PRIOR, self._sum, square + PRIOR * mean**2
        det = s00 * s11 - s01 * s01
        if det <= 0:
            return
        self.rate = max(0.25, 1 + (s00 * product - s01 * self._size) / det)
        self.level = (s11 * self._size - s01 * product) / det


class StepCosts:
    """Seconds of steps of at most `max_rows` rows and `max_seqs` sequences. A StepTimer itself, to be used wherever one is.

    `version` changes whenever prices do, or what is known of lengths.
    """

    def __init__(self, timer: StepTimer, max_rows: int, max_seqs: int) -> None:
        self.max_rows = max_rows
        self.max_seqs = max_seqs
        self.lengths = Lengths()
        self.version = 0
        self._timer = timer
        self._learned = Correction()
        self._rate, self._level = self._learned.rate, self._learned.level  # that prices have
        self._age = 0  # steps since they were renewed
        self._known: dict[_Rounded, float] = {}  # of the timer
        # By decodes, context and most rows: what `_search` found at current prices, sorted.
        self._within: dict[tuple[int, int, int], list[tuple[float, float, int]]] = {}
        self._prompts: dict[tuple[int, int], tuple[tuple[int, float], ...]] = {}  # (steps, what the timer says of one) of each prompt

    def seconds(self, work: StepWork) -> float:
        return max(self._rate * self._timer.seconds(work) + self._level, 0.0)

    def step_s(self, num_decodes: int, context: int, rows: int = 0, start: int = 0) -> float:
        """A step in which `num_decodes` sequences of `context` tokens on average gain a token each, and `rows` tokens of a prompt are
        computed behind `start` others."""
        if rows > EXACT_ROWS:
            rows = _rounded(rows)
        key = num_decodes, -(-context >> CONTEXT_BITS), rows, -(-start >> CONTEXT_BITS)
        predicted_s = self._known.get(key)
        if predicted_s is None:
            predicted_s = self._ask(key)
        corrected = self._rate * predicted_s + self._level
        return corrected if corrected > 0.0 else 0.0

    def prompt_s(self, left: int, total: int) -> float:
        """The last `left` of a prompt's `total` tokens, alone on the machine."""
        steps = self._prompts.get((left, total)) or self._steps_of(left, total)
        rate, level, seconds = self._rate, self._level, 0.0
        for num, predicted_s in steps:
            corrected = rate * predicted_s + level
            if corrected > 0.0:
                seconds += num * corrected
        return seconds

    def answer_s(self, num_tokens: int, context: int) -> float:
        """The machine time of `num_tokens` of an answer: their share of steps in which every seat is taken."""
        return num_tokens * self.step_s(self.max_seqs, context) / self.max_seqs

    def rows_within(self, num_decodes: int, context: int, seconds: float, most: int, start: int = 0) -> int:
        """The most rows of a prompt, up to `most`, for which a step with these decodes has time within `seconds`; 0 if none."""
        if most < 1:
            return 0
        if seconds == inf:
            return most
        if start:  # which the next step has moved: the same is not asked again
            return self._near(num_decodes, context, seconds, most, start)
        key = num_decodes, -(-context >> CONTEXT_BITS), most
        found = self._within.get(key)
        if found is None:
            if len(self._within) >= REMEMBERED:
                self._within.clear()
            found = self._within[key] = []
        at = bisect_right(found, (seconds, inf, most))
        if not at or seconds >= found[at - 1][1]:
            found.insert(at, self._search(num_decodes, context, seconds, most))
            at += 1
        return found[at - 1][2]

    def _near(self, num_decodes: int, context: int, seconds: float, most: int, start: int) -> int:
        """The same, with few prices that nobody has asked before. Of three tries, one is where a straight line through the nearest prices
        on both sides is at `seconds`, the next is its neighbour, and the third halves what is left."""
        low, low_s, high, high_s, tried, num_tries = 0, self.step_s(num_decodes, context), most + 1, inf, most, 0
        while high - low > 1:
            price = self.step_s(num_decodes, context, tried, start)
            fits = price <= seconds
            if fits:
                low, low_s = min(_rounded(tried), most), price
            else:
                high, high_s = _fewest(tried), price
            num_tries += 1
            if num_tries % 3 == 1 and low_s <= seconds:
                tried = low + int((high - low) * ((seconds - low_s) / (high_s - low_s)))
            elif num_tries % 3 == 2:
                tried = low + 1 if fits else high - 1
            else:
                tried = (low + high) // 2
            tried = min(max(tried, low + 1), high - 1)
        return low

    def _search(self, num_decodes: int, context: int, seconds: float, most: int) -> tuple[float, float, int]:
        """(from how many seconds on, and below how many, all prices that are compared compare as they do; rows)."""
        least_s, below_s, low, high, tried = -inf, inf, 0, most + 1, most
        while high - low > 1:
            price = self.step_s(num_decodes, context, tried)
            if price <= seconds:
                least_s, low = price if price > least_s else least_s, min(_rounded(tried), most)
            else:
                below_s, high = price if price < below_s else below_s, _fewest(tried)
            tried = (low + high) // 2
        return least_s, below_s, low

    def learn(self, work: StepWork, took_s: float) -> None:
        """A step of this work took this long, from its beginning to that of the next one."""
        learned = self._learned
        learned.add(self._timer.seconds(work), took_s)
        self._age += 1
        if self._age >= STALE or learned.is_off(self._rate, self._level):
            self._age = 0
            if (learned.rate, learned.level) != (self._rate, self._level):
                self._rate, self._level = learned.rate, learned.level
                self._within.clear()
                self.version += 1

    def learn_length(self, seq: Seq) -> None:
        """It has ended."""
        if is_open(seq) and seq.finish_reason != "abort" and self.lengths.add(seq.num_output):
            self.version += 1

    def _steps_of(self, left: int, total: int) -> tuple[tuple[int, float], ...]:
        """Of a prompt: the last step, and before it as many whole ones as it takes."""
        whole, rest = divmod(left, self.max_rows)
        start, steps = total - left, []
        if rest:
            steps.append((1, self._predicted_s((0, 0, _rounded(rest), -(-(total - rest) >> CONTEXT_BITS)))))
        if whole:
            start += whole * self.max_rows // 2
            steps.append((whole, self._predicted_s((0, 0, _rounded(self.max_rows), -(-start >> CONTEXT_BITS)))))
        if len(self._prompts) >= REMEMBERED:
            self._prompts.clear()
        found = self._prompts[left, total] = tuple(steps)
        return found

    def _predicted_s(self, key: _Rounded) -> float:
        known = self._known.get(key)
        return self._ask(key) if known is None else known

    def _ask(self, key: _Rounded) -> float:
        num_decodes, context, rows, start = key
        work = even_work(num_decodes, max(context << CONTEXT_BITS, 1), rows, start << CONTEXT_BITS)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        seconds = self._known[key] = self._timer.seconds(work)
        return seconds


def _rounded(rows: int) -> int:
    return rows if rows <= EXACT_ROWS else -(-rows >> ROWS_BITS) << ROWS_BITS


def _fewest(rows: int) -> int:
    """Rows from which on it is rounded to the same."""
    return rows if rows <= EXACT_ROWS else (rows - 1 >> ROWS_BITS << ROWS_BITS) + 1


def mean_context(seqs: Sequence[Seq]) -> int:
    return sum([len(seq.tokens) for seq in seqs]) // len(seqs) if seqs else 0
