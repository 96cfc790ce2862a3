"""A short sweep of load over an engine in this process, from which the twin learns what its steps take: `Calibration`, kept in a file.

Closed loops of 1, 2, 4 ... users with prompts and answers of several lengths, so that steps of all sizes occur with a client that does its
share of work on the same processors; then arrivals at random, because a step that follows a pause or a larger one finds colder caches, and
because a request that comes to a sleeping engine has to wake it.
"""
import asyncio
import dataclasses
import hashlib
import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import inf
from pathlib import Path
from typing import Any

from penstock.compute.fitted import Around, Fitted, Timed, fit, from_json, windows_of
from penstock.core.amount import amount
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError
from penstock.core.events import StepRecord
from penstock.core.hardware import cache_folder, home_folder
from penstock.core.work import StepWork
from penstock.serve.engine.build import choose, find, fingerprint, settle
from penstock.serve.engine.machine import processor
from penstock.study.measure.arrivals.closed import Closed, ClosedOptions
from penstock.study.measure.arrivals.renewal import Poisson, RateOptions
from penstock.study.measure.client.drive import Extent
from penstock.study.measure.client.inside import Inner, play
from penstock.study.measure.client.precise import new_loop, no_collection
from penstock.study.measure.datasets.synthetic import Synthetic, SyntheticOptions
from penstock.study.measure.keep import put
from penstock.study.measure.load import Arrivals
from penstock.study.measure.metrics import completed_per_s
from penstock.study.measure.samples import Sample
from penstock.study.measure.writers import IdWriter
from penstock.study.plan.made import Made, made_of
from penstock.study.plan.phases import PHASE_S, Course, First, Kept, Measured, Phase, Say, phases_of
from penstock.study.plan.simulate.call import Stretches, calls, scheduled
from penstock.study.plan.simulate.twin import Pace, simulate

FORMAT = 1  # of the file
LEAST_STEPS = 60  # of a phase, which is repeated until it has so many
MOST_REPEATS = 4
LEAST_WOKEN = 8  # requests at random that found nobody else: fewer tell no median


class Recorder:
    """A Listener that keeps records while it is asked to."""

    def __init__(self) -> None:
        self.records: list[StepRecord] = []
        self.on = False

    def on_step(self, record: StepRecord) -> None:
        if self.on:
            self.records.append(record)

    def on_queue(self, seconds: float) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Calibration:
    """`error`: mean relative error of single steps; `drift`: of their sum. `made`: with what; None: an older file does not say."""

    timer: Fitted
    delay_s: float
    num_steps: int
    error: float
    drift: float
    made: Made | None = None

    @property
    def pace(self) -> Pace:
        return Pace(self.timer, self.delay_s, extra=self.timer.extra)

    def as_json(self) -> dict[str, Any]:
        told = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return told | {"format": FORMAT, "timer": self.timer.as_json(), "made": None if self.made is None else self.made.as_json()}


def calibration_from_json(told: Mapping[str, Any]) -> Calibration:
    """Raises KeyError, TypeError or ValueError for what `as_json` did not make."""
    if told["format"] != FORMAT:
        raise ValueError(f"this is format {told['format']}, not {FORMAT}")
    delay_s, num_steps, error = (amount(told[name]) for name in ("delay_s", "num_steps", "error"))
    amount(abs(told["drift"]))
    return Calibration(from_json(told["timer"]), delay_s, int(num_steps), error, float(told["drift"]), made_of(told.get("made")))


def kept_in(config: EngineConfig, fingerprint: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The file of what was learned of a model and backend with so many threads on this machine."""
    stated = json.dumps([FORMAT, processor().key, config.model, config.revision, fingerprint, config.threads, config.propose])
    return cache_folder(environ, home_folder()) / "calibrations" / f"{hashlib.sha256(stated.encode()).hexdigest()[:16]}.json"


def kept(config: EngineConfig) -> Calibration | None:
    """What was learned of the engine that this config makes here; None where nothing was. Raises PenstockError for one that it cannot."""
    found = find(config)
    chosen = choose(config, found)
    resolved = settle(found, chosen).engine
    return read(kept_in(resolved, fingerprint(resolved, chosen.backend)))


def read(file: Path) -> Calibration | None:
    """None where there is none that is whole."""
    try:
        return calibration_from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def keep(file: Path, found: Calibration) -> None:
    """Whole or not at all. Raises PenstockError where it cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        put(file, json.dumps(found.as_json()))
    except OSError as error:
        raise PenstockError(f"cannot write {file}: {error.strerror}") from None


def calibrate(inner: Inner, recorder: Recorder, say: Say, phase_s: float = PHASE_S, store: Kept | None = None) -> Calibration:
    """Puts load on the engine, whose listener `recorder` must be. Phases that `store` has are taken from there, and others kept there.
    Raises PenstockError when it answers nothing."""
    config, windows = inner.built.resolved.engine, windows_of(inner.built.spec)
    course = Course(phases_of(config, phase_s), say)
    found: dict[Phase, Measured] = {} if store is None else {phase: kept for phase in course.phases if (kept := store.read(phase))}
    course.begin(found)
    most: dict[SyntheticOptions, float] = {}
    with asyncio.Runner(loop_factory=new_loop) as runner, no_collection():
        for phase in course.phases:
            if phase in found:
                continue
            if phase.load is not None and phase.lengths not in most:
                timed = [each for done in course.phases if done.users is not None for each in found[done].timed]
                if not timed:
                    raise PenstockError("the engine answered nothing, so there is nothing to learn from")
                timer = fit(timed, windows)
                most[phase.lengths] = capacity(config, Pace(timer, extra=timer.extra), phase.lengths)
            found[phase] = runner.run(measure(inner, recorder, phase, arrivals_of(phase, most.get(phase.lengths))))
            if store is not None:
                store.keep(phase, found[phase])
            course.done(phase, found[phase])
    ordered = [found[phase] for phase in course.phases]
    return learned([timed for each in ordered for timed in each.timed], windows, alone_of(found), config.max_num_batched_tokens)


def alone_of(found: Mapping[Phase, Measured]) -> list[First]:
    """Requests that had the engine to themselves: those that came at random if there were enough, else those of users, who ask an engine
    that has just answered them and is still awake."""
    woken = [first for phase, each in found.items() for first in each.alone if phase.load is not None]
    return woken if len(woken) >= LEAST_WOKEN else [first for each in found.values() for first in each.alone]


def arrivals_of(phase: Phase, most: float | None) -> Arrivals:
    """`most`: requests a second that the engine completes."""
    if phase.users is not None:
        return Closed(ClosedOptions(phase.users))
    return Poisson(RateOptions((phase.load or 0.0) * (most or 0.0)))


def capacity(config: EngineConfig, pace: Pace, lengths: SyntheticOptions) -> float:
    """Requests a second that the twin completes when all seats are taken."""
    stretches = Stretches()
    closed = Closed(ClosedOptions(config.max_num_seqs))
    dataset = Synthetic(lengths, stretches, "capacity")
    asked = list(calls(scheduled(closed, dataset.sessions(), "", 8 * config.max_num_seqs), stretches))
    return completed_per_s(simulate(config, pace, asked, config.max_num_seqs).samples)


def learned(timed: Sequence[Timed], windows: Sequence[tuple[int | None, int]], alone: Sequence[First], budget: int) -> Calibration:
    """`alone`: requests that had the engine to themselves, with chunks of up to `budget` tokens: what they waited beside their steps."""
    timer = fit(timed, windows)
    predicted = [timer.took(each) for each in timed]
    errors = [abs(told / each.seconds - 1) for told, each in zip(predicted, timed, strict=True)]
    measured = sum(each.seconds for each in timed)
    waits = [each.ttft_s - alone_s(timer, each.num_prompt - each.num_cached, each.num_prompt, budget) for each in alone]
    delay_s = max(0.0, statistics.median(waits)) / 2 if waits else 0.0
    return Calibration(timer, delay_s, len(timed), statistics.fmean(errors), sum(predicted) / measured - 1)


def alone_s(timer: Fitted, count: int, total: int, budget: int) -> float:
    """Steps of a prompt of `total` tokens, of which the last `count` are computed."""
    ends = [*range(total - count + budget, total, budget), total]
    return sum(timer.seconds(StepWork(((min(budget, count - budget * at), end),), int(end == total))) for at, end in enumerate(ends))


async def measure(inner: Inner, recorder: Recorder, phase: Phase, arrivals: Arrivals, repeats: int = MOST_REPEATS) -> Measured:
    """Requests arrive for so long, again until there are enough steps."""
    alone: list[First] = []
    recorder.records.clear()
    began_s = time.monotonic()
    for repeat in range(repeats):
        seed = f"calibrate/{phase}/{repeat}"
        dataset = Synthetic(phase.lengths, IdWriter(inner.built.spec.vocab_size), seed)
        schedule = arrivals.schedule(dataset.sessions(), seed)
        recorder.on = True
        alone += firsts(await play(inner, schedule, arrivals.users, Extent(seconds=phase.seconds)))
        recorder.on = False
        if len(recorder.records) >= LEAST_STEPS:
            break
    return Measured(list(busy(recorder.records)), alone, time.monotonic() - began_s)


def firsts(samples: Sequence[Sample]) -> Iterator[First]:
    """Of samples in their order those that nobody was before, nor joined before their first token."""
    taken_s = -inf
    for sample, following in zip_longest(samples, samples[1:]):
        if sample.ok and sample.first_s is not None and sample.num_prompt is not None and sample.due_s >= taken_s and (
                following is None or following.due_s >= sample.first_s):
            yield First(sample.first_s - sample.due_s, sample.num_prompt, sample.num_cached)
        taken_s = max(taken_s, sample.end_s or inf)


def busy(records: Sequence[StepRecord]) -> Iterator[Timed]:
    """From a step's begin to the next one's, where there was more to do: all that a step costs."""
    before = 0  # rows of the step before
    for record, following in zip(records, records[1:], strict=False):
        if record.work is None:
            continue
        rows = record.work.num_tokens
        if following.step_id == record.step_id + 1 and record.num_running + record.num_waiting:
            around = Around(max(0, before - rows), len(following.waited_s), max(0, record.num_seqs - record.num_running))
            yield Timed(record.work, following.began_s - record.began_s, around)
        before = rows
