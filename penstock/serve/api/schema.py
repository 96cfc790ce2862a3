"""What every kind of request has in common: its body, its model, its sampling parameters, its stream options, its place in the queue."""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request as HttpRequest

from penstock.compute.decoding.params import MAX_CHOICES
from penstock.core.errors import RequestError
from penstock.core.slo import NO_OBJECTIVES, Objectives
from penstock.core.types import SamplingParams
from penstock.serve.api import fields
from penstock.serve.api.body import parse_object
from penstock.serve.api.keys import Asker
from penstock.serve.api.naming import told_id
from penstock.serve.api.parts import Desk
from penstock.serve.api.slo import check_bounded, read_objectives
from penstock.serve.api.values import Values, show
from penstock.serve.engine.recommended import with_recommended
from penstock.serve.engine.requests import Request

SAME_NAME = (
    "n", "best_of", "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "logit_bias", "seed", "stop", "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "min_tokens", "prompt_logprobs",
    "skip_special_tokens", "scorer", "self_consistency", "beam_width", "length_penalty", "early_stopping",
)
MAX_LOGPROBS = 20
MAX_STOPS = {"stop": 64, "stop_token_ids": 1024}  # each costs time with each token
INT64 = 1 << 63


@dataclass(frozen=True, slots=True)
class Streaming:
    on: bool = False
    include_usage: bool = False
    continuous_usage: bool = False


@dataclass(frozen=True, slots=True)
class Placing:
    """When a request came, where it stands in the queue, and with whom it shares prefixes."""

    arrived_s: float
    priority: int = 0
    salt: str = ""
    objectives: Objectives = NO_OBJECTIVES


@dataclass(frozen=True, slots=True)
class Received:
    """`size` is the body's in bytes: the measure of all work on it."""

    body: dict[str, Any]
    size: int


async def receive(desk: Desk, request: HttpRequest, endpoint: str, usual: Mapping[str, Any] | None = None) -> Received:
    """The body of a POST, every field of it known and none refused (`usual`: see `check_fields`), for the model that is served."""
    data = await desk.intake.read(request)
    body = await desk.work.run(len(data), parse_object, data)
    if desk.log is not None:
        await desk.work.run(len(data), desk.log.write, request.url.path, body, told_id(request))
    fields.check_fields(body, endpoint, usual=usual)
    check_model(desk, body)
    return Received(body, len(data))


def check_model(desk: Desk, body: Mapping[str, Any]) -> None:
    name = Values(body).text("model", desk.model)
    if name != desk.model:
        message = f"the model {show(name)} is not served here; {desk.model!r} is"
        raise RequestError(message, param="model", status=404, code="model_not_found")


def read_streaming(body: Mapping[str, Any]) -> Streaming:
    values = Values(body)
    on = values.boolean("stream", False)
    options = values.mapping("stream_options")
    if options is None:
        return Streaming(on)
    if not on:
        raise RequestError("stream_options needs stream = true", param="stream_options")
    fields.check_fields(options, fields.STREAM, "stream_options.")
    inner = Values(options, "stream_options.")
    return Streaming(on, inner.boolean("include_usage", False), inner.boolean("continuous_usage_stats", False))


def read_placing(body: Mapping[str, Any], http: HttpRequest, arrived_s: float) -> Placing:
    """What the body and the headers do not say is as the API key has it."""
    asker: Asker = http.scope["asker"]
    values = Values(body)
    salt = values.text("cache_salt", "")
    if salt == "" and values.given("cache_salt"):
        raise RequestError("cache_salt must not be empty; leave it out to share prefixes", param="cache_salt")
    priority = values.integer("priority", asker.priority or 0, -INT64, INT64 - 1)
    if asker.priority is not None and priority < asker.priority:
        raise RequestError(f"priority = {priority} is more urgent than this API key allows: {asker.priority} or more", param="priority")
    return Placing(arrived_s, priority, salt, read_objectives(body, http.headers, asker.objectives))


def read_params(desk: Desk, body: Mapping[str, Any], max_tokens: int | None, logprobs: Any) -> SamplingParams:
    """The fields that have SamplingParams' own names, and two whose meaning depends on the endpoint. Not yet checked."""
    given = {name: body[name] for name in SAME_NAME if body.get(name) is not None}
    for name, most in MAX_STOPS.items():
        if isinstance(given.get(name), list) and len(given[name]) > most:
            raise RequestError(f"{name} has {len(given[name])} entries; at most {most} are taken", param=name)
    given |= {"max_tokens": max_tokens, "logprobs": logprobs}
    given |= _beams(body)
    return SamplingParams(**with_recommended(desk.parts.sampling_defaults, given))


def _beams(body: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's spelling of beam search: use_beam_search with best_of, or n, as the width."""
    values = Values(body)
    if not values.boolean("use_beam_search", False):
        if values.given("beam_width") and values.given("use_beam_search"):
            raise RequestError("beam_width is given, but use_beam_search is false", param="beam_width")
        return {}
    if values.given("beam_width"):
        return {}
    width = values.integer("best_of", None, 1, MAX_CHOICES) or values.integer("n", 1, 1)
    return {"beam_width": width, "best_of": None}


def make_request(request_id: str, token_ids: tuple[int, ...], params: SamplingParams, placing: Placing, max_name: str = "max_tokens",
                 **more: Any) -> Request:
    """Raises RequestError for an end-to-end objective without a bound on the answer, `max_name`."""
    objectives = placing.objectives
    check_bounded(objectives, params.max_tokens, max_name)
    return Request(
        request_id, token_ids, params, priority=placing.priority, salt=placing.salt, arrival_s=placing.arrived_s,
        ttft_slo_s=objectives.ttft_s, tpot_slo_s=objectives.tpot_s, e2e_slo_s=objectives.e2e_s, **more)
