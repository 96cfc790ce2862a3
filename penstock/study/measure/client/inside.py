"""An engine in this process as a target: no HTTP, and every token's time; the engine runs on a thread of its own.

A token comes when that thread hands it over. This one sees it when it gets the interpreter, up to some milliseconds later: steps that are
shorter than that it would see several at once. The engine's clock is the one beneath the stopwatch (time.monotonic, in both).
"""
import asyncio
import dataclasses
import itertools
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.compute.decoding.params import check_params
from penstock.core.config import EngineConfig
from penstock.core.errors import OverloadedError, PenstockError, RequestError, UsageError
from penstock.core.events import StepRecord
from penstock.core.types import SamplingParams
from penstock.serve.api.call import Progress
from penstock.serve.api.metrics import Metrics
from penstock.serve.api.slo import check_bounded
from penstock.serve.engine.build import Built, build, times_steps
from penstock.serve.engine.engine import Listener
from penstock.serve.engine.ledger import Ledger
from penstock.serve.engine.loop import Loop
from penstock.serve.engine.patience import patience_s
from penstock.serve.engine.recommended import with_recommended
from penstock.serve.engine.requests import Delta, Request, Usage
from penstock.serve.engine.state import make_ledger, state_of
from penstock.serve.run import utilization
from penstock.study.measure.client.drive import Ahead, Driver, Extent
from penstock.study.measure.client.openai import CHOOSING, Answer, Ask, Wish
from penstock.study.measure.client.target import Stopwatch
from penstock.study.measure.load import Session
from penstock.study.measure.samples import Sample

NO_LIMIT = 1 << 30  # requests that may wait: who drives the load sees them wait


@dataclass(frozen=True, slots=True)
class Inner:
    """An engine on its thread, its metrics, and its time."""

    built: Built
    loop: Loop
    metrics: Metrics
    ledger: Ledger


class Both:
    """Two listeners."""

    def __init__(self, one: Listener, other: Listener) -> None:
        self._one, self._other = one, other

    def on_step(self, record: StepRecord) -> None:
        self._one.on_step(record)
        self._other.on_step(record)

    def on_queue(self, seconds: float) -> None:
        self._one.on_queue(seconds)
        self._other.on_queue(seconds)


def start(config: EngineConfig, progress: Any = None, say: Any = None, listener: Listener | None = None) -> Inner:
    """`listener` is told of steps beside the metrics. Raises PenstockError when the model cannot be loaded."""
    metrics = Metrics()
    built = build(config, metrics if listener is None else Both(metrics, listener), progress, say)
    loop = Loop(built.engine, NO_LIMIT, patience_s(built))
    ledger = make_ledger(built)
    metrics.watch(loop.gauges, utilization(built), ledger)
    loop.start()
    return Inner(built, loop, metrics, ledger)


class Inside:
    def __init__(self, inner: Inner, watch: Stopwatch, wish: Wish) -> None:
        """The wish's further fields are those of SamplingParams. Raises UsageError for another one."""
        check_names(wish.more)
        self.wish, self._inner, self._watch = wish, inner, watch
        self._more = with_recommended(inner.built.sampling_defaults, wish.more)
        self._numbers = itertools.count()

    @property
    def max_model_len(self) -> int | None:
        return self._inner.built.engine.facts.max_model_len

    def prepare(self, ask: Ask) -> Request:
        built, slo = self._inner.built, self.wish.objectives
        given = {"ignore_eos": self.wish.ignore_eos and ask.num_output is not None, **self._more}
        params = sampling(given, ask.num_output, built.spec.vocab_size)
        check_bounded(slo, params.max_tokens)
        request = Request(f"bench-{next(self._numbers)}", self._ids(ask), params,
                          ttft_slo_s=slo.ttft_s, tpot_slo_s=slo.tpot_s, e2e_slo_s=slo.e2e_s)
        built.engine.check(request)
        return request

    async def send(self, prepared: Any, sample: Sample, keep_text: bool = False) -> str:
        answer, progress, times = Answer(sample, keep_text), Progress(prepared), deque[float]()
        sample.num_prompt, sample.sent_s = len(prepared.token_ids), self._watch()
        try:
            async for delta in self._inner.loop.submit(prepared, times):
                self._take(delta, self._watch.told(times.popleft()), answer, sample, progress)
        except PenstockError as error:
            sample.fail(str(error), self._watch())
            sample.status = error.status if isinstance(error, RequestError) else None
            sample.retry_after_s = error.retry_after_s if isinstance(error, OverloadedError) else 0.0
            self._inner.metrics.on_request("abort" if sample.status is None or sample.status >= 500 else "refused", Usage(), None)
            return ""
        sample.end_s = self._watch()
        if not sample.num_output:
            sample.error = "the answer has no tokens"
        return answer.text

    def _take(self, delta: Delta, now_s: float, answer: Answer, sample: Sample, progress: Progress) -> None:
        """A step's tokens; the metrics are told what the API would tell them."""
        metrics, sent_s = self._inner.metrics, sample.sent_s or 0.0
        if delta.token_ids:
            if sample.last_s is None:
                metrics.on_first_token(now_s - sent_s)
                progress.first_s = now_s
            else:
                metrics.on_tokens(now_s - sample.last_s, len(delta.token_ids))
            progress.last_s[delta.index] = now_s
            answer.piece(delta.text, now_s)
        sample.finish_reason = delta.finish_reason or sample.finish_reason
        if delta.usage is not None:
            sample.num_output, sample.num_cached = delta.usage.completion_tokens, delta.usage.cached_tokens
            metrics.on_request(sample.finish_reason or "stop", delta.usage, now_s - sent_s)
            metrics.on_length(progress.request, delta.usage.completion_tokens)
            if progress.request.has_objectives:
                metrics.on_objectives(progress.kept(sent_s, now_s, delta.usage.completion_tokens))

    async def metrics(self) -> str | None:
        return await asyncio.to_thread(lambda: self._inner.metrics.render().decode())

    async def state(self) -> Mapping[str, Any] | None:
        return await asyncio.to_thread(state_of, self._inner.built, self._inner.ledger)

    def notes(self) -> list[str]:
        served = not self.wish.objectives or times_steps(self._inner.built.resolved.engine)
        return [] if served else ["requests carried the SLO, but nothing was done to keep it: this engine runs without --order deadline"]

    async def lost(self) -> str | None:
        health = self._inner.loop.health()
        return None if health.ok else f"the engine ended: {health.reason}"

    async def close(self) -> None:
        await asyncio.to_thread(self._inner.loop.stop)

    def _ids(self, ask: Ask) -> tuple[int, ...]:
        built = self._inner.built
        if isinstance(ask.prompt, tuple):
            return ask.prompt
        if ask.prompt is not None:
            return tuple(built.tokenizer.encode(ask.prompt))
        return tuple(built.tokenizer.encode(built.chat_template.render(ask.messages), add_special_tokens=False))


def check_names(more: Mapping[str, Any]) -> None:
    """Raises UsageError for what is no field of SamplingParams, and for one that only a server obeys."""
    known = {each.name for each in dataclasses.fields(SamplingParams)}
    for name in more:
        if name not in known:
            raise UsageError(f"in process a request has no field {name!r}; it has: {', '.join(sorted(known))}")
    for name, harmless in CHOOSING.items():
        if more.get(name) not in (None, harmless):
            raise UsageError(f"in process nobody chooses among answers: leave {name} out, or bench a server, by its URL")


def sampling(more: Mapping[str, Any], num_output: int | None, vocab_size: int) -> SamplingParams:
    """`more`: fields of SamplingParams, which come before `num_output`. Raises RequestError for a value that cannot be."""
    return check_params(SamplingParams(**{"max_tokens": num_output, **more}), vocab_size)


async def play(inner: Inner, schedule: Iterator[tuple[float, Session]], users: int | None, extent: Extent) -> list[Sample]:
    """Asks for a schedule's sessions greedily, in answers of exactly the tokens asked for. `users` None: each at its time. Raises
    PenstockError for a session that cannot be made, or the first request that cannot be prepared."""
    watch = Stopwatch(asyncio.get_running_loop().time)
    target = Inside(inner, watch, Wish(more={"temperature": 0.0}))
    driver = Driver(target, watch)
    ahead = Ahead(schedule, target, extent)
    await driver.run(ahead, users, extent)
    if ahead.broken is not None:
        raise ahead.broken
    return driver.samples
