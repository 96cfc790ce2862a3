"""Validation of SamplingParams: every field is checked against its type and range, and brought to one form."""
import dataclasses
import json
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, TypeGuard

from penstock.core.errors import RequestError
from penstock.core.types import SamplingParams, StructuredOutputsParams

MAX_CHOICES = 128
_OFF = SamplingParams()
FILTERS = ("top_k", "top_p", "min_p", "typical_p")


@dataclasses.dataclass(frozen=True, slots=True)
class _Range:
    """The finite numbers from `low` to `high`; `above` excludes `low` itself."""

    low: float
    high: float
    above: bool = False
    whole: bool = False
    optional: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.above else self.low <= value) and value <= self.high and value != math.inf

    def __str__(self) -> str:
        kind = "an integer" if self.whole else "a finite number"
        if self.high == math.inf:
            bounds = f"above {self.low}" if self.above else f"of at least {self.low}"
        else:
            bounds = f"above {self.low} and at most {self.high}" if self.above else f"from {self.low} to {self.high}"
        return f"{kind} {bounds}{', or left out' * self.optional}"


_SWITCHES = ("include_stop_str_in_output", "ignore_eos", "skip_special_tokens", "early_stopping")


def _ranges(vocab_size: int, max_logprobs: int) -> dict[str, _Range]:
    logprobs = _Range(0, min(max_logprobs, vocab_size), whole=True, optional=True)
    return {
        "n": _Range(1, MAX_CHOICES, whole=True),
        "best_of": _Range(1, MAX_CHOICES, whole=True, optional=True),
        "beam_width": _Range(1, MAX_CHOICES, whole=True, optional=True),
        "temperature": _Range(0, math.inf),
        "top_k": _Range(-1, math.inf, whole=True),
        "top_p": _Range(0, 1, above=True),
        "min_p": _Range(0, 1),
        "typical_p": _Range(0, 1, above=True),
        "repetition_penalty": _Range(0, math.inf, above=True),
        "presence_penalty": _Range(-2, 2),
        "frequency_penalty": _Range(-2, 2),
        "seed": _Range(-(1 << 63), (1 << 64) - 1, whole=True, optional=True),
        "min_tokens": _Range(0, math.inf, whole=True),
        "max_tokens": _Range(1, math.inf, whole=True, optional=True),
        "logprobs": logprobs,
        "prompt_logprobs": logprobs,
        "length_penalty": _Range(-10, 10),
    }


def check_params(params: SamplingParams, vocab_size: int, max_logprobs: int = 20) -> SamplingParams:
    """The same parameters in one form: numbers as int and float, `stop` and `stop_token_ids` as tuples, top_k 0 instead of -1, the keys of
    logit_bias as int, and None instead of an empty logit_bias.

    `vocab_size` limits token ids, `max_logprobs` the number of log-probabilities per token.
    Raises RequestError, with `param` naming the field, for the first value of a wrong type, out of its range, or in conflict with another.
    """
    values: dict[str, Any] = {name: _number(name, getattr(params, name), valid)
                              for name, valid in _ranges(vocab_size, max_logprobs).items()}
    values["top_k"] = max(values["top_k"], 0)
    values |= {name: _switch(name, getattr(params, name)) for name in _SWITCHES}
    values["stop"] = _stop(params.stop)
    values["stop_token_ids"] = _stop_token_ids(params.stop_token_ids, vocab_size)
    values["logit_bias"] = _logit_bias(params.logit_bias, vocab_size)
    values |= {name: _object(name, getattr(params, name)) for name in ("scorer", "self_consistency")}
    checked = _with_votes(dataclasses.replace(params, **values))
    _check_pairs(checked)
    if checked.structured_outputs is not None:
        _check_structure(checked)
    if checked.beam_width is None:
        _check_no_search(checked)
    else:
        _check_search(checked, checked.beam_width)
    return checked


def _refuse(name: str, value: object, valid: object) -> RequestError:
    shown = _shown(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return RequestError(f"{name} is {shown}, but must be {valid}", param=name)


def _shown(value: object) -> str:
    """The value as JSON, the notation of most requests; its repr if it cannot be written as JSON."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _is_real(value: object) -> TypeGuard[float]:
    """Whether it is a number of any library, and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _number(name: str, value: Any, valid: _Range) -> int | float | None:
    if value is None and valid.optional:
        return None
    if not (_is_whole(value) if valid.whole else _is_real(value)):
        raise _refuse(name, value, valid)
    try:
        number: int | float = int(value) if valid.whole else float(value)
    except OverflowError:  # an integer beyond what a float holds
        raise _refuse(name, value, valid) from None
    if number not in valid:
        raise _refuse(name, value, valid)
    return number


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refuse(name, value, "true or false")
    return value


def _stop(value: Any) -> tuple[str, ...]:
    valid = "a string or a list of strings, none of them empty"
    if value is None:
        return ()
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, (tuple, list)) or not all(isinstance(text, str) and text for text in texts):
        raise _refuse("stop", value, valid)
    return tuple(texts)


def _stop_token_ids(value: Any, vocab_size: int) -> tuple[int, ...]:
    valid = f"a list of token ids from 0 to {vocab_size - 1}"
    if value is None:
        return ()
    if not isinstance(value, (tuple, list)):
        raise _refuse("stop_token_ids", value, valid)
    for token in value:
        if not _is_whole(token) or not 0 <= token < vocab_size:
            raise RequestError(f"stop_token_ids holds {str(token)[:80]}, but must be {valid}", param="stop_token_ids")
    return tuple(int(token) for token in value)


def _logit_bias(value: Any, vocab_size: int) -> dict[int, float] | None:
    if not value and (value is None or isinstance(value, Mapping)):
        return None
    if not isinstance(value, Mapping):
        raise _refuse("logit_bias", value, "a map from token ids to numbers from -100 to 100")
    biases: dict[int, float] = {}
    for key, bias in value.items():
        token = _token_id(key)
        if token is None or not 0 <= token < vocab_size:
            raise _refuse_bias(f"has the key {str(key)[:80]!r}, but its keys must be token ids from 0 to {vocab_size - 1}")
        if token in biases:
            raise _refuse_bias(f"names token {token} twice, but must name each token once")
        if not _is_real(bias) or not -100 <= bias <= 100:
            raise _refuse_bias(f"gives token {token} the value {str(bias)[:80]!r}, but its values must be numbers from -100 to 100")
        biases[token] = float(bias)
    return biases


def _refuse_bias(fault: str) -> RequestError:
    return RequestError(f"logit_bias {fault}", param="logit_bias")


def _token_id(key: Any) -> int | None:
    """A key of logit_bias as a token id; keys are strings in JSON. None: not an integer."""
    if _is_whole(key):
        return int(key)
    return int(key) if isinstance(key, str) and len(key) <= 20 and key.isascii() and key.isdigit() else None


def _object(name: str, value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise _refuse(name, value, "an object")
    return dict(value)


def _with_votes(params: SamplingParams) -> SamplingParams:
    """Checks self_consistency against the other fields, and sets best_of to its `n`."""
    if params.self_consistency is None:
        return params
    num, valid = params.self_consistency.get("n"), _Range(2, MAX_CHOICES, whole=True)
    if not _is_whole(num) or num not in valid:
        raise RequestError(f"self_consistency.n is {_shown(num)[:80]}, but must be {valid}", param="self_consistency")
    if params.best_of not in (None, num):
        raise _refuse("best_of", params.best_of, f"left out: self_consistency.n, which is {num}, says how many answers are tried")
    if params.scorer is not None:
        raise _refuse("scorer", params.scorer, "left out with self_consistency, which counts votes")
    if params.n != 1:
        raise _refuse("n", params.n, "1 with self_consistency, which has one answer")
    if params.temperature == 0:
        raise _refuse("temperature", params.temperature, "above 0 with self_consistency: at 0 all answers are the same")
    return dataclasses.replace(params, best_of=int(num))


def _check_pairs(params: SamplingParams) -> None:
    if params.best_of is not None and params.best_of < params.n:
        raise _refuse("best_of", params.best_of, f"at least n, which is {params.n}")
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise _refuse("min_tokens", params.min_tokens, f"at most max_tokens, which is {params.max_tokens}")


def _check_structure(params: SamplingParams) -> None:
    """The structure itself is checked where it is compiled (grammar/compiler.py)."""
    if not isinstance(params.structured_outputs, StructuredOutputsParams):
        raise _refuse("structured_outputs", params.structured_outputs, "StructuredOutputsParams")
    if params.min_tokens:
        raise _refuse("min_tokens", params.min_tokens, "0 with structured output, whose grammar says where an answer ends")
    if params.beam_width is not None:
        raise _refuse("beam_width", params.beam_width, "left out with structured output: a beam search does not follow grammars")


def _check_no_search(params: SamplingParams) -> None:
    for name in ("length_penalty", "early_stopping"):
        if getattr(params, name) != getattr(_OFF, name):
            raise _refuse(name, getattr(params, name), f"{_shown(getattr(_OFF, name))} unless beam_width asks for a beam search")


def _check_search(params: SamplingParams, beam_width: int) -> None:
    for name in ("scorer", "self_consistency"):
        if getattr(params, name) is not None:
            raise _refuse(name, getattr(params, name), "left out with beam_width: a beam search chooses by log-probability")
    if params.n > beam_width:
        raise _refuse("n", params.n, f"at most beam_width, which is {beam_width}")
    if params.best_of not in (None, params.n):
        raise _refuse("best_of", params.best_of, f"n, which is {params.n}, or left out: a beam search keeps beam_width sequences")
    if params.temperature not in (0, 1):
        raise _refuse("temperature", params.temperature, "0 or 1 with beam_width: a beam search draws nothing")
    for name in (*FILTERS, "stop"):
        if getattr(params, name) != getattr(_OFF, name):
            off = "left out" if name == "stop" else getattr(_OFF, name)
            raise _refuse(name, getattr(params, name), f"{off} with beam_width: a beam search draws nothing, and ends at tokens")
