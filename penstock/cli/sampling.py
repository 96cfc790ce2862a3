"""The options of how tokens are chosen, which `generate` and `chat` share; what is not given is as the model recommends."""
from dataclasses import dataclass, replace
from typing import Any

from penstock.cli.options import option
from penstock.core.types import SamplingParams


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    max_tokens: int = option(256, "Tokens to generate at most")
    temperature: float | None = option(None, "0 takes the likeliest token; default: the model's own, else 1")
    top_p: float | None = option(None, "Draw from the likeliest tokens of this total probability")
    top_k: int | None = option(None, "Draw from this many likeliest tokens")
    stop: tuple[str, ...] = option((), "Stop before this text; may be given several times")


def params_from(defaults: SamplingParams, options: SamplingOptions, seed: int | None, **more: Any) -> SamplingParams:
    """The model's recommended parameters with what the user gave put over them."""
    given = {"temperature": options.temperature, "top_p": options.top_p, "top_k": options.top_k, "seed": seed}
    told = {name: value for name, value in given.items() if value is not None}
    return replace(defaults, max_tokens=options.max_tokens, stop=options.stop, **told, **more)
