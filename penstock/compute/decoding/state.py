"""What sampling needs of one sequence: its parameters, seed and stop tokens, and for penalties the tokens that it contains so far."""
from array import array
from collections.abc import Iterable
from typing import Any

from penstock.compute.decoding.grammar.matcher import Matcher
from penstock.core.types import SamplingParams, SeqInfo


class RowState:
    """One per sequence; `extend` adds the tokens of its output. A sampled token depends on the row's logits, this state and the output
    index, and on nothing else.

    num_logprobs: how many of the likeliest tokens to report beside the chosen one; None: no log-probabilities at all.
    plain: tokens are sampled from unchanged logits, and nothing else is reported.
    matcher: the state of the grammar that the output follows, if any; set by whoever creates the state of such a sequence.
    drawing: the sampling parameters in the form of the sampler in use (see sampling.py), which sets it at the first row.
    """

    # The fields that every step reads come first, so that they are adjacent in memory.
    __slots__ = (
        "plain", "drawing", "penalized", "matcher", "held", "params", "seed", "num_logprobs", "stop_ids", "bias_ids", "bias_values",
        "seen_ids", "seen_counts", "num_candidates", "_index", "_num_lasting")

    def __init__(self, info: SeqInfo, output: Iterable[int] = (), kin: "RowState | None" = None) -> None:
        """`output`: tokens that the sequence has already, if it is a fork. `kin`: the state of one with the same prompt that has a
        repetition penalty, too: then the prompt's tokens need not be looked at."""
        params = info.params
        self.params: SamplingParams = params
        self.seed = info.seed
        self.held = info.held
        self.stop_ids = stop_ids(params, info.eos_token_ids)
        self.num_logprobs = params.logprobs
        self.num_candidates = max((params.beam_width or 1) + max(1, len(self.stop_ids)), params.logprobs or 0) if info.held else 0
        bias = sorted((params.logit_bias or {}).items())
        self.bias_ids = array("q", [token for token, _ in bias])
        self.bias_values = array("d", [value for _, value in bias])
        self.penalized = params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0
        self.matcher: Matcher | None = None
        changed = self.penalized or bias or params.min_tokens or params.structured_outputs is not None
        self.plain = not (changed or info.held) and self.num_logprobs is None
        self.drawing: Any = None
        self.seen_ids = array("q")
        self.seen_counts = array("q")  # occurrences of each of `seen_ids` in the output; 0: it is in the prompt only
        self._index: dict[int, int] = {}  # token -> its index in `seen_ids`
        if params.repetition_penalty != 1:
            if kin is None:
                self.seen_ids.extend(dict.fromkeys(info.prompt))
                self._index = {token: at for at, token in enumerate(self.seen_ids)}
            else:
                self.seen_ids, self._index = kin.seen_ids[: kin._num_lasting], kin._index.copy()
                for token in kin.seen_ids[kin._num_lasting :]:
                    del self._index[token]
            self.seen_counts.extend(array("q", [0]) * len(self.seen_ids))
        self._num_lasting: int = len(self.seen_ids)  # of the prompt
        self.extend(output)

    def extend(self, tokens: Iterable[int]) -> None:
        """Adds tokens to the output."""
        if self.penalized:
            for token in tokens:
                self.seen_counts[self._seen_index(token)] += 1

    def retract(self, tokens: Iterable[int]) -> None:
        """Takes tokens back from the output."""
        if self.penalized:
            for token in tokens:
                at = self._index[token]
                self.seen_counts[at] -= 1
                if not self.seen_counts[at] and at >= self._num_lasting:
                    self._remove(at)

    def _remove(self, at: int) -> None:
        """The last of the tokens takes its place."""
        del self._index[self.seen_ids[at]]
        token, count = self.seen_ids.pop(), self.seen_counts.pop()
        if at < len(self.seen_ids):
            self.seen_ids[at], self.seen_counts[at], self._index[token] = token, count, at

    def _seen_index(self, token: int) -> int:
        at = self._index.setdefault(token, len(self._index))
        if at == len(self.seen_ids):
            self.seen_ids.append(token)
            self.seen_counts.append(0)
        return at


def stop_ids(params: SamplingParams, eos_token_ids: Iterable[int]) -> tuple[int, ...]:
    """The tokens that end a sequence, in rising order: `stop_token_ids`, and the model's end-of-sequence tokens unless `ignore_eos`."""
    return tuple(sorted({*params.stop_token_ids, *(() if params.ignore_eos else eos_token_ids)}))
