"""The options of how tokens are chosen, which `generate` and `chat` share; what is not given is as the model recommends."""
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from penstock.cli.options import option
from penstock.core.errors import RequestError, UsageError
from penstock.core.types import SamplingParams

COMPLETION = 256  # tokens of `generate`, where nothing else is said
ANY_VOCABULARY = 1 << 62  # tokens; what depends on the model's own is checked when it is loaded


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    max_tokens: int | None = option(
        None, f"Most tokens to generate; default: in chat half of what the context leaves, else {COMPLETION} or all that it leaves")
    temperature: float | None = option(None, "Sampling temperature; 0 always takes the likeliest token; default: the model's own, else 1")
    top_p: float | None = option(None, "Sample from the likeliest tokens whose probabilities add up to this")
    top_k: int | None = option(None, "Sample from this many of the likeliest tokens")
    stop: tuple[str, ...] = option((), "Stop before this text; may be given several times")


def params_from(defaults: SamplingParams, options: SamplingOptions, seed: int | None, **more: Any) -> SamplingParams:
    """The model's recommended parameters with what the user gave put over them."""
    return replace(
        defaults, max_tokens=options.max_tokens, stop=options.stop,
        temperature=defaults.temperature if options.temperature is None else options.temperature,
        top_p=defaults.top_p if options.top_p is None else options.top_p,
        top_k=defaults.top_k if options.top_k is None else options.top_k, seed=defaults.seed if seed is None else seed, **more)


def check(options: SamplingOptions, seed: int | None, **more: Any) -> None:
    """Raises UsageError for a value that no model takes, before one is loaded."""
    from penstock.compute.decoding.params import check_params

    with told_by_flags():
        check_params(params_from(SamplingParams(), options, seed, **more), ANY_VOCABULARY)


@contextmanager
def told_by_flags() -> Iterator[None]:
    """Raises UsageError, with the flag's name, where a request is refused for what an option says."""
    try:
        yield
    except RequestError as error:
        name = error.param or ""
        if name not in {*(each.name for each in fields(SamplingOptions)), "seed", "logprobs"}:
            raise
        raise UsageError(str(error).replace(name, f"--{name.replace('_', '-')}", 1)) from None
