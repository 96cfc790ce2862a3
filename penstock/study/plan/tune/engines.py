"""Where settings are tried: the twin, with what was learned of each weight format, and engines in this process, one at a time."""
import asyncio
import gc
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from penstock.compute.models.load.checkpoint import open_checkpoint
from penstock.compute.models.load.hub import fetch_weights
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError, UsageError
from penstock.serve.engine.build import Found, choose, find, settle
from penstock.serve.text.chat import ChatTemplate
from penstock.serve.text.tokenizer import Tokenizer
from penstock.study.digits import rounded_down
from penstock.study.measure import goodput
from penstock.study.measure.bench import Load, Terms, View, measure
from penstock.study.measure.client.inside import Inner, Inside, check_names, sampling, start
from penstock.study.measure.client.openai import Ask, Wish
from penstock.study.measure.client.precise import new_loop
from penstock.study.measure.client.target import Stopwatch
from penstock.study.measure.interrupt import undisturbed
from penstock.study.measure.load import Dataset, Writer
from penstock.study.measure.metrics import Figures, figures
from penstock.study.measure.onward import Onward
from penstock.study.measure.result import Overhead, Probe, Result
from penstock.study.measure.samples import Sample
from penstock.study.measure.series import series
from penstock.study.measure.slo import Slo
from penstock.study.measure.statistics import Distribution
from penstock.study.measure.writers import IdWriter
from penstock.study.plan import sweep
from penstock.study.plan.calibrate import Calibration
from penstock.study.plan.checked import Checked
from penstock.study.plan.phases import Say
from penstock.study.plan.simulate.call import Call
from penstock.study.plan.simulate.twin import simulate
from penstock.study.plan.tune.budget import Drift
from penstock.study.plan.tune.drifts import Drifts
from penstock.study.plan.tune.score import Score, score
from penstock.study.plan.tune.setting import Setting
from penstock.study.plan.tune.traffic import CutFrom, Traffic

BUSY, WRITTEN = "penstock_step_seconds_total", "penstock_generation_tokens_total"
BURST = 2.0  # times what is served, above which requests that keep the SLO only do so because no more follow them
NOBODY = Overhead(Distribution(), Distribution(), 0.0)  # a twin has no client


@dataclass(frozen=True, slots=True)
class Goal:
    """`searches`: the traffic has no rate, so the highest is asked for at which this `share` of the requests keeps the SLO."""

    slo: Slo
    share: float = 0.9
    searches: bool = False
    start_rate: float = 1.0


@dataclass(frozen=True, slots=True)
class Watchers:
    say: Say
    view: View | None = None
    progress: Any = None  # called with (bytes loaded, bytes in all)


@dataclass(frozen=True, slots=True)
class Text:
    """What makes tokens of a model's text."""

    tokenizer: Tokenizer
    template: ChatTemplate

    @classmethod
    def of(cls, config: EngineConfig) -> "Text":
        """Raises ModelError where there is no tokenizer."""
        tokenizer = Tokenizer.load(fetch_weights(find(config).source))
        return cls(tokenizer, ChatTemplate.of(tokenizer))


@dataclass(slots=True)
class Engines:
    """A Bench (see conduct.py)."""

    given: EngineConfig
    traffic: Traffic
    goal: Goal
    watchers: Watchers
    _found: Found | None = None
    _drifts: Drifts | None = None
    _text: "Text | None" = None
    _tokens_of: dict[str, Sequence[int]] = field(default_factory=dict)  # by what was read: the twin plays it for each setting
    _learned: dict[str, Calibration] = field(default_factory=dict)
    _checked: Checked = field(init=False)

    def __post_init__(self) -> None:
        self._checked = Checked(self.watchers.say, self.watchers.say)

    def check(self) -> None:
        """Raises PenstockError for an engine that cannot be had, UsageError for fields that no request can have."""
        self.resolved(Setting())
        assert self._found is not None
        check_names(self.traffic.more)
        sampling(self.traffic.more, 1, self._found.spec.vocab_size)

    def weights(self) -> str:
        """Which they are: another checkpoint of the same name has others."""
        self._found = self._found or find(self.given)
        return open_checkpoint(fetch_weights(self._found.source, self.watchers.progress)).fingerprint().hex()[:12]

    def resolved(self, setting: Setting) -> EngineConfig:
        """As an engine would run. Raises PenstockError for what does not go together, or does not fit."""
        config = setting.apply(self.given)
        found = self._found = self._found or find(config)
        return settle(found, choose(config, found)).engine

    def drift(self, quant: str) -> Drift:
        self._drifts = self._drifts or Drifts(self.given)
        return self._drifts.of(quant)

    def predicted(self, setting: Setting, rate: float | None = None) -> Score:
        config = self.resolved(setting)
        if rate is not None or not self.goal.searches:
            return self._played(config, rate)
        self._calibration(config.quant)  # which runs an engine on a loop of its own, so not within the search's

        served: dict[float, float] = {}  # share of each rate

        async def attempt(rate: float, number: int) -> Result:
            found, _, served[rate] = self._figures(config, self._calls(rate), rate)
            kept = found if served[rate] * BURST >= 1 else replace(found, goodput=None)
            return Result(kept, series(()), None, None, None, NOBODY, (), ())

        found = asyncio.run(goodput.find(attempt, self.goal.start_rate, self.goal.share))
        best = best_of(found)
        return with_rate(self._played(config, best.rate), found, best.rate * served[best.rate])

    def measured(self, setting: Setting, traffic: str, rate: float | None) -> Score:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return scored(runner.run(self._with(setting, lambda inner, watch: self._run(inner, watch, traffic, rate))))

    def highest(self, setting: Setting, start_rate: float) -> Score:
        async def searched(inner: Inner, watch: Stopwatch) -> Score:
            asked = self.traffic
            onward = Onward(asked.dataset(self._writer(inner), asked.seed)) if not asked.is_made_up() else None

            async def attempt(rate: float, number: int) -> Result:
                return await self._run(inner, watch, f"highest/{number}", rate, onward)

            def told(probe: Probe) -> None:
                self.watchers.say(f"  {probe.rate:.3g} requests/s: {probe.kept:.1%} keep the SLO")

            self.watchers.say(f"the highest rate at which {self.goal.share:.0%} of the requests keep the SLO, of {setting}")
            found = await goodput.find(attempt, start_rate, self.goal.share, told)
            for line in (found.stopped, goodput.in_doubt(found, self.goal.share), *([] if onward is None else onward.repeated())):
                if line is not None:
                    self.watchers.say(f"  {line}")
            best = best_of(found)
            return with_rate(scored(best.result), found, best.rate)

        with asyncio.Runner(loop_factory=new_loop) as runner:
            found: Score = runner.run(self._with(setting, searched))
            return found

    def _played(self, config: EngineConfig, rate: float | None) -> Score:
        asked = self._calls(rate)
        if not asked:
            raise UsageError(f"no request comes in a run of {self.traffic.extent.seconds or 0:g} s: give a longer --duration, or a "
                             "higher --rate")
        found, tokens_per_busy_s, _ = self._figures(config, asked, rate)
        return score(found, tokens_per_busy_s)

    def _figures(self, config: EngineConfig, asked: Sequence[Call], rate: float | None) -> tuple[Figures, float, float]:
        """Of the twin, output tokens a busy second, and the share that it kept up with of the rate at which requests came."""
        check_lengths(asked, config.max_model_len or 0)
        plain = replace(config, propose=None)  # what drafts give is left to the runs
        played = simulate(plain, self._calibration(config.quant).pace, asked, self.traffic.arrivals_at(rate).users)
        found = figures(played.samples, self.traffic.warmup, self.goal.slo)
        return found, played.census.decode_tokens / max(played.census.busy_s, 1e-9), served_share(played.samples, config.max_num_seqs)

    def _calls(self, rate: float | None) -> list[Call]:
        slo = self.goal.slo.objectives
        return [replace(call, ttft_slo_s=slo.ttft_s, tpot_slo_s=slo.tpot_s, e2e_slo_s=slo.e2e_s)
                for call in self.traffic.calls(rate, self._tokens)]

    def _tokens(self, ask: Ask) -> Sequence[int]:
        if isinstance(ask.prompt, tuple):
            return ask.prompt
        self._text = self._text or Text.of(self.given)
        text = ask.prompt if ask.prompt is not None else self._text.template.render(ask.messages)
        key = f"{ask.chat} {text}"
        if key not in self._tokens_of:
            self._tokens_of[key] = self._text.tokenizer.encode(text, add_special_tokens=not ask.chat)
        return self._tokens_of[key]

    def _calibration(self, quant: str) -> Calibration:
        """Of the model in this format: as it was kept, else learned in a sweep."""
        if quant not in self._learned:
            config = replace(self.given, quant=quant, propose=None)
            found = self._checked.kept(config, self.watchers.progress)
            if found is None:
                self.watchers.say(f"learning what steps take with --quant {quant}, which is kept")
                found = sweep.run(config, self.watchers.say, self.watchers.progress)
            self._learned[quant] = found
        return self._learned[quant]

    async def _with(self, setting: Setting, work: Any) -> Any:
        """An engine for as long as the work takes. It is started on this thread: an interruption waits until it can be stopped again."""
        inner = start(setting.apply(self.given), self.watchers.progress)
        try:
            return await work(inner, Stopwatch(asyncio.get_running_loop().time))
        finally:
            with undisturbed():
                inner.loop.stop()
            del inner
            gc.collect()

    def _writer(self, inner: Inner) -> Writer:
        text = self.traffic.text
        return CutFrom(text) if text else IdWriter(inner.built.spec.vocab_size, inner.built.tokenizer)

    async def _run(self, inner: Inner, watch: Stopwatch, traffic: str, rate: float | None, goes_on: Dataset | None = None) -> Result:
        """`goes_on`: a dataset of which a part was asked for already."""
        asked, writer = self.traffic, self._writer(inner)

        def dataset(seed: str) -> Dataset:
            return asked.dataset(writer, seed) if goes_on is None else goes_on

        load = Load(asked.arrivals_at(rate), dataset, asked.extent, asked.warmup, f"{asked.seed}/{traffic}")
        target = Inside(inner, watch, Wish(more=asked.more, objectives=self.goal.slo.objectives))
        result = await measure(target, load, Terms(self.goal.slo), watch, self.watchers.view)
        health = inner.loop.health()
        if not health.ok:
            raise PenstockError(f"the engine ended while it was measured: {health.reason}")
        if result.cut is not None:
            raise PenstockError(str(result.cut))
        return result


def best_of(found: goodput.Found) -> Probe:
    """Where none keeps the SLO, of the lowest rate."""
    return found.best or min(found.probes, key=lambda probe: probe.rate)


def with_rate(score: Score, found: goodput.Found, rate: float) -> Score:
    """Of the best probe at this rate."""
    return replace(score, rate=0.0, tried=rate) if found.best is None else replace(score, rate=rate)


def served_share(samples: Sequence[Sample], seats: int) -> float:
    """Of the rate at which requests came, the share that the engine kept up with: at which answers began, and no more than the seats give
    (Little's law), since a run may be over before they are all taken. When the last ends says less: long answers outlast any rate."""
    times = [(sample.due_s, sample.first_s, sample.end_s) for sample in samples if sample.first_s is not None and sample.end_s is not None]
    if len(times) < 2:
        return 1.0
    due, first = [each[0] for each in times], [each[1] for each in times]
    due_s, first_s = max(due) - min(due), max(first) - min(first)
    taken_s = (len(times) - 1) * fmean([end_s - first_s for _, first_s, end_s in times]) / seats
    return min(1.0, *(due_s / each for each in (first_s, taken_s) if each > 0))


def check_lengths(asked: Sequence[Call], most: int) -> None:
    """Raises UsageError for requests that the engine would refuse."""
    longest = max((call.num_prompt + call.num_output for call in asked), default=0)
    if longest > most:
        raise UsageError(
            f"the traffic has requests of up to {longest:,} tokens, and the context holds {most:,}: leave out the long ones or shorten "
            f"all, which a trace does as in --dataset azure:path=FILE,max_input={most * 3 // 4},max_output={most // 4} or "
            f"azure:path=FILE,scale={rounded_down(most / longest, 2):g}")


def scored(result: Result) -> Score:
    """Of a run on an engine."""
    grown = {} if result.server is None else result.server.grown
    return score(result.figures, grown.get(WRITTEN, 0.0) / max(grown.get(BUSY, 0.0), 1e-9), result.came_per_s)
