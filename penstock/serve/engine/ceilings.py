"""Tokens a second that the machine's measured limits allow a model: the roofline's ceilings, which nothing can exceed."""
from dataclasses import dataclass

from penstock.compute.price import Price
from penstock.core.hardware import Hardware
from penstock.core.work import StepWork

PROMPT_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Ceilings:
    decode_tokens_per_s: float  # one sequence with an empty context
    prefill_tokens_per_s: float  # a prompt of `prompt_tokens`
    prompt_tokens: int


def ceilings(price: Price, hardware: Hardware, compute_type: str, max_len: int) -> Ceilings:
    """A step takes no less than reading its weights, keys and values does, and no less than its operations do."""
    prompt = min(PROMPT_TOKENS, max_len)
    decode = least_seconds(price, hardware, compute_type, StepWork(((1, 1),), num_logits=1))
    prefill = least_seconds(price, hardware, compute_type, StepWork(((prompt, prompt),), num_logits=1))
    return Ceilings(1 / decode, prompt / prefill, prompt)


def least_seconds(price: Price, hardware: Hardware, compute_type: str, work: StepWork) -> float:
    cost = price.count(work)
    return max(
        hardware.read_seconds(cost.weight_bytes + cost.kv_bytes), hardware.compute_seconds(cost.operations, compute_type) or 0.0)
