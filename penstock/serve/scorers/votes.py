"""Self-consistency (Wang et al. 2022, arXiv:2203.11171): of answers that were reasoned out independently, those that most agree with."""
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.errors import RequestError
from penstock.core.types import Score
from penstock.serve.scorers.contract import Candidate, Host, Ranked, best_first
from penstock.serve.scorers.extraction import MAX_PATTERN, EndedError, TooMuchError, extract

SECONDS = 2.0  # of a processor, for a request's answers together
# Compiling a pattern takes time for each character of each of its ranges, up to 40 ms for so many, while everybody waits.
MAX_WIDTH = 1 << 18
LATIN, LAST = 0xFF, 0xFFFF  # ranges that end by the first take no time, and characters beyond the last neither
PART = re.compile(r"\\U[0-9a-fA-F]{8}|\\u[0-9a-fA-F]{4}|\\?.", re.DOTALL)  # what stands for a character


@dataclass(frozen=True, slots=True)
class VotesOptions:
    extract: str | None = None  # a regular expression; its last match counts: group 1 where it has one. None: the whole answer


class Votes:
    """An answer's score is the number of answers from which the same was extracted, and 0 where nothing was. The best one tells all votes:
    if each did, the reply would grow with the square of the answers."""

    Options = VotesOptions

    def __init__(self, options: VotesOptions, host: Host) -> None:
        self._pattern = options.extract
        self._name = f"{host.where}.extract"
        self.waits_for = "" if self._pattern is None else "extraction"
        if self._pattern is None:
            return
        if len(self._pattern) > MAX_PATTERN:
            raise RequestError(f"{self._name} has {len(self._pattern)} characters; at most {MAX_PATTERN} are taken", self._name)
        if (wide := width(self._pattern)) > MAX_WIDTH:
            raise RequestError(f"{self._name} has ranges with {wide} characters in all; at most {MAX_WIDTH} are taken", self._name)
        try:
            re.compile(self._pattern)
        except (re.error, RecursionError, OverflowError, ValueError) as error:
            raise RequestError(f"{self._name} is no regular expression: {error}", self._name) from None

    def rank(self, prompt: str, candidates: Sequence[Candidate]) -> list[Ranked]:
        found = self._extracted([each.text for each in candidates])
        votes = Counter(each for each in found if each is not None)
        scores = [Score(float(votes[each] if each is not None else 0), {"extracted": each}) for each in found]
        ranked = best_first(scores, candidates)
        ranked[0].score.details["votes"] = dict(votes.most_common())
        return ranked

    def _extracted(self, texts: Sequence[str]) -> list[str | None]:
        if self._pattern is None:
            return [text.strip() for text in texts]
        try:
            return extract(self._pattern, texts, SECONDS)
        except TooMuchError as error:
            raise RequestError(f"{self._name} {error} on {len(texts)} answers; write a simpler one", self._name) from None
        except EndedError as error:
            message = f"the process that searches for {self._name} {error}; the machine may lack memory, or be too busy"
            raise RequestError(message, self._name, status=503) from None


def width(pattern: str) -> int:
    """Characters of its ranges that take time. What only looks like a range counts, too, since no more than Python's own parser could tell
    it apart."""
    parts = PART.findall(pattern)
    spans = [(code(first, 0), code(last, LAST if last == r"\N" else 0))
             for first, dash, last in zip(parts, parts[1:], parts[2:], strict=False) if dash == "-"]
    return sum(max(0, min(last, LAST) + 1 - first) for first, last in spans if last > LATIN)


def code(part: str, other: int) -> int:
    """`other`: of an escape without digits."""
    if len(part) == 1:
        return ord(part)
    return int(part[2:], 16) if len(part) > 2 else other
