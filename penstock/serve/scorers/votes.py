"""Self-consistency (Wang et al. 2022, arXiv:2203.11171): of answers that were reasoned out independently, those that most agree with."""
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.errors import RequestError
from penstock.core.types import Score
from penstock.serve.scorers.contract import Candidate, Host, Ranked, best_first
from penstock.serve.scorers.extraction import MAX_PATTERN, EndedError, TooMuchError, extract

SECONDS = 2.0  # for a request's answers together
# Compiling a pattern takes time for each character up to the end of each of its ranges, 25 ms for so many, while everybody waits.
MAX_REACH = 1 << 18
FAR_END = re.compile(r"-(\\u[0-9a-fA-F]{4}|\\[UN]|[^\0-\xff])")  # of a range; escapes without their digits may be of any character
LAST = 0xFFFF  # character that ranges are gone through to


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
        if (far := reach(self._pattern)) > MAX_REACH:
            message = f"has wide ranges of characters: the code points at their ends add up to {far}; at most {MAX_REACH} is taken"
            raise RequestError(f"{self._name} {message}", self._name)
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
            message = f"the process that searches for {self._name} {error}; the machine may lack memory"
            raise RequestError(message, self._name, status=503) from None


def reach(pattern: str) -> int:
    """The code points at the ends of its ranges of characters, added up; those within Latin-1 do not count. What only looks like a range
    counts, too."""
    ends = (ord(end) if len(end) == 1 else int(end[2:] or "ffff", 16) for end in FAR_END.findall(pattern))
    return sum(min(end, LAST) for end in ends)
