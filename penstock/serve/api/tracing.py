"""Traces of requests for OpenTelemetry, in the words of its GenAI semantic conventions 0.1 (docs/dashboard.md). An extra: `penstock[otel]`.

A request is a span with its parameters and usage and the moment of its first token, and below it what it waited for: queue, prefill,
decode. One that never reached the engine, a wrong one, is a span as well. Of what users write it has stop strings and nothing else. Nothing
of OpenTelemetry is imported before `open_tracing` finds that somebody asks for traces.
"""
import threading
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

import penstock
from penstock.core.clock import Clock, MonotonicClock
from penstock.core.errors import PenstockError, RequestError, UsageError
from penstock.core.extras import how_to_install
from penstock.serve.engine.requests import Delta, EngineClient, Forwarding, Request

PROVIDER = "penstock"
OPERATIONS = {
    "/v1/chat/completions": "chat", "/v1/responses": "chat", "/v1/completions": "text_completion", "/v1/embeddings": "embeddings",
}
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
DISABLED = "OTEL_SDK_DISABLED"
EXPORTER, OTLP = "OTEL_TRACES_EXPORTER", "otlp"
PATH = "/v1/traces"
CLOSE_S = 3.0


@dataclass(slots=True)
class Asked:
    """What HTTP knows of a request and the engine does not."""

    operation: str
    host: str | None
    port: int | None
    streams: bool = False  # known once the answer begins
    num_spans: int = 0  # that were begun for it


@dataclass(slots=True)
class Trail:
    """A request's way, for its spans. Times are nanoseconds since 1970, as OpenTelemetry has them. `began_s`: `began_ns` on the clock that
    nobody sets, by which all others are told."""

    span: Any
    asked: Asked | None
    began_ns: int
    began_s: float
    first_ns: int | None = None
    queued_s: float | None = None  # known with the first token
    num_tokens: int = 0
    num_choices: int = 0  # that have to end; none of an embedding
    reasons: dict[int, str] = field(default_factory=dict)  # by choice


class Tracing:
    """Makes spans with a TracerProvider of OpenTelemetry's SDK. `clock`: of `Request.arrival_s`."""

    def __init__(self, provider: Any, model: str, clock: Clock) -> None:
        from opentelemetry import context, propagate, trace

        self._context, self._propagate, self._trace = context, propagate, trace
        self._asked_key = context.create_key("penstock-asked")
        self._provider = provider
        self._tracer = provider.get_tracer(PROVIDER, penstock.__version__)
        self._model = model
        self._clock = clock

    def close(self) -> None:
        """Sends what has not been sent, for `CLOSE_S` at most: a collector that does not answer does not keep the server from ending."""
        closing = threading.Thread(target=self._provider.shutdown, name="penstock-traces", daemon=True)
        closing.start()
        closing.join(CLOSE_S)

    def enter(self, headers: Mapping[str, str], asked: Asked) -> Any:
        """From here on, requests of this task belong to the caller's trace (W3C traceparent). Returns what `leave` takes."""
        return self._context.attach(self._context.set_value(self._asked_key, asked, self._propagate.extract(headers)))

    def leave(self, token: Any) -> None:
        self._context.detach(token)

    def begin(self, request: Request) -> Trail:
        """A span that begins when the request arrived."""
        noted = self._context.get_value(self._asked_key)
        asked = noted if isinstance(noted, Asked) else None
        operation = "embeddings" if request.wants_embedding else asked.operation if asked is not None else "text_completion"
        attributes = {"gen_ai.operation.name": operation, "gen_ai.request.model": self._model, **parameters(request)}
        if asked is not None:
            asked.num_spans += 1
            attributes |= place_of(asked)
        now = self._clock.now()
        began_s = now if request.arrival_s is None else request.arrival_s
        began = time.time_ns() - round((now - began_s) * 1e9)
        num_choices = 0 if request.wants_embedding else request.params.n
        return Trail(self._start(f"{operation} {self._model}", attributes, began), asked, began, began_s, num_choices=num_choices)

    def refuse(self, asked: Asked, status: int, began_ns: int) -> None:
        """A span of a request that was answered with an error before the engine heard of it: which model was meant is not known."""
        attributes = {
            "gen_ai.operation.name": asked.operation, "gen_ai.provider.name": PROVIDER, "error.type": str(status), **place_of(asked)}
        span = self._start(asked.operation, attributes, began_ns)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end()

    def _start(self, name: str, attributes: Mapping[str, Any], began_ns: int) -> Any:
        return self._tracer.start_span(name, attributes=attributes, start_time=began_ns, kind=self._trace.SpanKind.SERVER)

    def note(self, trail: Trail, delta: Delta) -> None:
        """A step's part of the answer."""
        if trail.first_ns is None and delta.token_ids:
            trail.first_ns, trail.queued_s = self._now_ns(trail), delta.queued_s
            seconds = (trail.first_ns - trail.began_ns) / 1e9
            trail.span.add_event("first_token", {"gen_ai.response.time_to_first_chunk": seconds}, trail.first_ns)
        trail.num_tokens += len(delta.token_ids)
        if delta.finish_reason is not None and delta.embedding is None:  # an embedding generates nothing that could end
            trail.reasons[delta.index] = delta.finish_reason
        if delta.usage is not None:
            usage = delta.usage
            if delta.embedding is None:
                trail.span.set_attribute("gen_ai.usage.output_tokens", usage.completion_tokens)
            else:
                trail.span.set_attribute("gen_ai.embeddings.dimension.count", len(delta.embedding))
            trail.span.set_attribute("gen_ai.usage.input_tokens", usage.prompt_tokens)
            cached = {"read": usage.cached_tokens, "write": usage.cache_creation_input_tokens}
            trail.span.set_attributes({f"gen_ai.usage.cache_{kind}.input_tokens": num for kind, num in cached.items() if num})
            if usage.queued_s is not None:
                self._children(trail, usage.queued_s, usage.prefilled_s)

    def end(self, trail: Trail, request_id: str, error: BaseException | None) -> None:
        """The request is answered, or has failed, or nobody waits for it any more (GeneratorExit)."""
        span = trail.span
        span.set_attributes({"gen_ai.response.id": request_id, "gen_ai.response.model": self._model})
        reasons = trail.reasons if error is None else dict.fromkeys(range(trail.num_choices), "error") | trail.reasons
        if reasons:
            span.set_attribute("gen_ai.response.finish_reasons", [reasons[index] for index in sorted(reasons)])
        if trail.asked is not None and trail.asked.streams:
            span.set_attribute("gen_ai.request.stream", True)
            if trail.first_ns is not None:
                span.set_attribute("gen_ai.response.time_to_first_chunk", (trail.first_ns - trail.began_ns) / 1e9)
        if error is not None:
            words = str(error) if isinstance(error, PenstockError) else ""
            span.set_attribute("error.type", kind_of(error))
            if trail.queued_s is not None and trail.first_ns is not None:
                self._children(trail, trail.queued_s, (trail.first_ns - trail.began_ns) / 1e9)
            if trail.num_tokens:  # of an answer that was not finished
                span.set_attribute("gen_ai.usage.output_tokens", trail.num_tokens)
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, words))
        span.end(self._now_ns(trail))

    def _now_ns(self, trail: Trail) -> int:
        return trail.began_ns + round((self._clock.now() - trail.began_s) * 1e9)

    def _children(self, trail: Trail, queued_s: float, prefilled_s: float | None) -> None:
        """Queue until the first step, prefill until the first token is chosen, which a search tells much later, decode until now; without a
        token there is no decode."""
        now = self._now_ns(trail)
        first = now if prefilled_s is None else min(now, trail.began_ns + round(prefilled_s * 1e9))
        scheduled = min(first, trail.began_ns + round(queued_s * 1e9))
        parent = self._trace.set_span_in_context(trail.span)
        parts = (("queue", trail.began_ns, scheduled), ("prefill", scheduled, first), ("decode", first, now))
        for name, began, ended in parts if prefilled_s is not None else parts[:2]:
            self._tracer.start_span(name, parent, start_time=began).end(ended)


class Traced(Forwarding):
    """An EngineClient over another one, whose requests are traced: a span ends with the answer, with what it fails of, or with `abort`."""

    def __init__(self, engine: EngineClient, tracing: Tracing) -> None:
        super().__init__(engine)
        self._tracing = tracing
        self._open: dict[str, Trail] = {}  # by request id

    def submit(self, request: Request) -> AsyncIterator[Delta]:
        self._open[request.request_id] = self._tracing.begin(request)
        try:
            deltas = self._engine.submit(request)
        except Exception as error:
            self._end(request.request_id, error)
            raise
        return self._deltas(request.request_id, deltas)

    def abort(self, request_id: str) -> None:
        self._end(request_id, RequestError("the answer was abandoned", code="cancelled"))
        self._engine.abort(request_id)

    async def _deltas(self, request_id: str, deltas: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
        try:
            async for delta in deltas:
                if (trail := self._open.get(request_id)) is not None:
                    self._tracing.note(trail, delta)
                if delta.done:
                    self._end(request_id, None)
                yield delta
        except BaseException as error:  # whatever it is, the span ends with it
            self._end(request_id, error)
            raise
        self._end(request_id, PenstockError("the engine stopped before the answer was complete"))

    def _end(self, request_id: str, error: BaseException | None) -> None:
        trail = self._open.pop(request_id, None)
        if trail is not None:
            self._tracing.end(trail, request_id, error)


class Propagating:
    """ASGI: takes up the caller's trace, and notes what only HTTP knows."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = OPERATIONS.get(scope.get("path", "")) if scope["type"] == "http" else None
        if operation is None:
            return await self._app(scope, receive, send)
        host, port = scope.get("server") or (None, None)
        asked, began_ns = Asked(operation, host, port), time.time_ns()

        async def watching(message: Message) -> None:
            if message["type"] == "http.response.start":
                kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
                asked.streams = any(value.startswith(b"text/event-stream") for value in kinds)
                if message["status"] >= 400 and not asked.num_spans:
                    self._tracing.refuse(asked, message["status"], began_ns)
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        token = self._tracing.enter(headers, asked)
        try:
            await self._app(scope, receive, watching)
        finally:
            self._tracing.leave(token)


def parameters(request: Request) -> dict[str, Any]:
    """What was asked for, as attributes; whatever is at rest is left out."""
    params = request.params
    if request.wants_embedding:
        return {"gen_ai.provider.name": PROVIDER}
    given = {
        "gen_ai.request.choice.count": params.n if params.n != 1 else None, "gen_ai.request.seed": params.seed,
        "gen_ai.request.top_k": params.top_k if params.top_k > 0 else None,
        "gen_ai.request.frequency_penalty": params.frequency_penalty or None, "gen_ai.request.max_tokens": params.max_tokens,
        "gen_ai.request.presence_penalty": params.presence_penalty or None,
        "gen_ai.request.stop_sequences": [params.stop] if isinstance(params.stop, str) else list(params.stop) or None,
        "gen_ai.request.temperature": params.temperature, "gen_ai.request.top_p": params.top_p,
        "gen_ai.output.type": "json" if says_json(request) else None}
    return {"gen_ai.provider.name": PROVIDER} | {name: value for name, value in given.items() if value is not None}


def place_of(asked: Asked) -> dict[str, Any]:
    return {} if asked.host is None else {"server.address": asked.host, "server.port": asked.port}


def says_json(request: Request) -> bool:
    wanted = request.params.structured_outputs
    return wanted is not None and (wanted.json is not None or bool(wanted.json_object))


def kind_of(error: BaseException) -> str:
    """`error.type`: a code of the API where there is one."""
    if isinstance(error, RequestError):
        return error.code or str(error.status)
    return "cancelled" if isinstance(error, GeneratorExit) else type(error).__name__


def open_tracing(endpoint: str | None, environ: Mapping[str, str], model: str) -> Tracing | None:
    """Traces to `endpoint` (OTLP over HTTP), else where OpenTelemetry's own variables say; None where nobody asks for any.

    Raises UsageError when they are asked for and cannot be had.
    """
    disabled = environ.get(DISABLED, "").strip().lower() == "true"
    off = disabled or environ.get(EXPORTER) == "none"
    asked = next((name for name in ENDPOINTS if environ.get(name)), None) if not off else None
    if endpoint is None and asked is None:
        return None
    if disabled:
        raise UsageError(f"--otlp-endpoint {endpoint} asks for traces, which {DISABLED} = {environ[DISABLED]} forbids; leave one out")
    source = f"--otlp-endpoint {endpoint}" if endpoint is not None else f"{asked} = {environ.get(asked or '')}"
    if endpoint is None and not is_http(environ[asked or ""]):
        raise UsageError(f"{source} is not a URL; give one like http://localhost:4318")
    if environ.get(EXPORTER, OTLP) not in (OTLP, "", "none"):
        raise UsageError(f"{source}: traces are sent by {OTLP}, not by {EXPORTER} = {environ[EXPORTER]}")
    protocol = next((environ[name] for name in PROTOCOLS if environ.get(name)), PROTOCOL)
    if protocol != PROTOCOL:
        raise UsageError(f"{source}: traces are sent as {PROTOCOL}, not as {protocol}")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise UsageError(f"{source} asks for traces, which need OpenTelemetry: {how_to_install('otel')}") from None
    named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({"service.version": penstock.__version__} | ({} if named else {"service.name": PROVIDER}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=None if endpoint is None else url_of(endpoint))))
    return Tracing(provider, model, MonotonicClock())


def url_of(endpoint: str) -> str:
    """Where spans are posted: below the endpoint, as for OTEL_EXPORTER_OTLP_ENDPOINT. Raises UsageError for what is no HTTP URL."""
    if not is_http(endpoint):
        raise UsageError(f"--otlp-endpoint {endpoint} is not a URL; give one like http://localhost:4318")
    bare = endpoint.rstrip("/")
    return bare if bare.endswith(PATH) else bare + PATH


def is_http(url: str) -> bool:
    """Whether it names a host, and a port if any."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
