"""When a sequence ends: stop tokens, end of text, length."""
from collections.abc import Sequence

from penstock.core.message import message
from penstock.core.types import Seq


@message
class Ending:
    """How many of a step's tokens a sequence keeps, and why it ends with them (None: it continues)."""

    num_kept: int
    reason: str | None = None
    stop_token_id: int | None = None  # set when a stop token of the request ended it; not for end of text


GOES_ON = Ending(1)


def ending(seq: Seq, tokens: Sequence[int], ended: str | None = None) -> Ending:
    """What becomes of `seq` if `tokens` are appended one by one. What follows a stop token or exceeds max_len is not kept.

    `ended`: why nothing may follow the last of them, where that is known (SeqResult.ended).
    """
    end = _ending(seq, tokens)
    return end if ended is None or end.num_kept < len(tokens) or end.reason == ended else Ending(end.num_kept, ended)


def _ending(seq: Seq, tokens: Sequence[int]) -> Ending:
    size, num_kept = len(seq.tokens), len(tokens)
    if num_kept == 1 and size + 1 < seq.max_len and tokens[0] not in seq.end_ids:
        return GOES_ON
    if size + num_kept > seq.max_len:
        num_kept = max(seq.max_len - size, 0)
    for i in range(num_kept) if seq.end_ids else ():
        if tokens[i] in seq.end_ids and seq.num_output + i + 1 >= seq.params.min_tokens:
            is_eos = not seq.params.ignore_eos and tokens[i] in seq.eos_token_ids
            return Ending(i + 1, "stop", None if is_eos else tokens[i])
    return Ending(num_kept, "length" if size + num_kept >= seq.max_len else None)
