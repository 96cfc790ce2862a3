"""The points that are measured, as traces of requests, and the one figure of each: tokens a second."""
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from versus.trace import Ask, Times

SHORT = 128  # tokens of the prompt where depth does not matter
NEW = 128  # tokens decoded
SERVED_IN, SERVED_OUT = 128, 64  # tokens of a request among equal ones
MIXED_IN, MIXED_OUT = (16, 1024), (32, 96)  # tokens, least and most
GAP_S = 0.1  # between arrivals of mixed requests, on average, unless asked otherwise
FIXED_SEED = 17  # prompts that an engine may keep from round to round


@dataclass(frozen=True, slots=True)
class Point:
    """`size`: tokens of context of decode (0: a short prompt), of the prompt of prefill; requests of streams and of mixed."""

    question: str  # decode, prefill, streams, mixed
    size: int
    gap_s: float = 0.0  # between arrivals, on average

    @property
    def name(self) -> str:
        return f"{self.question} {self.size}"

    @property
    def depth(self) -> int:
        """Tokens in the cache before those that are decoded."""
        return self.size or SHORT

    @property
    def max_tokens(self) -> int:
        """Of the longest request."""
        return max(ask.num_prompt + ask.num_new for ask in asks(self, 0))

    @property
    def kv_tokens(self) -> int:
        """Of all requests together, each in whole blocks of 64."""
        return sum(-(-(ask.num_prompt + ask.num_new) // 64) * 64 for ask in asks(self, 0))


def asks(point: Point, round_number: int) -> list[Ask]:
    """The trace of a point: the same for every engine of a round. Prompts of decode stay from round to round. Others are new for each
    point and round: an engine that keeps prefixes would not compute what they share."""
    if point.question == "decode":
        return [Ask(0.0, point.depth, NEW + 1, FIXED_SEED)]
    first = random.Random(f"{point.name}, round {round_number}").getrandbits(48)
    if point.question == "prefill":
        return [Ask(0.0, point.size, 1, first)]
    if point.question == "streams":
        return [Ask(0.0, SERVED_IN, SERVED_OUT, first + i) for i in range(point.size)]
    if point.question == "mixed":
        return mixed(point, first)
    raise ValueError(f"no such question: {point.question!r}")


def mixed(point: Point, first_seed: int) -> list[Ask]:
    """Lengths and arrivals of one fixed draw: prompts uniform in the logarithm, exponential gaps; only the tokens change."""
    rng = random.Random(FIXED_SEED)
    low, high = (math.log(bound) for bound in MIXED_IN)
    at_s, found = 0.0, []
    for i in range(point.size):
        found.append(Ask(at_s, round(math.exp(rng.uniform(low, high))), rng.randint(*MIXED_OUT), first_seed + i))
        at_s += rng.expovariate(1 / point.gap_s) if point.gap_s else 0.0
    return found


def tokens_per_s(point: Point, times: Sequence[Times]) -> float:
    """Of decode: tokens after the first, over their time; of prefill: prompt tokens until the first token; else: output tokens of all
    requests, from the first arrival to the last token."""
    if point.question == "decode":
        (one,) = times
        return (one.num_tokens - 1) / (one.last_s - one.first_s)
    if point.question == "prefill":
        (one,) = times
        return point.size / (one.first_s - one.at_s)
    return sum(each.num_tokens for each in times) / (max(each.last_s for each in times) - min(each.at_s for each in times))
