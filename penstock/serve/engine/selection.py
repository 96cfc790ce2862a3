"""Chooses some of several answers to one prompt: best-of-n and self-consistency.

The engine does not know about it: it is asked for all answers, with their log-probabilities, and computes their prompt once.
"""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.drafting import Drafting
from penstock.core.errors import RequestError
from penstock.core.registry import Table
from penstock.core.types import SamplingParams, Score, TokenLogprobs
from penstock.serve.engine.requests import Delta, Request
from penstock.serve.scorers.contract import Candidate, Host, Scorer
from penstock.serve.scorers.options import read_options

LIKELIEST, MAJORITY = "logprob", "votes"  # the scorers of best_of, where none is named, and of self_consistency


@dataclass(slots=True)
class Collected:
    """A complete answer, held back until it is known whether it is among the best."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    drafting: Drafting | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def add(self, delta: Delta) -> None:
        self.texts.append(delta.text)
        self.drafted.extend(len(self.token_ids) + place for place in delta.drafted)
        self.token_ids.extend(delta.token_ids)
        self.logprobs.extend(delta.logprobs)
        self.drafting = delta.drafting
        self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason

    @property
    def is_given_up(self) -> bool:
        return self.finish_reason == "abort"

    def candidate(self) -> Candidate:
        return Candidate("".join(self.texts), tuple([each.logprob for each in self.logprobs]))

    def delta(self, index: int, with_logprobs: bool, score: Score | None) -> Delta:
        return Delta(
            index, "".join(self.texts), tuple(self.token_ids), tuple(self.logprobs) if with_logprobs else (),
            finish_reason=self.finish_reason, stop_reason=self.stop_reason, drafted=tuple(self.drafted), drafting=self.drafting,
            score=score)


class Selection:
    """One request. `request` goes to the engine; once all its deltas were taken, `chosen` gives those for the client."""

    def __init__(self, asked: Request, scorer: Scorer, tells_scores: bool, prompt: Callable[[], str]) -> None:
        """`prompt`: its text."""
        params = asked.params
        num = params.best_of or params.n
        self.request = replace(asked, params=replace(
            params, n=num, best_of=None, scorer=None, self_consistency=None, logprobs=params.logprobs or 0))
        self._params = params
        self._scorer = scorer
        self._tells_scores = tells_scores
        self._prompt = prompt
        self._answers = [Collected() for _ in range(num)]
        self._prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
        self._last: Delta | None = None

    @property
    def waits_for(self) -> str:
        """What `chosen` may wait for; empty: nothing."""
        return self._scorer.waits_for

    def take(self, delta: Delta) -> None:
        self._answers[delta.index].add(delta)
        self._prompt_logprobs = delta.prompt_logprobs or self._prompt_logprobs
        if delta.done:
            self._last = delta

    def chosen(self) -> list[Delta]:
        """One delta for each of the best, the best first. Answers that the engine gave up on come only where there are too few others, and
        after them. May wait for the scorer. Raises RequestError when that fails."""
        assert self._last is not None, "not all deltas were taken"
        whole = [each for each in self._answers if not each.is_given_up]
        ranked = self._scorer.rank(self._prompt(), [each.candidate() for each in whole]) if whole else []
        best = [(whole[each.place], each.score if self._tells_scores else None) for each in ranked]
        best += [(each, None) for each in self._answers if each.is_given_up]
        with_logprobs = self._params.logprobs is not None
        deltas = [each.delta(index, with_logprobs, score) for index, (each, score) in enumerate(best[: self._params.n])]
        deltas[0] = replace(deltas[0], prompt_logprobs=self._prompt_logprobs)
        deltas[-1] = replace(deltas[-1], done=True, usage=self._last.usage)
        return deltas


class Selections:
    """`scorers`: their table; `decode`: token ids to text; `allows`: whether a URL may be asked."""

    def __init__(self, scorers: Table, decode: Callable[[Sequence[int]], str], allows: Callable[[str], bool]) -> None:
        self._scorers = scorers
        self._decode = decode
        self._allows = allows

    def of(self, request: Request) -> Selection | None:
        """None if all answers are returned as they are. Raises RequestError, naming the field, for a scorer that is not available."""
        params = request.params
        wish = wanted(params)
        if wish is None:
            return None
        name, given, where = wish.name, wish.options, wish.where
        if not isinstance(name, str) or name not in self._scorers:
            path = f"{where}.type"
            raise RequestError(f"{path} must be one of {', '.join(self._scorers)}, not {name!r:.60}", path)
        plugin = self._scorers.load(name)
        scorer = plugin(read_options(plugin.Options, given, where), Host(where, self._allows))
        told = params.scorer is not None or params.self_consistency is not None
        text = request.prompt
        return Selection(request, scorer, told, lambda: self._decode(request.token_ids) if text is None else text)


@dataclass(frozen=True, slots=True)
class Wish:
    """A scorer as it is asked for, by the field `where`."""

    name: Any
    options: dict[str, Any]
    where: str


def wanted(params: SamplingParams) -> Wish | None:
    """None where nothing is to be chosen."""
    if params.self_consistency is not None:
        return Wish(MAJORITY, without(params.self_consistency, "n"), "self_consistency")
    if params.scorer is not None:
        return Wish(params.scorer.get("type"), without(params.scorer, "type"), "scorer")
    return None if params.best_of in (None, params.n) else Wish(LIKELIEST, {}, "best_of")


def without(given: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key != name}
