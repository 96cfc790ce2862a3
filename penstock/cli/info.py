"""`penstock info [MODEL]`: what a model is and what of it fits here, told from config.json alone."""
import json as jsonlib
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from penstock.cli.options import option, takes
from penstock.core.config import EngineConfig
from penstock.core.size import size


@dataclass(frozen=True, slots=True)
class InfoOptions:
    json: bool = option(False, "Print one JSON object")


@takes(InfoOptions, EngineConfig)
def info(options: InfoOptions, engine: EngineConfig) -> None:
    """Show what a model is and how much of it fits here."""
    from penstock.serve.engine.describe import describe

    found = describe(engine)
    if options.json:
        print(jsonlib.dumps(asdict(found)))
        return
    from penstock.cli.terminal import columns
    from penstock.study.wrapping import wrapped

    width = columns(sys.stdout)
    for label, text in rows(found):
        print(wrapped(f"{label:20} {text}", width, 21))


def rows(found: Any) -> Iterator[tuple[str, str]]:
    """(label, value with its unit) of each line."""
    yield "model", f"{found.model} ({found.architecture}, {found.num_layers} layers)"
    yield "parameters", f"{found.parameters:,}"
    yield "weights", f"{size(found.weight_bytes)}, {found.bits_per_weight:.3g} bits each, {formats(found)}"
    kept = "" if found.held_kv_dtype == found.kv_dtype else f", kept here as {size(found.held_kv_bytes_per_token)} in {found.held_kv_dtype}"
    yield "KV cache", f"{size(found.kv_bytes_per_token)} per token in {found.kv_dtype}{kept}"
    yield "context", f"{found.max_model_len:,} tokens"
    yield "memory here", size(found.memory_bytes)
    yield "longest that fits", f"{found.longest_context:,} tokens"
    yield "largest batch", f"{found.largest_batch:,} sequence{'s' * (found.largest_batch != 1)} of {found.max_model_len:,} tokens"
    changed = "--max-num-seqs or --kv-tokens changes that"
    yield "serve takes", (f"a KV cache of {found.served_tokens:,} tokens: {found.served_told}; {changed}" if found.served_tokens
                          else f"nothing: {found.served_told}")
    yield from speeds(found)
    for name, reason in found.reasons.items():
        yield f"  {name}", reason


def speeds(found: Any) -> Iterator[tuple[str, str]]:
    if found.ceilings is None:
        yield "tokens/s", "not predicted: run `penstock limits` once to measure this machine"
        return
    crew = "1 thread" if found.threads == 1 else f"{found.threads} threads"
    most, why = found.ceilings, f"the ceiling set by this machine's measured limits with {crew}"
    yield "decode, at most", f"{speed(most.decode_tokens_per_s)} tokens/s for one sequence: {why}"
    yield "prefill, at most", f"{speed(most.prefill_tokens_per_s)} tokens/s for a prompt of {most.prompt_tokens} tokens: {why}"
    if most.product_tokens_per_s is not None:
        yield "prefill, about", f"{speed(most.product_tokens_per_s)} tokens/s for it: what the kernels reach in this weight format"
    else:
        yield "prefill, about", ("not predicted: such products were not measured; `penstock limits --fresh` measures those of the "
                                 "native kernels")
    if most.doubts:
        more = f", and {len(most.doubts) - 1} more like this" if len(most.doubts) > 1 else ""
        yield "in doubt", f"these limits: {most.doubts[0]}{more}; `penstock limits --fresh` measures again"


def formats(found: Any) -> str:
    """`in bfloat16`; `matrices in 4 bits by 32 columns and 8 bits by row, all else in bfloat16`."""
    *names, last = found.weight_formats
    if {*names, last} <= {found.dtype}:
        return f"in {found.dtype}"
    return f"matrices in {', '.join(names)}{' and ' if names else ''}{last}, all else in {found.dtype}"


def speed(rate: float) -> str:
    """Three digits at least: 1234.5 -> 1,234 and 12.345 -> 12.3."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
