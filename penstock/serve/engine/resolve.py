"""Fills the gaps of an EngineConfig, and records the reason for every value that was chosen. Pure: the same facts give the same answer."""
import logging
from dataclasses import dataclass, replace

from penstock.compute.backends.contract import step_bytes
from penstock.compute.decoding.control import controllers
from penstock.compute.models.blocks.rope import longest
from penstock.core.config import MAX_THREADS, EngineConfig, Resolved, check_threads
from penstock.core.errors import CapacityError, UsageError
from penstock.core.modelspec import ModelSpec
from penstock.core.size import size
from penstock.decide.scheduler.step import most_logits
from penstock.serve.engine.draft_memory import DraftMemory
from penstock.serve.engine.holding import Held
from penstock.serve.engine.machine import Machine

log = logging.getLogger("penstock.engine")
AUTO = "auto"
NOTHING = DraftMemory()
KV_SHARE = 0.6  # of the memory that weights leave free: the rest is for activations and other programs


def activation_bytes(config: EngineConfig, spec: ModelSpec, held: Held, drafts: int = 0) -> int:
    """Of a step, with so many drafts of a sequence at most."""
    rows = config.max_num_batched_tokens
    return round(step_bytes(held.row_bytes, rows, spec.vocab_size, most_logits(rows, config.max_num_seqs, drafts)))


def choose_dtype(config: EngineConfig, spec: ModelSpec, dtypes: tuple[str, ...]) -> tuple[str, str]:
    """(the dtype that weights are rounded to, the reason). Raises UsageError for one that the backend does not support."""
    if config.dtype != AUTO:
        if config.dtype not in dtypes:
            raise UsageError(f"--dtype {config.dtype}: the {config.backend} backend takes {', '.join(dtypes)}")
        return config.dtype, "as asked"
    if spec.dtype in dtypes:
        return spec.dtype, "the checkpoint's"
    return "float32", f"the checkpoint has {spec.dtype}, which the {config.backend} backend does not take"


def check_kv_dtype(config: EngineConfig, dtype: str, held: Held) -> None:
    """`dtype`: as it was chosen. Raises UsageError for another format than that which keys and values are kept in."""
    if config.kv_dtype not in (AUTO, held.dtype):
        raise UsageError(
            f"--kv-dtype {config.kv_dtype}: with --dtype {dtype}, the {config.backend} backend keeps keys and values in {held.dtype}")


def resolve(config: EngineConfig, spec: ModelSpec, held: Held, machine: Machine, drafting: DraftMemory = NOTHING) -> Resolved:
    """`drafting`: the memory that drafting takes. Raises UsageError for values that contradict each other, CapacityError if the model, its
    drafter or the cache does not fit."""
    reasons: dict[str, str] = {}
    _check_numbers(config)
    if config.quant.partition(":")[0] not in held.quant_schemes:
        raise UsageError(f"--quant {config.quant}: the {config.backend} backend takes {', '.join(held.quant_schemes)}")
    dtype, reasons["dtype"] = choose_dtype(config, spec, held.dtypes)
    check_kv_dtype(config, dtype, held)
    reasons["kv_dtype"] = "what the backend computes in"
    max_len, reasons["max_model_len"] = _max_model_len(config, spec)
    activations = activation_bytes(config, spec, held, drafting.drafts)
    free = machine.memory_bytes - held.weight_bytes - drafting.fixed - activations
    if free <= 0:
        also = f", {size(drafting.fixed)} for --propose {config.propose}" if drafting.fixed else ""
        raise CapacityError(
            f"{config.model} needs {size(held.weight_bytes)} for its weights with --dtype {dtype} --quant {config.quant}{also} and "
            f"{size(activations)} for activations, but {size(machine.memory_bytes)} of memory are free")
    token = Token(held.kv_token_bytes, drafting.per_token)
    kv_tokens, reasons["kv_tokens"] = _kv_tokens(config, token, free, max_len)
    if kv_tokens < max_len and config.max_model_len is None:
        max_len, reasons["max_model_len"] = kv_tokens, f"all that the KV cache of {kv_tokens:,} tokens holds"
    threads, reasons["threads"] = threads_of(config, spec, held.least_share, machine)
    _check_drafting(config)
    engine = replace(
        config, dtype=dtype, kv_dtype=held.dtype, max_model_len=max_len, kv_tokens=kv_tokens, threads=threads)
    return Resolved(engine, reasons)


def _check_drafting(config: EngineConfig) -> None:
    """Raises UsageError for an unknown controller, and for options that would have no effect."""
    if config.draft_control not in controllers.NAMES:
        raise UsageError(f"--draft-control {config.draft_control}: choose one of {', '.join(controllers.NAMES)}")
    for name in ("accept", "draft_control") if config.propose is None else ():
        if (value := getattr(config, name)) != getattr(EngineConfig(), name):
            raise UsageError(f"--{name.replace('_', '-')} {value} has no effect without --propose: leave it out, or name a proposer")


def threads_of(config: EngineConfig, spec: ModelSpec, least_share: int, machine: Machine) -> tuple[int, str]:
    """(the number of threads, the reason). `least_share`: see Caps."""
    if config.threads is not None:
        return config.threads, "as asked"
    shares = max(1, spec.hidden_size * max(2 * spec.intermediate_size, spec.vocab_size) // least_share)
    if shares < min(machine.num_cpus, MAX_THREADS):
        return shares, f"this model's products are too small for more of the {machine.num_cpus} processors"
    if machine.num_cpus > MAX_THREADS:
        return MAX_THREADS, f"as many as there may be, for {machine.num_cpus:,} processors"
    return machine.num_cpus, "one for each processor"


def shared_told(threads: int | None, num_cpus: int) -> str | None:
    """A sentence, where there are fewer processors than threads."""
    if threads is None or threads <= num_cpus:
        return None
    here = "1 processor" if num_cpus == 1 else f"{num_cpus} processors"
    return f"--threads {threads} is more than the {here} here: threads that share one wait for each other, which is slow"


def warn_of_shared(threads: int | None, num_cpus: int) -> None:
    """Logs that there are fewer processors than threads."""
    if (told := shared_told(threads, num_cpus)) is not None:
        log.warning("%s", told)


def _check_numbers(config: EngineConfig) -> None:
    for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "kv_tokens", "max_model_len"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    check_threads(config.threads)


def _max_model_len(config: EngineConfig, spec: ModelSpec) -> tuple[int, str]:
    ropes = {layer.rope for layer in spec.layers if layer.rope is not None}
    if config.max_model_len is None:
        short = next((rope.original_max_position for rope in ropes if rope.scaling == "longrope"), spec.max_position)
        also = f", with the rope factors of long contexts (--max-model-len {short} takes those of short ones)"
        return spec.max_position, f"the model's own limit{also if short < spec.max_position else ''}"
    most = min((longest(rope, spec.max_position) for rope in ropes), default=spec.max_position)
    if config.max_model_len > most:
        raise UsageError(
            f"--max-model-len {config.max_model_len}: the model was made for {most:.0f} tokens, by max_position_embeddings and "
            "rope_scaling in its config.json")
    if config.max_model_len > spec.max_position and any(rope.scaling == "linear" for rope in ropes):
        log.warning("--max-model-len %d is beyond max_position_embeddings, %d, and config.json does not say whether the factor of "
                    "rope_scaling is in that already", config.max_model_len, spec.max_position)
    return config.max_model_len, "as asked"


@dataclass(frozen=True, slots=True)
class Token:
    """Bytes of a token in the model's KV cache, and in the drafter's."""

    own: int
    drafting: int

    @property
    def both(self) -> int:
        return self.own + self.drafting

    @property
    def told(self) -> str:
        return f", {self.drafting:,} of {self.both:,} bytes a token for drafting" if self.drafting else ""


def _kv_tokens(config: EngineConfig, token: Token, free: int, max_len: int) -> tuple[int, str]:
    """Whole blocks. No more than every sequence at full length needs."""
    block_size, bytes_per_token = config.block_size, token.both
    if config.kv_tokens is not None:
        tokens = config.kv_tokens // block_size * block_size
        if tokens == 0:
            raise UsageError(f"--kv-tokens {config.kv_tokens} is less than one block of {block_size} tokens")
        if tokens * bytes_per_token > free:
            raise CapacityError(
                f"--kv-tokens {config.kv_tokens} take {size(tokens * bytes_per_token)}{token.told}, but "
                f"{size(free)} are free: {free // bytes_per_token // block_size * block_size:,} tokens would fit")
        return tokens, "as given, in whole blocks"
    most = config.max_num_seqs * -(-max_len // block_size) * block_size
    fits = int(free * KV_SHARE) // bytes_per_token // block_size * block_size
    if fits == 0:
        raise CapacityError(f"{size(free)} of memory are left for the KV cache, not enough for one block of {block_size} tokens")
    if most <= fits:
        return most, f"{config.max_num_seqs} sequences at full length"
    return fits, f"{KV_SHARE:.0%} of the {size(free)} that the weights leave free{token.told}"
