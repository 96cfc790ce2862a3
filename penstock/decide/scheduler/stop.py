"""When a sequence ends: stop tokens, end of text, length."""
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.types import Seq


@dataclass(frozen=True, slots=True)
class Ending:
    """How many of a step's tokens a sequence keeps, and why it ends with them (None: it goes on)."""

    num_kept: int
    reason: str | None = None
    stop_token_id: int | None = None  # set when a stop token of the request ended it; not for end of text


def ending(seq: Seq, tokens: Sequence[int]) -> Ending:
    """What becomes of `seq` if `tokens` are appended one by one. What follows a stop token or exceeds max_len is not kept."""
    params = seq.params
    num_kept = min(len(tokens), max(seq.max_len - len(seq.tokens), 0))
    eos = () if params.ignore_eos else seq.eos_token_ids
    if eos or params.stop_token_ids:
        for i in range(max(params.min_tokens - seq.num_output - 1, 0), num_kept):
            if tokens[i] in eos:
                return Ending(i + 1, "stop")
            if tokens[i] in params.stop_token_ids:
                return Ending(i + 1, "stop", tokens[i])
    return Ending(num_kept, "length" if len(seq.tokens) + num_kept >= seq.max_len else None)
