"""One answer of a request on its way to text: tokens in, visible text out, and where it ends."""
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.core.types import SamplingParams, SeqOutput, TokenLogprobs
from penstock.serve.engine.requests import Delta
from penstock.serve.text.detokenize import Detokenizer
from penstock.serve.text.stops import StopChecker
from penstock.serve.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Said:
    """What a step added to an answer."""

    text: str = ""
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class Choice:
    """Detokenizes, and looks for stop strings. After `push` has returned a finish reason nothing more may be pushed."""

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, prompt: Sequence[int]) -> None:
        self._params = params
        self._detokenizer = Detokenizer(tokenizer, params.skip_special_tokens, prompt)
        self._stops = StopChecker(tuple(params.stop), params.include_stop_str_in_output)
        self.num_tokens = 0

    def push(self, tokens: Sequence[int], finish_reason: str | None = None, stop_token_id: int | None = None) -> Said:
        """`finish_reason` is the scheduler's word, if the sequence ended with these tokens. The token that stopped it is not shown,
        unless it was asked for with include_stop_str_in_output."""
        shown = tokens
        if finish_reason == "stop" and not (stop_token_id is not None and self._params.include_stop_str_in_output):
            shown = tokens[:-1]
        text = ""
        for token in shown:
            self.num_tokens += 1
            said, matched = self._stops.push(self._detokenizer.push((token,)), active=self.num_tokens > self._params.min_tokens)
            text += said
            if matched is not None:
                return Said(text, "stop", matched)
        self.num_tokens += len(tokens) - len(shown)
        if finish_reason is None:
            return Said(text)
        return self._end(text, finish_reason, stop_token_id)

    def _end(self, text: str, finish_reason: str, stop_token_id: int | None) -> Said:
        said, matched = self._stops.push(self._detokenizer.finish(), active=self.num_tokens > self._params.min_tokens)
        text += said
        if matched is None:
            text += self._stops.finish()
            matched = self._stops.matched
        if matched is not None:
            return Said(text, "stop", matched)
        return Said(text, finish_reason, stop_token_id)


@dataclass(slots=True)
class Collected:
    """A whole answer, kept back until it is known whether it is among the best."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def add(self, output: SeqOutput, said: Said, num_kept: int) -> None:
        self.text += said.text
        self.token_ids.extend(output.tokens[:num_kept])
        self.logprobs.extend(output.logprobs[:num_kept])
        self.finish_reason, self.stop_reason = said.finish_reason, said.stop_reason

    def score(self) -> float:
        """Mean log-probability of a token."""
        return sum(each.logprob for each in self.logprobs) / max(len(self.logprobs), 1)

    def delta(self, index: int, with_logprobs: bool) -> Delta:
        return Delta(
            index, self.text, tuple(self.token_ids), tuple(self.logprobs) if with_logprobs else (),
            finish_reason=self.finish_reason, stop_reason=self.stop_reason)
