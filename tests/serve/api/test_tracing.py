"""Traces: the GenAI conventions' names and times, the caller's trace taken up, nothing of what users write, nothing imported unasked."""
import asyncio
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from penstock.core.clock import MonotonicClock
from penstock.core.errors import OverloadedError, UsageError
from penstock.core.types import SamplingParams, StructuredOutputsParams
from penstock.serve.api import tracing
from penstock.serve.api.tracing import Propagating, Traced, Tracing, open_tracing, url_of
from penstock.serve.engine.requests import Delta, Request, Usage
from tests.serve.api import fakes

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is an extra: pip install '.[otel]'")
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Kept:
    """Spans in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = Tracing(provider, "tiny", MonotonicClock())

    def spans(self) -> dict[str, Any]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


@pytest.fixture
def kept() -> Kept:
    return Kept()


class Scripted(fakes.FakeEngine):
    """Says what it is told to."""

    def __init__(self, *deltas: Delta | Exception) -> None:
        super().__init__(fakes.tiny_tokenizer())
        self.deltas = deltas

    def submit(self, request: Request) -> AsyncIterator[Delta]:
        if self.deltas and isinstance(self.deltas[0], OverloadedError):
            raise self.deltas[0]
        return self._say()

    async def _say(self) -> AsyncIterator[Delta]:
        for delta in self.deltas:
            await asyncio.sleep(0.002)
            if isinstance(delta, Exception):
                raise delta
            yield delta


def run(kept: Kept, engine: Scripted, request: Request, most: int = 100) -> None:
    async def go() -> None:
        deltas = Traced(engine, kept.tracing).submit(request)
        for _ in range(most):
            try:
                await anext(deltas)
            except StopAsyncIteration:
                return
        await deltas.aclose()  # type: ignore[attr-defined]

    asyncio.run(go())


ASKED = Request("cmpl-1", (1, 2, 3), SamplingParams(n=2, temperature=0.5, top_p=0.9, top_k=7, max_tokens=9, seed=3, stop=("end",)))
ANSWER = (Delta(0, "a", (5,)), Delta(1, "b", (6,), finish_reason="stop"),
          Delta(0, "c", (7,), finish_reason="length", done=True, usage=Usage(3, 3, 2, 1, queued_s=0.001, prefilled_s=0.002)))


def test_a_request_is_a_span_with_what_it_waited_for_below_it(kept: Kept) -> None:
    run(kept, Scripted(*ANSWER), ASKED)
    spans = kept.spans()
    assert spans.keys() == {"text_completion tiny", "queue", "prefill", "decode"}
    span = spans["text_completion tiny"]
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "text_completion", "gen_ai.provider.name": "penstock", "gen_ai.request.model": "tiny",
        "gen_ai.request.choice.count": 2, "gen_ai.request.seed": 3, "gen_ai.request.top_k": 7, "gen_ai.request.max_tokens": 9,
        "gen_ai.request.stop_sequences": ("end",), "gen_ai.request.temperature": 0.5, "gen_ai.request.top_p": 0.9,
        "gen_ai.response.id": "cmpl-1", "gen_ai.response.model": "tiny",
        "gen_ai.response.finish_reasons": ("length", "stop"), "gen_ai.usage.input_tokens": 3, "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 2, "gen_ai.usage.cache_write.input_tokens": 1}
    assert isinstance(span.attributes["gen_ai.request.top_k"], int), "the conventions say int"
    (first,) = span.events
    queue, prefill, decode = spans["queue"], spans["prefill"], spans["decode"]
    assert first.name == "first_token" and span.start_time < first.timestamp <= span.end_time
    assert all(child.parent.span_id == span.context.span_id for child in (queue, prefill, decode))
    assert span.start_time == queue.start_time and queue.end_time == queue.start_time + 1_000_000 == prefill.start_time
    assert prefill.end_time == prefill.start_time + 1_000_000 == decode.start_time <= decode.end_time <= span.end_time
    assert span.status.status_code.name == "UNSET", "the conventions leave it so where nothing failed"


def test_json_answers_say_so_and_what_is_at_rest_is_left_out(kept: Kept) -> None:
    wanted = SamplingParams(max_tokens=None, structured_outputs=StructuredOutputsParams(json={"type": "object"}))
    run(kept, Scripted(*ANSWER), Request("r", (1,), wanted))
    attributes = kept.spans()["text_completion tiny"].attributes
    assert attributes["gen_ai.output.type"] == "json" and "gen_ai.request.max_tokens" not in attributes
    assert not {"gen_ai.request.top_k", "gen_ai.request.seed", "gen_ai.request.choice.count"} & attributes.keys()


def test_a_cache_that_was_not_touched_and_a_form_that_was_not_asked_for_are_not_named(kept: Kept) -> None:
    run(kept, Scripted(Delta(0, "a", (5,), finish_reason="stop", done=True, usage=Usage(3, 1))), Request("r", (1, 2, 3), SamplingParams()))
    attributes = kept.spans()["text_completion tiny"].attributes
    assert attributes["gen_ai.usage.input_tokens"] == 3 and not [name for name in attributes if "cache" in name or "output.type" in name]


FULL = OverloadedError("full", retry_after_s=1.0)


@pytest.mark.parametrize("error,kind", [(RuntimeError("secret words"), "RuntimeError"), (FULL, "rate_limit_exceeded")])
def test_a_failure_ends_the_span_with_its_kind(kept: Kept, error: Exception, kind: str) -> None:
    with pytest.raises(type(error)):
        run(kept, Scripted(error), ASKED)
    span = kept.spans()["text_completion tiny"]
    assert span.status.status_code.name == "ERROR" and span.attributes["error.type"] == kind
    assert span.attributes["gen_ai.response.finish_reasons"] == ("error", "error"), "two choices were expected"
    assert "secret" not in span.to_json()


def test_a_choice_that_was_finished_keeps_its_reason_where_the_other_failed(kept: Kept) -> None:
    with pytest.raises(RuntimeError):
        run(kept, Scripted(*ANSWER[:2], RuntimeError()), ASKED)
    assert kept.spans()["text_completion tiny"].attributes["gen_ai.response.finish_reasons"] == ("error", "stop")


def test_an_answer_that_nobody_waits_for_is_cancelled(kept: Kept) -> None:
    run(kept, Scripted(*ANSWER), ASKED, most=1)
    span = kept.spans()["text_completion tiny"]
    assert span.attributes["error.type"] == "cancelled" and len(span.events) == 1
    assert span.attributes["gen_ai.usage.output_tokens"] == 1 and len(kept.spans()) == 1, "nothing tells what it had waited for"


def test_what_a_cancelled_answer_had_waited_for_is_told(kept: Kept) -> None:
    run(kept, Scripted(replace(ANSWER[0], queued_s=0.001), *ANSWER[1:]), ASKED, most=1)
    spans = kept.spans()
    assert spans.keys() == {"text_completion tiny", "queue", "prefill", "decode"}
    span, queue, prefill, decode = (spans[name] for name in ("text_completion tiny", "queue", "prefill", "decode"))
    assert span.start_time == queue.start_time and queue.end_time == queue.start_time + 1_000_000 == prefill.start_time
    assert abs(prefill.end_time - span.events[0].timestamp) <= 1000 and prefill.end_time == decode.start_time, "in floats of seconds"
    assert decode.start_time <= decode.end_time <= span.end_time


def test_an_answer_that_is_given_up_before_anybody_asks_for_it_is_cancelled(kept: Kept) -> None:
    over = Traced(Scripted(*ANSWER), kept.tracing)
    over.submit(ASKED)
    over.abort(ASKED.request_id)
    over.abort(ASKED.request_id)
    assert kept.spans()["text_completion tiny"].attributes["error.type"] == "cancelled"


def test_nothing_is_noted_of_an_answer_that_was_given_up(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        over = Traced(Scripted(*ANSWER), kept.tracing)
        deltas = over.submit(ASKED)
        await anext(deltas)
        over.abort(ASKED.request_id)
        assert [delta.text async for delta in deltas] == ["b", "c"]

    asyncio.run(go())
    assert kept.spans().keys() == {"text_completion tiny"} and not caplog.records


def test_spans_last_as_long_as_they_do_when_the_clock_is_set_back(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    times = itertools.count(2 * 10**18, -3600 * 10**9)
    monkeypatch.setattr(time, "time_ns", lambda: next(times))
    run(kept, Scripted(*ANSWER), ASKED)
    spans = kept.spans()
    whole = spans["text_completion tiny"]
    assert len(spans) == 4 and whole.events[0].attributes["gen_ai.response.time_to_first_chunk"] > 0
    assert all(whole.start_time <= span.start_time <= span.end_time <= whole.end_time for span in spans.values())


def test_a_span_begins_when_its_request_arrived(kept: Kept) -> None:
    before = time.time_ns()
    run(kept, Scripted(*ANSWER), replace(ASKED, arrival_s=MonotonicClock().now() - 60))
    after, (span, queue) = time.time_ns(), (kept.spans()[name] for name in ("text_completion tiny", "queue"))
    assert before - 61_000_000_000 < span.start_time < after - 59_000_000_000 and queue.start_time == span.start_time


@pytest.fixture(scope="module")
def traced() -> Iterator[tuple[fakes.Running, Kept]]:
    """A server whose requests are traced."""
    kept = Kept()
    plain, engine = (fakes.FakeEngine(fakes.tiny_tokenizer()) for _ in range(2))
    over = Traced(plain, kept.tracing)
    engine.submit, engine.abort = over.submit, over.abort  # type: ignore[method-assign]
    running = fakes.serve(engine)
    running.server.config.loaded_app = Propagating(running.server.config.loaded_app, kept.tracing)
    yield running, kept
    running.stop()


def ask(running: fakes.Running, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
    assert running.client.post(path, json=body, headers=headers or {}).status_code == 200


def last(kept: Kept, name: str) -> Any:
    fakes.wait_for(lambda: name in kept.spans())
    return kept.spans()[name]


def test_the_callers_trace_is_taken_up(traced: tuple[fakes.Running, Kept]) -> None:
    running, kept = traced
    kept.exporter.clear()
    ask(running, "/v1/chat/completions", {"messages": [{"role": "user", "content": "a secret"}], "max_tokens": 4},
        {"traceparent": f"00-{TRACE}-{SPAN}-01"})
    span = last(kept, "chat tiny")
    assert f"{span.context.trace_id:032x}" == TRACE and f"{span.parent.span_id:016x}" == SPAN
    assert span.attributes["server.port"] == running.port and span.attributes["gen_ai.response.id"].startswith("chatcmpl-")
    assert "gen_ai.request.stream" not in span.attributes
    assert "secret" not in "".join(each.to_json() for each in kept.exporter.get_finished_spans())


@pytest.mark.parametrize(("body", "status"), [({"messages": []}, 400), (None, 400),
                                              ({"messages": [{"role": "user", "content": "x"}], "model": "other"}, 404)])
def test_a_request_that_never_reached_the_engine_is_seen(
        traced: tuple[fakes.Running, Kept], body: dict[str, Any] | None, status: int) -> None:
    running, kept = traced
    kept.exporter.clear()
    sent = {"json": body} if body is not None else {"content": b"{"}
    found = running.client.post("/v1/chat/completions", headers={"traceparent": f"00-{TRACE}-{SPAN}-01"}, **sent)
    span = last(kept, "chat")
    assert found.status_code == status and span.attributes["error.type"] == str(status) and span.status.status_code.name == "ERROR"
    assert f"{span.context.trace_id:032x}" == TRACE and f"{span.parent.span_id:016x}" == SPAN and len(kept.spans()) == 1
    assert span.attributes["gen_ai.operation.name"] == "chat" and span.attributes["gen_ai.provider.name"] == "penstock"


def test_an_answer_is_found_in_traces_by_its_id(traced: tuple[fakes.Running, Kept]) -> None:
    running, kept = traced
    kept.exporter.clear()
    found = running.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 4}).json()
    assert last(kept, "text_completion tiny").attributes["gen_ai.response.id"] == found["id"]
    kept.exporter.clear()
    found = running.client.post("/v1/completions", json={"prompt": ["x", "y"], "max_tokens": 4}).json()
    fakes.wait_for(lambda: len(named(kept, "text_completion tiny")) == 2)
    ids = {span.attributes["gen_ai.response.id"] for span in named(kept, "text_completion tiny")}
    assert ids == {f"{found['id']}-0", f"{found['id']}-1"}


def named(kept: Kept, name: str) -> list[Any]:
    return [span for span in kept.exporter.get_finished_spans() if span.name == name]


def test_streams_tell_when_their_first_token_came(traced: tuple[fakes.Running, Kept]) -> None:
    running, kept = traced
    kept.exporter.clear()
    ask(running, "/v1/completions", {"prompt": "x", "max_tokens": 4, "stream": True})
    attributes = last(kept, "text_completion tiny").attributes
    assert attributes["gen_ai.request.stream"] is True and attributes["gen_ai.response.time_to_first_chunk"] >= 0


def test_a_response_is_a_chat(traced: tuple[fakes.Running, Kept]) -> None:
    running, kept = traced
    kept.exporter.clear()
    found = running.client.post("/v1/responses", json={"input": "x", "max_output_tokens": 4}).json()
    attributes = last(kept, "chat tiny").attributes
    assert attributes["gen_ai.operation.name"] == "chat" and attributes["gen_ai.response.id"] == found["id"]


def test_embeddings_are_named(traced: tuple[fakes.Running, Kept]) -> None:
    running, kept = traced
    kept.exporter.clear()
    ask(running, "/v1/embeddings", {"input": "x"})
    attributes = last(kept, "embeddings tiny").attributes
    assert attributes["gen_ai.operation.name"] == "embeddings" and "gen_ai.request.temperature" not in attributes
    assert not {"gen_ai.response.finish_reasons", "gen_ai.usage.output_tokens"} & set(attributes)
    assert attributes["gen_ai.usage.input_tokens"] > 0 and not last(kept, "embeddings tiny").events


def test_an_embedding_waits_for_its_prefill_and_decodes_nothing(kept: Kept) -> None:
    usage = Usage(3, queued_s=0.001)
    run(kept, Scripted(Delta(0, embedding=(1.0,), finish_reason="stop", done=True, usage=usage)),
        Request("r", (1, 2, 3), SamplingParams(), wants_embedding=True))
    assert set(kept.spans()) == {"embeddings tiny", "queue", "prefill"}
    assert kept.spans()["embeddings tiny"].attributes["gen_ai.embeddings.dimension.count"] == 1


def test_two_requests_at_once_are_two_traces(traced: tuple[fakes.Running, Kept]) -> None:
    running, kept = traced
    kept.exporter.clear()
    body = {"prompt": ["a", "b"], "max_tokens": 3}
    ask(running, "/v1/completions", body)
    fakes.wait_for(lambda: sum(span.name.startswith("text") for span in kept.exporter.get_finished_spans()) == 2)
    spans = [span for span in kept.exporter.get_finished_spans() if span.name.startswith("text")]
    assert len({span.context.span_id for span in spans}) == 2 and all(span.parent is None for span in spans)


def test_spans_reach_a_collector() -> None:
    bodies: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        made = open_tracing(f"http://127.0.0.1:{collector.server_port}", {}, "tiny")
        assert made is not None
        trail = made.begin(ASKED)
        for delta in ANSWER:
            made.note(trail, delta)
        made.end(trail, "cmpl-1", None)
        made.close()
        collector.shutdown()
    ((path, body),) = bodies
    assert path == "/v1/traces" and b"gen_ai.usage.output_tokens" in body and b"penstock" in body


def test_a_collector_that_does_not_answer_keeps_nobody(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    monkeypatch.setattr(tracing, "CLOSE_S", 0.01)
    monkeypatch.setattr(kept.tracing._provider, "shutdown", lambda: begun.set() or go_on.wait(20))
    kept.tracing.close()
    assert begun.wait(20) and not go_on.is_set()
    go_on.set()


def test_traces_are_asked_for_by_option_or_variable() -> None:
    assert open_tracing(None, {}, "tiny") is None
    assert open_tracing(None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, "tiny") is None
    assert open_tracing(None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, "tiny") is None
    made = open_tracing(None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, "tiny")
    assert made is not None
    made.close()
    assert url_of("http://a:4318/") == url_of("http://a:4318/v1/traces") == "http://a:4318/v1/traces"
    for wrong in ("localhost:4318", "http://[::1", "http://x:port", "https://"):
        with pytest.raises(UsageError, match="is not a URL"):
            open_tracing(wrong, {}, "tiny")
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        with pytest.raises(UsageError, match=f"{name} = localhost:4318 is not a URL"):
            open_tracing(None, {name: "localhost:4318"}, "tiny")
    with pytest.raises(UsageError, match="by otlp, not by OTEL_TRACES_EXPORTER = console"):
        open_tracing(None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "console"}, "tiny")
    with pytest.raises(UsageError, match="--otlp-endpoint http://x asks for traces, which OTEL_SDK_DISABLED =  True forbids"):
        open_tracing("http://x", {"OTEL_SDK_DISABLED": " True"}, "tiny")
    with pytest.raises(UsageError, match="as http/protobuf, not as grpc"):
        open_tracing("http://x", {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "tiny")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(UsageError, match="pip install 'opentelemetry-sdk>=.*' 'opentelemetry-exporter-otlp-proto-http>="):
        open_tracing("http://x", {}, "tiny")


def test_nothing_is_imported_unless_asked() -> None:
    script = "import sys\nfrom penstock.serve import run\nfrom penstock.serve.api.tracing import open_tracing\n" \
             "open_tracing(None, {}, 'x')\nprint(*[name for name in sys.modules if name.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split() == [], done.stdout + done.stderr


def test_a_span_is_of_the_time_it_says(kept: Kept) -> None:
    began = time.time_ns()
    run(kept, Scripted(*ANSWER), ASKED)
    spans = kept.spans()
    span = spans["text_completion tiny"]
    assert span.kind.name == "SERVER" and spans["queue"].kind.name == "INTERNAL"
    assert began <= span.start_time < span.end_time <= time.time_ns()
