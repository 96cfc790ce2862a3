"""A tiny tokenizer, an engine that invents tokens by arithmetic, and a real server around them in a thread."""
import asyncio
import hashlib
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from penstock.compute.decoding import grammar
from penstock.compute.decoding.grammar.compiler import Compiler
from penstock.compute.decoding.grammar.vocabulary import Vocabulary
from penstock.core.config import ServerConfig
from penstock.core.errors import OverloadedError, RequestError
from penstock.core.types import TokenLogprobs
from penstock.serve.api.limits import Limits
from penstock.serve.api.metrics import Metrics
from penstock.serve.api.parts import Parts
from penstock.serve.api.server import bind, create_app, make_server
from penstock.serve.engine.build import make_selections
from penstock.serve.engine.requests import Delta, Gauges, Health, Request, Usage
from penstock.serve.engine.selecting import Selecting
from penstock.serve.text.answer import ContentDelta, Event, ReasoningDelta
from penstock.serve.text.chat import ChatTemplate
from penstock.serve.text.facts import TokenizerFacts
from penstock.serve.text.markup import Openings
from penstock.serve.text.stops import StopChecker
from penstock.serve.text.tokenizer import Tokenizer

SENTENCES = ["the old king went to the river and the town", "once upon a time there was a little girl in the wood", "tell me about the fox"]
TEMPLATE = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}{% if documents %}<docs>{{ documents | tojson }}</docs>{% endif %}"
    "{% if reasoning_effort %}<effort>{{ reasoning_effort }}</effort>{% endif %}{% if enable_thinking is false %}<quick>{% endif %}"
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{% if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %}</{{ message.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def tiny_tokenizer(template: str = TEMPLATE) -> Tokenizer:
    """Byte-level BPE of some 300 tokens; writes <s> before a text."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(SENTENCES, trainer)
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return Tokenizer(backend, TokenizerFacts({"bos_token": "<s>", "eos_token": "</s>"}, (1,), {"default": template}))


class BarParser:
    """What stands before a bar is reasoning."""

    markup = ()

    def __init__(self, prompt: str, continued: str, calls: Openings) -> None:
        self.answer_at: int | None = None
        self._num_pushed = 0

    def push(self, text: str) -> list[Event]:
        if self.answer_at is not None:
            return [ContentDelta(text)] if text else []
        thought, bar, rest = text.partition("|")
        self._num_pushed += len(text)
        self.answer_at = self._num_pushed - len(rest) if bar else None
        return [*([ReasoningDelta(thought)] if thought else []), *([ContentDelta(rest)] if rest else [])]

    def finish(self, ended: bool = True) -> list[Event]:
        return []


class FakeEngine:
    """Choice c's token i depends on the prompt, the seed, c and i alone. One token a step, `step_s` apart; `hold` stops the steps."""

    model_name = "tiny"

    def __init__(self, tokenizer: Tokenizer, max_model_len: int = 256, step_s: float = 0.0, max_queue: int = 1000) -> None:
        self.tokenizer = tokenizer
        self.max_model_len = max_model_len
        self.step_s = step_s
        self.max_queue = max_queue
        self.hold = threading.Event()  # set: no request gets on
        self.state = Health(True)
        self.requests: list[Request] = []
        self.active: set[str] = set()
        self.aborted: list[str] = []
        self.script: str | None = None  # said instead of invented tokens
        self.stride = 1  # tokens in a delta
        self.fail_after: int | None = None  # tokens, then the engine dies
        self.give_up_after: int | None = None  # tokens, then a choice ends with "abort"
        self.late: RequestError | None = None  # what requests with objectives are told instead of a first token
        self.cached: set[tuple[int, ...]] = set()

    def submit(self, request: Request) -> AsyncIterator[Delta]:
        if len(self.active) >= self.max_queue:
            raise OverloadedError(f"{self.max_queue} requests are waiting; try again", retry_after_s=2.5)
        self.requests.append(request)
        self.active.add(request.request_id)
        return self._steps(request)

    def abort(self, request_id: str) -> None:
        if request_id in self.active:
            self.active.discard(request_id)
            self.aborted.append(request_id)

    def health(self) -> Health:
        return self.state

    def gauges(self) -> Gauges:
        return Gauges(num_running=len(self.active), kv_blocks_used=len(self.active), kv_blocks_total=64)

    async def _steps(self, request: Request) -> AsyncIterator[Delta]:
        if self.late is not None and request.ttft_slo_s is not None:
            self.active.discard(request.request_id)
            raise self.late
        params = request.params
        usage_cached = len(request.token_ids) // 2 if request.token_ids in self.cached else 0
        self.cached.add(request.token_ids)
        if request.wants_embedding:
            await self._step()
            self.active.discard(request.request_id)
            yield Delta(0, embedding=embedding_of(request.token_ids), finish_reason="stop", done=True, usage=Usage(len(request.token_ids)))
            return
        choices = [Speaker(self, request, index) for index in range(params.n)]
        first, count = True, 0
        while any(choice.reason is None for choice in choices):
            await self._step()
            if request.request_id not in self.active:
                return
            if self.fail_after is not None and count >= self.fail_after:
                raise RuntimeError("secret of the engine")
            count += 1
            for choice in [c for c in choices if c.reason is None]:
                delta = choice.stride(self.stride)
                rows = self._prompt_rows(request) if first and params.prompt_logprobs is not None else None
                first = False
                done = all(c.reason is not None for c in choices)
                if done:
                    self.active.discard(request.request_id)
                usage = Usage(len(request.token_ids), sum(c.count for c in choices), usage_cached) if done else None
                yield Delta(choice.index, delta.text, delta.token_ids, delta.logprobs, rows, delta.finish_reason, delta.stop_reason,
                            done=done, usage=usage)

    async def _step(self) -> None:
        await asyncio.sleep(self.step_s)
        while self.hold.is_set():
            await asyncio.sleep(0.002)

    def _prompt_rows(self, request: Request) -> tuple[TokenLogprobs | None, ...]:
        return (None, *(row_of(token, request.params.prompt_logprobs or 0) for token in request.token_ids[1:]))


class Speaker:
    """One choice."""

    def __init__(self, engine: FakeEngine, request: Request, index: int) -> None:
        self.engine, self.request, self.index = engine, request, index
        params = request.params
        self.count = 0
        self.reason: str | None = None
        self.text = engine.tokenizer.detokenizer(params.skip_special_tokens, request.token_ids)
        self.stops = StopChecker(tuple(params.stop), params.include_stop_str_in_output)
        room = engine.max_model_len - len(request.token_ids)
        self.limit = room if params.max_tokens is None else min(room, params.max_tokens)
        self.script = None if engine.script is None else [*engine.tokenizer.encode(engine.script, False), 1]

    def step(self) -> Delta:
        token = self._token()
        self.count += 1
        params = self.request.params
        ended = token == 1 and not params.ignore_eos
        text, stopped = self.stops.push("" if ended else self.text.push([token]))
        if stopped is not None or ended:
            self.reason = "stop"
        elif self.count == self.engine.give_up_after:
            self.reason = "abort"
        elif self.count >= self.limit:
            self.reason = "length"
        if self.reason is not None and stopped is None:
            more, stopped = self.stops.push(self.text.finish())
            text += more + self.stops.finish()
        rows = () if params.logprobs is None else (row_of(token, params.logprobs),)
        return Delta(self.index, text, (token,), rows, finish_reason=self.reason, stop_reason=stopped)

    def stride(self, most: int) -> Delta:
        """Up to so many steps as one delta."""
        deltas = [self.step()]
        while len(deltas) < most and self.reason is None:
            deltas.append(self.step())
        return replace(
            deltas[-1], text="".join([each.text for each in deltas]), token_ids=tuple([id for each in deltas for id in each.token_ids]),
            logprobs=tuple([row for each in deltas for row in each.logprobs]))

    def _token(self) -> int:
        if self.script is not None:
            return self.script[self.count] if self.count < len(self.script) else 1
        params = self.request.params
        seed = (params.seed, self.index) if params.temperature > 0 else 0
        digest = hashlib.sha256(repr((self.request.token_ids[-3:], seed, self.count)).encode()).digest()
        return 2 + int.from_bytes(digest[:4], "little") % (self.engine.tokenizer.vocab_size - 2)


def row_of(token: int, num_top: int) -> TokenLogprobs:
    top = tuple((token if rank == 0 else (token + rank) % 300, -0.25 - rank) for rank in range(num_top))
    return TokenLogprobs(token, -0.25, 1, top)


def embedding_of(ids: tuple[int, ...]) -> tuple[float, ...]:
    digest = hashlib.sha256(repr(ids).encode()).digest()
    return tuple((byte - 127.5) / 128 for byte in digest[:8])


@dataclass
class Running:
    """A server on a free port. `desk` is its inside."""

    engine: FakeEngine
    metrics: Metrics
    url: str
    host: str
    port: int
    server: Any
    thread: threading.Thread
    desk: Any
    client: httpx.Client

    def stop(self) -> None:
        self.client.close()
        self.server.drain.begin()
        self.server.drain.begin()
        self.thread.join(20)
        assert not self.thread.is_alive()


def serve(engine: FakeEngine | None = None, limits: Limits | None = None, template: str = TEMPLATE, parts: dict[str, Any] | None = None,
          **options: Any) -> Running:
    """Starts a server; `options` are ServerConfig's."""
    tokenizer = engine.tokenizer if engine is not None else tiny_tokenizer(template)
    engine = engine or FakeEngine(tokenizer)
    config = ServerConfig(port=0, log_level="warning", **options)
    metrics = Metrics(engine.gauges)
    app = create_app(Parts(
        engine=Selecting(engine, make_selections(tokenizer, config.scorer_url)), tokenizer=tokenizer,
        chat_template=ChatTemplate.of(tokenizer), config=config, metrics=metrics, limits=limits or Limits(),
        **{"grammars": compiler(tokenizer, engine.max_model_len), **(parts or {})}))
    listener = bind(config)
    host, port = listener.getsockname()[:2]
    server = make_server(app, config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    url = f"http://{host}:{port}"
    client = httpx.Client(base_url=url, timeout=30, verify=False)  # one for all: making a TLS context takes long
    return Running(engine, metrics, url, host, port, server, thread, app.state.desk, client)


def compiler(tokenizer: Tokenizer, max_len: int) -> Compiler:
    return Compiler({name: grammar.TABLE.load(name)() for name in grammar.TABLE}, Vocabulary(tokenizer, tokenizer.vocab_size), max_len)


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Waits until the condition holds; fails when it never does."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.005)


def send(server: Running, path: str, body: dict[str, Any], connection: socket.socket | None = None, more: str = "") -> socket.socket:
    """A client that has sent its request and reads nothing yet. `more`: headers, each with its line's end."""
    connection = connection or socket.create_connection((server.host, server.port), timeout=20)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{more}\r\n"
    connection.sendall(head.encode() + data)
    return connection


def silent(server: Any, host: str, port: int) -> socket.socket:
    """A client for whom the system keeps very little of what it does not read."""
    server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect((host, port))
    return connection


@contextmanager
def logged_by_uvicorn(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What the HTTP server logs is among the messages: it hands nothing on."""
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(caplog.handler)
    try:
        yield
    finally:
        logger.removeHandler(caplog.handler)
