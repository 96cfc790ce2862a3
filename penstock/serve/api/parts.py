"""What the server is made of: `Parts` is given by whoever builds it, `Desk` is what every handler works with."""
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import penstock
from penstock.compute.decoding.grammar.compiler import Compiler
from penstock.core.clock import Clock, MonotonicClock
from penstock.core.config import ServerConfig
from penstock.serve.api.dashboard.feed import Feed
from penstock.serve.api.drain import Drain
from penstock.serve.api.limits import Intake, Limits
from penstock.serve.api.metrics import Metrics
from penstock.serve.api.requestlog import RequestLog
from penstock.serve.api.responses.store import Store
from penstock.serve.api.slo import Unserved
from penstock.serve.api.work import LongWork
from penstock.serve.engine.requests import EngineClient
from penstock.serve.text.chat import ChatTemplate
from penstock.serve.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Parts:
    """`tool_parser` and `reasoning_parser` are classes from the tables of serve/text, or None.

    `sampling_defaults`: fields of SamplingParams that a request may leave out, as the checkpoint's generation_config.json has them.
    `fingerprint`: whatever changes the tokens that come out (backend, dtype, quantization), as text.
    `feed`: the dashboard's; None where the engine cannot be watched. `state`: what the engine says of itself, may take its time.
    `vocab_size`: the model's; None when it is the tokenizer's. `width`: of the model's embeddings. `grammars` None: structured output is
    refused. `serves_objectives`: the scheduler does something for requests that have some.
    """

    engine: EngineClient
    tokenizer: Tokenizer
    chat_template: ChatTemplate  # without sources where the model has none
    config: ServerConfig
    metrics: Metrics
    tool_parser: type[Any] | None = None
    reasoning_parser: type[Any] | None = None
    sampling_defaults: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    vocab_size: int | None = None
    width: int | None = None
    grammars: Compiler | None = None
    limits: Limits = field(default_factory=Limits)
    feed: Feed | None = None
    state: Callable[[], dict[str, Any]] | None = None
    serves_objectives: bool = True


@dataclass(frozen=True, slots=True)
class Desk:
    parts: Parts
    drain: Drain
    intake: Intake
    work: LongWork
    compiling: LongWork  # of grammars: slow ones wait for each other and for nothing else
    unserved: Unserved
    log: RequestLog | None
    store: Store  # of responses
    clock: Clock
    model: str  # the name it is served under
    fingerprint: str  # OpenAI's system_fingerprint
    vocab_size: int
    began: int  # Unix time


def open_desk(parts: Parts) -> Desk:
    config, clock = parts.config, MonotonicClock()
    model = config.served_model_name or parts.engine.model_name
    stated = f"{penstock.__version__} {parts.engine.model_name} {parts.engine.max_model_len} {parts.fingerprint}"
    return Desk(
        parts=parts,
        drain=Drain(config.drain_s),
        intake=Intake(config.max_body_bytes, parts.limits),
        work=LongWork(),
        compiling=LongWork(),
        unserved=Unserved(parts.serves_objectives),
        log=None if config.log_requests is None else RequestLog(config),
        store=Store(parts.limits, clock),
        clock=clock,
        model=model,
        fingerprint="fp_" + hashlib.sha256(stated.encode()).hexdigest()[:12],
        vocab_size=parts.tokenizer.vocab_size if parts.vocab_size is None else min(parts.vocab_size, parts.tokenizer.vocab_size),
        began=int(time.time()),
    )
