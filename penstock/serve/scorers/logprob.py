"""The likeliest answers, under the model itself."""
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.errors import RequestError
from penstock.core.types import Score
from penstock.serve.scorers.contract import Candidate, Host, Ranked, best_first

STEEPEST = 10


@dataclass(frozen=True, slots=True)
class LogProbOptions:
    length_penalty: float = 1.0  # log-probability / tokens ** length_penalty: 0 is the whole answer's, 1 the mean of a token's


class LogProb:
    Options = LogProbOptions
    waits_for = ""

    def __init__(self, options: LogProbOptions, host: Host) -> None:
        if not -STEEPEST <= options.length_penalty <= STEEPEST:
            name = f"{host.where}.length_penalty"
            raise RequestError(f"{name} must be from {-STEEPEST} to {STEEPEST}, not {options.length_penalty:g}", name)
        self._length_penalty = options.length_penalty

    def rank(self, prompt: str, candidates: Sequence[Candidate]) -> list[Ranked]:
        return best_first([Score(each.likelihood(self._length_penalty)) for each in candidates], candidates)
