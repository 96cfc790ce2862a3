"""One answer of a request on its way to text: tokens in, visible text out, and where it ends."""
from collections.abc import Sequence

from penstock.core.types import SamplingParams
from penstock.serve.text.stops import StopChecker
from penstock.serve.text.tokenizer import Tokenizer


class Choice:
    """Detokenizes, and looks for stop strings. After `push` has set a finish reason nothing more may be pushed."""

    __slots__ = ("_detokenizer", "_ends", "_params", "_searches", "_stops", "finish_reason", "num_tokens", "stop_reason")

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, prompt: Sequence[int]) -> None:
        self.num_tokens = 0
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None  # the stop string or stop token id that ended it
        self._ends = frozenset((*params.stop_token_ids, *(() if params.ignore_eos else tokenizer.eos_token_ids)))
        self._detokenizer = tokenizer.detokenizer(params.skip_special_tokens, prompt)
        self._searches = bool(params.stop)
        self._params = params
        self._stops = StopChecker(tuple(params.stop), params.include_stop_str_in_output)

    def push(self, tokens: Sequence[int], finish_reason: str | None = None, stop_token_id: int | None = None) -> str:
        """The text that has become certain. `finish_reason` is the scheduler's word, if the sequence ended with these tokens. The token
        that stopped it is not shown, unless it was asked for with include_stop_str_in_output. (A grammar may stop it without one.)"""
        shown = tokens
        if finish_reason == "stop" and tokens[-1] in self._ends and not (
                stop_token_id is not None and self._params.include_stop_str_in_output):
            shown = tokens[:-1]
        text = ""
        for token in shown:
            self.num_tokens += 1
            said = self._detokenizer.push_one(token)
            if self._searches:
                said, self.stop_reason = self._stops.push(said, active=self.num_tokens > self._params.min_tokens)
                if self.stop_reason is not None:
                    self.finish_reason = "stop"
                    return text + said
            text += said
        if finish_reason is None:
            return text
        self.num_tokens += len(tokens) - len(shown)
        return text + self._end(finish_reason, stop_token_id)

    def _end(self, finish_reason: str, stop_token_id: int | None) -> str:
        text, matched = self._stops.push(self._detokenizer.finish(), active=self.num_tokens > self._params.min_tokens)
        if matched is None:
            text += self._stops.finish()
            matched = self._stops.matched
        self.finish_reason = finish_reason if matched is None else "stop"
        self.stop_reason = stop_token_id if matched is None else matched
        return text
