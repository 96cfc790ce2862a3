"""What a step may hold, and which sequences could never be served."""
from dataclasses import dataclass

from penstock.core.errors import RequestError, UsageError
from penstock.core.types import Seq
from penstock.decide.kv.manager import KVManager


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one step."""

    max_num_seqs: int
    max_num_batched_tokens: int

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def most_seqs(self) -> int:
        """That can each have a token of it."""
        return min(self.max_num_seqs, self.max_num_batched_tokens)


def check_servable(seq: Seq, kv: KVManager) -> None:
    """Raises RequestError, with the number that would fit, if the sequence could not be served even alone."""
    if seq.num_prompt < 1:
        raise RequestError("the prompt is empty; it needs at least 1 token", "prompt")
    if seq.marks and not kv.prefix_cache:
        raise RequestError("cache_control needs the prefix cache, which is switched off here", "cache_control")
    # The keys and values of the last token are never needed, unless a search goes on from it.
    most = kv.num_tokens + (not seq.held)
    if seq.num_prompt > kv.num_tokens or seq.max_len > seq.num_prompt == most:
        searched = ", one of which a search needs for its answer" if seq.held else ""
        message = f"the prompt has {seq.num_prompt} tokens, but the KV cache holds {kv.num_tokens}{searched}"
        raise RequestError(message, "prompt", code="context_length_exceeded")
    if seq.max_len > most:
        message = (
            f"a prompt of {seq.num_prompt} tokens and up to {seq.max_len - seq.num_prompt} new ones do not fit in a KV cache "
            f"of {kv.num_tokens} tokens; up to {most - seq.num_prompt} new ones would"
        )
        raise RequestError(message, "max_tokens", code="context_length_exceeded")
