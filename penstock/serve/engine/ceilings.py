"""Tokens per second that the machine's measured limits allow for a model: the roofline's ceilings, which nothing can exceed, and the lower
ones that follow from the measured speed of the kernels' matrix products."""
from dataclasses import dataclass

from penstock.compute.price import Price
from penstock.core.hardware import Hardware, between
from penstock.core.work import StepWork

PROMPT_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Ceilings:
    decode_tokens_per_s: float  # one sequence with an empty context
    prefill_tokens_per_s: float  # a prompt of `prompt_tokens`
    prompt_tokens: int
    product_tokens_per_s: float | None = None  # of that prompt, were all arithmetic as fast as products; None: these were not measured
    doubts: tuple[str, ...] = ()  # about the measured limits, in sentences


def ceilings(price: Price, hardware: Hardware, compute_type: str, max_len: int, product_format: str) -> Ceilings:
    """A step takes no less than reading its weights, keys and values does, and no less than its operations do. `product_format`: of
    `Hardware.products`."""
    prompt = min(PROMPT_TOKENS, max_len)
    rate, reached = hardware.ops(compute_type), product_rate(hardware, product_format, prompt)
    decode = least_seconds(price, hardware, rate, StepWork(((1, 1),), num_logits=1))
    prefill, by_products = (least_seconds(price, hardware, each, StepWork(((prompt, prompt),), num_logits=1)) for each in (rate, reached))
    products = None if reached is None else prompt / max(prefill, by_products)
    unknown = () if rate else (f"the rate of {compute_type} is not among them, so that reading alone binds",)
    return Ceilings(1 / decode, prompt / prefill, prompt, products, (*unknown, *hardware.doubts))


def least_seconds(price: Price, hardware: Hardware, rate: float | None, work: StepWork) -> float:
    """`rate`: operations a second; None: not known, so that reading binds alone."""
    cost = price.count(work)
    return max(hardware.read_seconds(cost.weight_bytes + cost.kv_bytes), cost.operations / rate if rate else 0.0)


def product_rate(hardware: Hardware, product_format: str, rows: int) -> float | None:
    """Operations per second with this many rows, for the longest rows measured; None if none were. Where rows are rounded, and only those
    that are not were measured, the rate of these: it is lower."""
    lengths = hardware.products.get(product_format) or hardware.products.get(product_format.partition(":")[0])
    return between(lengths[max(lengths)], rows) if lengths else None
