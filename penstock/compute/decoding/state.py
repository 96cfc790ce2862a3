"""What the sampler must remember of one sequence: its parameters, seed and stop tokens, and for penalties the tokens seen so far."""
from array import array
from collections.abc import Iterable
from typing import Any

from penstock.compute.decoding.grammar.matcher import Matcher
from penstock.core.types import SamplingParams, SeqInfo


class RowState:
    """Made once per sequence, then told of each token that joins the output. The token a row chooses depends on its logits, on this
    state and on the output index; on nothing else.

    num_logprobs: how many likeliest tokens to report beside the chosen one; None: no log-probabilities at all.
    plain: the row takes a token of the unchanged logits and reports nothing beside it.
    matcher: its place in the grammar that its output follows, if any; whoever makes the state of such a sequence sets it.
    drawing: how its tokens are chosen, in the words of the sampler that it is given to, which makes it at the first row.
    """

    # What every step reads stands first, side by side in memory.
    __slots__ = (
        "plain", "drawing", "penalized", "matcher", "held", "params", "seed", "num_logprobs", "stop_ids", "bias_ids", "bias_values",
        "seen_ids", "seen_counts", "num_candidates", "_at")

    def __init__(self, info: SeqInfo, output: Iterable[int] = ()) -> None:
        """`output`: tokens that the sequence has chosen already, for one that comes back after the runner has forgotten it."""
        params = info.params
        self.params: SamplingParams = params
        self.seed = info.seed
        self.held = info.held
        self.stop_ids = stop_ids(params, info.eos_token_ids)
        self.num_logprobs = params.logprobs
        self.num_candidates = max((params.beam_width or 1) * (1 + max(1, len(self.stop_ids))), params.logprobs or 0) if info.held else 0
        bias = sorted((params.logit_bias or {}).items())
        self.bias_ids = array("q", [token for token, _ in bias])
        self.bias_values = array("d", [value for _, value in bias])
        self.penalized = params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0
        self.matcher: Matcher | None = None
        changed = self.penalized or bias or params.min_tokens or params.structured_outputs is not None
        self.plain = not (changed or info.held) and self.num_logprobs is None
        self.drawing: Any = None
        self.seen_ids = array("q")
        self.seen_counts = array("q")  # how often each of `seen_ids` stands in the output; 0 for one of the prompt alone
        self._at: dict[int, int] = {}  # token -> its place in `seen_ids`
        if params.repetition_penalty != 1:
            for token in info.prompt:
                self._place(token)
        self.extend(output)

    def extend(self, tokens: Iterable[int]) -> None:
        """Tokens have joined the output."""
        if self.penalized:
            for token in tokens:
                self.seen_counts[self._place(token)] += 1

    def _place(self, token: int) -> int:
        at = self._at.setdefault(token, len(self._at))
        if at == len(self.seen_ids):
            self.seen_ids.append(token)
            self.seen_counts.append(0)
        return at


def stop_ids(params: SamplingParams, eos_token_ids: Iterable[int]) -> tuple[int, ...]:
    """The tokens that end a sequence, in rising order: `stop_token_ids`, and the model's own unless `ignore_eos`."""
    return tuple(sorted({*params.stop_token_ids, *(() if params.ignore_eos else eos_token_ids)}))
