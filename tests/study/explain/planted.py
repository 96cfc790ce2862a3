"""An engine whose machine is made up: the real engine, scheduler and metrics on a virtual clock, with steps that take what a roofline says.
So it is known what binds it, and a counter cannot tell more than a real engine's."""
import random
from bisect import insort
from dataclasses import asdict, dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from penstock.compute.fitted import windows_of
from penstock.compute.price import Price
from penstock.core.clock import VirtualClock
from penstock.core.config import EngineConfig
from penstock.core.errors import RequestError
from penstock.core.hardware import Hardware
from penstock.core.slo import NO_OBJECTIVES, Objectives
from penstock.core.types import PlannedSeq, SamplingParams, SeqResult, StepPlan, StepResult
from penstock.core.work import StepWork
from penstock.serve.api.call import Progress
from penstock.serve.api.metrics import Metrics
from penstock.serve.engine import build
from penstock.serve.engine.desk import Desk
from penstock.serve.engine.engine import Engine, Facts
from penstock.serve.engine.ledger import Ledger
from penstock.serve.engine.requests import Request, Usage
from penstock.serve.engine.state import limits_told
from penstock.serve.text.tokenizer import Tokenizer
from penstock.study.explain.case import Forms
from penstock.study.explain.roof import Roof
from penstock.study.plan.model import Model
from penstock.study.plan.simulate.predicted import work_of

BANDWIDTH = 20e9  # bytes a second
REACHED = 0.8  # of the limits
GOES_ON, STOP = 0, 1  # what is said


class Machine:
    """A runner: a step takes what the roofline says of its ops, over the share of the limits that is reached, and the host's part."""

    def __init__(self, price: Price, roof: Roof, clock: VirtualClock, host_s: float) -> None:
        self._price, self._roof, self._clock, self._host_s = price, roof, clock, host_s
        self.times = 1.0  # as long as usual
        self.lengths: dict[tuple[int, ...], int] = {}  # by prompt: of answers that end by themselves
        self._lengths: dict[int, int] = {}  # by seq_id

    def seconds(self, work: StepWork) -> float:
        """As a scheduler is told that serves for objectives."""
        return self._own_s(work) + self._host_s

    def _own_s(self, work: StepWork) -> float:
        return self.times * self._roof.seconds(work) / REACHED

    def execute(self, plan: StepPlan) -> StepResult:
        work = work_of(plan.seqs)
        seconds = self._own_s(work)
        self._clock.advance(seconds + self._host_s)
        cost = self._price.count(work)
        for planned in plan.seqs:
            if planned.new is not None and planned.new.prompt in self.lengths:
                self._lengths[planned.seq_id] = self.lengths[planned.new.prompt]
        found = tuple([SeqResult(planned.seq_id, (self._said(planned),) if planned.samples else ()) for planned in plan.seqs])
        return StepResult(
            plan.step_id, found, seconds, cost.weight_bytes, cost.kv_bytes, cost.activation_bytes, cost.operations, work,
            more_weight_bytes=cost.more_weight_bytes)

    def _said(self, planned: PlannedSeq) -> int:
        return STOP if planned.num_output + 1 == self._lengths.get(planned.seq_id) else GOES_ON


@dataclass(frozen=True)
class Load:
    """`users` who take turns, each `think_s` after he was answered or refused (memoryless), or `rate` a second; lengths vary by a third
    around their means."""

    users: int | None = None
    rate: float | None = None
    think_s: float = 0.0
    prompt: int = 64
    output: int = 64
    spread: float = 0.3
    shared: int = 0  # tokens with which all prompts begin
    seconds: float = 30.0
    objectives: Objectives = NO_OBJECTIVES  # that each request carries
    is_open: bool = False  # no request gives max_tokens
    spare: int = 0  # tokens that each might have more by its max_tokens


class Planted:
    """`model`: a folder with a config.json and a tokenizer."""

    def __init__(self, model: Path, host_s: float = 1e-4, ridge: float = 50.0, measured: bool = True, **options: Any) -> None:
        """`ridge`: operations for each byte; `measured`: whether the engine knows its machine's limits."""
        hardware = Hardware("made up", {1: BANDWIDTH}, {"fp32": ridge * BANDWIDTH})
        given = {"model": str(model), "backend": "reference", "dtype": "float32", "kv_dtype": "float32", "max_model_len": 4096,
                 "kv_tokens": 65536, "threads": 1}
        self.config = EngineConfig(**given | options)
        self.found = build.find(self.config)
        form = Forms(Model(str(model), self.found, "float32"), self.found, hardware).of(self.config)
        assert form.roof is not None
        self.weight_bytes = form.weight_bytes
        self.clock = VirtualClock()
        self.metrics = Metrics()
        self.machine = Machine(form.stored.price, form.roof, self.clock, host_s)
        scheduler = build.make_scheduler(
            self.config, (self.config.kv_tokens or 0) // self.config.block_size, self.clock, self.machine)
        facts = Facts(str(model), 4096, self.found.spec.vocab_size, 0)
        self.engine = Engine(facts, Desk(scheduler, Tokenizer.load(model), object), self.machine, self.clock, self.metrics)
        self.hardware = hardware if measured else None
        self.ledger = Ledger(
            self.hardware, "fp32", self.clock, windows_of(self.found.spec), self.engine.repeats, lambda: self.engine.under_way_s)
        self.metrics.watch(self.engine.gauges, None, self.ledger)
        self.tokens = 0
        self.kept: list[bool] = []  # of each answered request that had objectives
        self._open: dict[str, tuple[float, Progress]] = {}  # by name: when it came, and how far it is

    def run(self, load: Load, look_s: float = inf) -> str:
        """Until so many seconds are over; what runs then is left. What the counters said after `look_s`."""
        began_s, looked = self.clock.now(), ""
        rng, came, at_s = random.Random(1), 0, began_s
        coming: list[float] = [began_s] * load.users if load.users is not None else []
        while self.clock.now() < began_s + load.seconds:
            if not looked and self.clock.now() >= began_s + look_s:
                looked = self.scrape()
            if load.rate is not None:
                while at_s < self.clock.now() + 1.0:
                    at_s += rng.expovariate(load.rate)
                    coming.append(at_s)
            num_done = 0
            while coming and coming[0] <= self.clock.now():
                due = coming.pop(0)
                name, came = f"r{began_s:g}/{came}", came + 1
                low, high = 1 - load.spread, 1 + load.spread
                prompt, output = (max(1, round(mean * rng.uniform(low, high))) for mean in (load.prompt, load.output))
                tokens = (*range(load.shared), *rng.choices(range(self.found.spec.vocab_size), k=max(1, prompt - load.shared)))
                params = SamplingParams(max_tokens=output, ignore_eos=True)
                if load.is_open or load.spare:
                    most = None if load.is_open else output + load.spare
                    self.machine.lengths[tokens], params = output, SamplingParams(max_tokens=most, stop_token_ids=(STOP,))
                num_done += not self._ask(Request(
                    name, tokens, params, arrival_s=due, ttft_slo_s=load.objectives.ttft_s,
                    tpot_slo_s=load.objectives.tpot_s, e2e_slo_s=load.objectives.e2e_s), due)
            deltas = self.engine.step() if self.engine.has_work() else None
            for _ in self.engine.take_refused():
                self.metrics.on_request("refused", Usage(), None)
                num_done += 1
            num_done += sum(self._take(name, delta) for name, delta in deltas or ())
            for _ in range(num_done if load.users is not None else 0):
                insort(coming, self.clock.now() + (rng.expovariate(1 / load.think_s) if load.think_s else 0.0))
            if deltas is None:
                wake = self.engine.wake_s() if self.engine.has_work() else float("inf")
                self.clock.advance(max(1e-6, min(wake, coming[0] if coming else wake) - self.clock.now()))
        return looked

    def finish(self) -> None:
        """Answers all who are there; nobody comes."""
        while self.engine.has_work():
            if self.engine.step() is None:
                self.clock.advance(max(1e-6, self.engine.wake_s() - self.clock.now()))

    def _ask(self, request: Request, due_s: float) -> bool:
        """Whether it is let in."""
        try:
            self.engine.add(request)
        except RequestError:
            self.metrics.on_request("refused", Usage(), None)
            return False
        self._open[request.request_id] = due_s, Progress(request)
        return True

    def _take(self, name: str, delta: Any) -> bool:
        """What the API tells the metrics; whether the request is done."""
        now = self.clock.now()
        began, progress = self._open[name]
        if delta.token_ids:
            self.tokens += len(delta.token_ids)
            if progress.first_s is None:
                progress.first_s = now
                self.metrics.on_first_token(now - began)
            elif delta.index in progress.last_s:
                self.metrics.on_tokens(now - progress.last_s[delta.index], len(delta.token_ids))
            progress.last_s[delta.index] = now
        if delta.done:
            self.metrics.on_request(delta.finish_reason or "stop", delta.usage, now - began)
            self.metrics.on_length(progress.request, delta.usage.completion_tokens)
            if progress.request.has_objectives:
                self.kept.append(progress.kept(began, now, delta.usage.completion_tokens))
                self.metrics.on_objectives(self.kept[-1])
        return bool(delta.done)

    def scrape(self) -> str:
        return self.metrics.render().decode()

    def state(self) -> dict[str, Any]:
        """As serve/engine/state.py tells it."""
        return {
            "format": 1, "fingerprint": "reference float32 float32 none", "config": asdict(self.config),
            "model": {"weight_bytes": self.weight_bytes, "kv_bytes_per_token": self.found.spec.kv_bytes_per_token(4),
                      "windows": [list(each) for each in windows_of(self.found.spec)]},
            "limits": None if self.hardware is None else limits_told(self.hardware), "compute_type": "fp32",
            "steps": self.ledger.steps(), "free_memory_bytes": 1e12}


@cache
def served(model: Path, load: Load, **options: Any) -> Planted:
    """One that has run, and is left as it is: tests share it."""
    planted = Planted(model, **options)
    planted.run(load)
    return planted
