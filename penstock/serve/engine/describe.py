"""What a model is and how much of it fits here, from its config.json alone."""
from dataclasses import dataclass, field

from penstock.compute.models.quantized import refuse_quantized
from penstock.compute.ops import check_served
from penstock.core.config import EngineConfig
from penstock.core.errors import CapacityError, ModelError
from penstock.core.modelspec import DTYPE_BYTES
from penstock.serve.engine import build
from penstock.serve.engine.ceilings import Ceilings, ceilings
from penstock.serve.engine.machine import look, measured_limits
from penstock.serve.engine.resolve import KV_SHARE, activation_bytes, check_kv_dtype, threads_of


@dataclass(frozen=True, slots=True)
class Description:
    model: str
    architecture: str
    num_layers: int
    parameters: int
    dtype: str  # of what is not quantized
    weight_formats: tuple[str, ...]  # of the matrices, the most common first
    weight_bytes: int  # as they are stored in these
    bits_per_weight: float  # all of them, scales counted
    kv_dtype: str  # the model's own
    kv_bytes_per_token: int  # in `kv_dtype`
    held_kv_dtype: str  # that the backend keeps them in
    held_kv_bytes_per_token: int
    max_model_len: int  # tokens
    memory_bytes: int  # free here
    longest_context: int  # tokens of one sequence that fit here
    largest_batch: int  # sequences of max_model_len tokens that fit here
    served_tokens: int  # of the KV cache that `penstock serve` makes with these options; 0 where it does not start
    served_told: str  # why so many
    threads: int  # that compute
    ceilings: Ceilings | None = None  # None where the machine's limits were not measured
    reasons: dict[str, str] = field(default_factory=dict)


def describe(config: EngineConfig) -> Description:
    """Loads no weights. Raises PenstockError when the model cannot be found or understood, UsageError for an option that it would not be
    served with."""
    found = build.look_up(config)
    chosen = build.choose(config, found)
    spec, dtype, holding, held = found.spec, chosen.dtype, chosen.holding, chosen.holding.held
    check_kv_dtype(chosen.config, dtype, held)
    kv_dtype = dtype if config.kv_dtype == "auto" else config.kv_dtype
    token_bytes = held.kv_token_bytes * DTYPE_BYTES[kv_dtype] // DTYPE_BYTES[held.dtype]
    memory = look().memory_bytes
    room = max(0, memory - held.weight_bytes - activation_bytes(config, spec, held))
    tokens = int(room * KV_SHARE) // held.kv_token_bytes
    max_len = config.max_model_len or spec.max_position
    reasons = {"dtype": chosen.reasons["dtype"], "quant": holding.told(), "fits": (
        f"the {chosen.config.backend} backend holds the weights in {held.weight_bytes:,} bytes, keys and values in {held.dtype}; "
        f"{KV_SHARE:.0%} of what the weights leave free is for the KV cache: {tokens:,} tokens")}
    try:
        check_served(holding.program)
        refuse_quantized(found.config)
        resolved = build.settle(found, chosen)
        served = resolved.engine.kv_tokens or 0, resolved.reasons["kv_tokens"]
    except (CapacityError, ModelError) as error:
        served = 0, str(error)
    threads, reasons["threads"] = threads_of(config, spec, held.least_share, look())
    hardware = measured_limits(held.device, threads)
    most = None if hardware is None else ceilings(holding.price, hardware, held.compute_type, max_len, held.product_format)
    return Description(
        config.model, found.architecture, spec.num_layers, spec.num_parameters(), dtype, tuple(holding.matrices), holding.stored_bytes,
        holding.bits_per_weight, kv_dtype, token_bytes, held.dtype, held.kv_token_bytes, max_len, memory, min(tokens, max_len),
        tokens // max_len, *served, threads, most, reasons)
