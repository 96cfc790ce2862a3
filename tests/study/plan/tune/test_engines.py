"""The real bench: the twin with made-up step times, and engines of the smallest bundled model."""
import asyncio
import json
import math
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest

from penstock.compute.fitted import Fitted
from penstock.compute.runner.runner import Runner
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError, UsageError
from penstock.decide.scheduler.scheduler import Scheduler
from penstock.serve.engine import build
from penstock.serve.engine.machine import Machine
from penstock.serve.text.tokenizer import Tokenizer
from penstock.study.measure.arrivals.renewal import Even, Poisson, RateOptions
from penstock.study.measure.client.drive import Extent
from penstock.study.measure.datasets.jsonl import Jsonl, JsonlOptions
from penstock.study.measure.datasets.synthetic import Synthetic, SyntheticOptions
from penstock.study.measure.metrics import Warmup, figures
from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import Slo
from penstock.study.plan import calibrate, checked
from penstock.study.plan.calibrate import Calibration
from penstock.study.plan.simulate.call import Call
from penstock.study.plan.tune.drifts import Drifts
from penstock.study.plan.tune.engines import Engines, Goal, Watchers, check_lengths
from penstock.study.plan.tune.score import score
from penstock.study.plan.tune.setting import Setting
from penstock.study.plan.tune.traffic import Traffic

GIVEN = EngineConfig(model="rill", max_model_len=128, kv_tokens=1024, max_num_seqs=4, threads=1)
# A step takes 10 ms, whatever is in it: 4 seats serve requests of a prompt step and 4 more tokens 80 times a second.
STEPS = Calibration(Fitted((1, 64), (0.01, 0.01), 0.0, 0.0, 0.0, 0.0), 0.0, 100, 0.0, 0.0)


def engines(slo, rate=20.0, seconds=0.5, num=None, output=5, spread=0.0, **goal):
    traffic = Traffic(lambda writer, seed: Synthetic(SyntheticOptions(8, output, output_spread=spread), writer, seed),
                      Even(RateOptions(rate)), Extent(num, seconds), Warmup(), "0")
    return Engines(GIVEN, traffic, Goal(Slo(slo), **goal), Watchers([].append))


@pytest.fixture
def known_steps(monkeypatch):
    monkeypatch.setattr(checked, "kept", lambda config: STEPS)
    monkeypatch.setattr(checked, "timed_now", lambda config, progress: [])


def test_the_twin_has_no_more_memory_than_the_engine_that_drafts(known_steps, monkeypatch):
    monkeypatch.setattr(build, "look", lambda: Machine(100 << 20, 1))
    config = replace(GIVEN, model="brook", kv_tokens=None, max_num_seqs=256, max_model_len=1024, propose="draft_model:model=rill")
    fits = build.build(config).resolved.engine.kv_tokens
    bench = replace(engines({"ttft": 1.0}), given=config)
    assert bench.resolved(Setting()).kv_tokens == fits < replace(bench, given=replace(config, propose=None)).resolved(Setting()).kv_tokens
    asked = []
    monkeypatch.setattr(calibrate, "read", lambda file: asked.append(file))
    monkeypatch.setattr(calibrate, "kept_in", lambda resolved, fingerprint: resolved.kv_tokens)
    assert calibrate.kept(config) is None and asked == [fits]


def test_the_twin_says_what_is_kept(known_steps):
    found = engines({"tpot": 0.0101, "ttft": 0.021}).predicted(Setting())
    assert (found.kept, found.measured, found.answered) == (10, 10, 10) and found.tpot_p50_s == pytest.approx(0.01)
    assert engines({"tpot": 0.0099}).predicted(Setting()).kept == 0


def test_the_twin_finds_the_highest_rate(known_steps):
    bench = engines({"ttft": 0.05}, seconds=5.0, searches=True, start_rate=10.0)
    found, half = bench.predicted(Setting()), bench.predicted(Setting((("max_num_seqs", 2),)))
    assert found.rate == pytest.approx(80, rel=0.12) and half.rate == pytest.approx(40, rel=0.12)
    assert found.beats(half) and found.counted == found.rate
    assert engines({"ttft": 0.005}, searches=True).predicted(Setting()).rate == 0.0


def test_a_burst_that_is_served_in_time_is_no_rate(known_steps):
    """50 requests are answered within a second, however fast they come: 4 seats serve 80 a second, and 2 seats 40."""
    bench = engines({"e2e": 1.0}, seconds=None, num=50, searches=True, start_rate=10.0)
    assert bench.predicted(Setting()).rate == pytest.approx(80, rel=0.15)
    bench = engines({"e2e": 5.0}, seconds=None, num=50, searches=True, start_rate=1000.0)
    found, half = bench.predicted(Setting()), bench.predicted(Setting((("max_num_seqs", 2),)))
    assert found.rate == pytest.approx(80, rel=0.15) and half.rate == pytest.approx(40, rel=0.15) and found.beats(half)


def test_few_requests_are_no_burst(known_steps):
    """At a rate of 1 a second some four come in four seconds, now and then two that are far apart."""
    def rate(seed):
        traffic = Traffic(lambda writer, seed: Synthetic(SyntheticOptions(8, 5), writer, seed), Poisson(RateOptions(1.0)),
                          Extent(seconds=4.0), Warmup(), seed)
        return Engines(GIVEN, traffic, Goal(Slo({"ttft": 0.05}), searches=True), Watchers([].append)).predicted(Setting()).rate

    assert min(rate(f"{seed}") for seed in range(8)) > 40


def test_answers_that_take_long_are_no_burst(known_steps):
    """A run of a second, whose answers take half a second: some are still on their way when the last request comes."""
    bench = engines({"ttft": 0.1}, seconds=1.0, searches=True, start_rate=1.0, output=50)
    assert bench.predicted(Setting()).rate == pytest.approx(8, rel=0.3)


def test_an_engine_whose_long_answers_outlast_the_run_keeps_up(known_steps):
    """Requests of 0.4 seconds, whose answers take from 0.02 to 1.2 seconds, each in a seat of its own."""
    bench = engines({"ttft": 0.1}, seconds=0.4, searches=True, start_rate=8.0, output=60, spread=0.98)
    assert 8 < bench.predicted(Setting((("max_num_seqs", 16),))).rate < 36  # 16 seats, some 0.6 seconds each


def test_steps_are_learned_before_the_search_for_a_rate_begins(known_steps, monkeypatch):
    """Which runs an engine, and a loop cannot run within another."""
    def timed_now(config, progress):
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        timed.append(config)
        return []

    timed = []
    monkeypatch.setattr(checked, "timed_now", timed_now)
    assert engines({"ttft": 0.05}, searches=True, start_rate=10.0).predicted(Setting()).rate > 0 and len(timed) == 1


def test_rates_at_which_nothing_comes_are_passed_over(known_steps):
    def coming(start_rate, arrivals=Poisson, seconds=1.0, searches=True):
        traffic = Traffic(lambda writer, seed: Synthetic(SyntheticOptions(8, 5), writer, seed), arrivals(RateOptions(1.0)),
                          Extent(seconds=seconds), Warmup(), "0")
        return Engines(GIVEN, traffic, Goal(Slo({"ttft": 0.05}), searches=searches, start_rate=start_rate), Watchers([].append))

    assert not coming(0.01).traffic.calls(0.01, None)
    assert coming(0.01).predicted(Setting()).rate == pytest.approx(coming(10.0).predicted(Setting()).rate, rel=0.3)
    with pytest.raises(PenstockError, match="no request came at 1e-12 requests/s, nor in 23 doublings of that, up to 8.39e-06"):
        coming(1e-12).predicted(Setting())
    with pytest.raises(UsageError, match="no request comes in a run"):
        coming(1.0, seconds=0.0, searches=False).predicted(Setting())


def test_whatever_orders_requests_can_be_predicted(known_steps):
    bench = engines({"ttft": 0.05}, rate=160.0, seconds=2.0)
    late, in_time = bench.predicted(Setting()), bench.predicted(Setting((("order", "deadline"),)))
    assert in_time.kept > 3 * late.kept > 0 and in_time.answered < in_time.measured == late.answered


def test_what_drafts_give_is_left_to_the_runs(known_steps):
    bench = engines({"ttft": 0.05})
    assert bench.predicted(Setting((("propose", "ngram"),))) == bench.predicted(Setting())


@pytest.mark.parametrize("name", ["ttft", "e2e"])
def test_requests_carry_the_slo(known_steps, monkeypatch, name):
    carried, add = [], Scheduler.add
    monkeypatch.setattr(Scheduler, "add", lambda self, seq: (carried.append(getattr(seq, f"{name}_slo_s")), add(self, seq)))
    bench = engines({name: 5.0, "itl": 0.1}, seconds=0.1)
    bench.predicted(Setting())
    bench.measured(Setting(), "race", None)
    assert carried == [5.0] * 4, "two requests, to the twin and to the engine"


def test_an_engine_is_run_under_the_traffic():
    found = engines({"e2e": 60.0}, seconds=0.2).measured(Setting((("max_num_seqs", 2),)), "race/0", None)
    assert found.kept == found.measured == found.answered == 4
    assert found.tokens_per_busy_s > 0 and found.ttft_p50_s > 0
    fast = engines({"e2e": 60.0}, seconds=0.2).measured(Setting(), "race/0", 50.0)
    assert fast.measured == 10


def test_an_engine_that_ended_was_not_measured(monkeypatch):
    monkeypatch.setattr(Runner, "execute", lambda self, plan: 1 / 0)
    with pytest.raises(PenstockError, match="ended while it was measured: .*ZeroDivisionError"):
        engines({"ttft": 5.0}).measured(Setting(), "race", None)


def test_a_rate_that_cannot_be_kept_is_none():
    found = engines({"ttft": 1e-6}, seconds=0.1, searches=True).highest(Setting(), 64.0)
    assert found.rate == 0.0 and found.kept == 0 and found.measured > 0 and found.tried == 0.5, "the first below 64 / 64"


def test_a_rate_that_is_in_doubt_is_told_so():
    said = []
    bench = engines({"ttft": 60.0}, seconds=None, num=2, searches=True)
    Engines(GIVEN, bench.traffic, bench.goal, Watchers(said.append)).highest(Setting((("max_num_seqs", 2),)), 64.0)
    assert said[:2] == ["the highest rate at which 90% of the requests keep the SLO, of max_num_seqs=2",
                        "  64 requests/s: 100.0% keep the SLO"]
    assert "the rate is in doubt: at " in said[-1] and "2 measured requests are too few" in said[-1]


def test_what_was_read_is_tokenized_once(known_steps, tmp_path, monkeypatch):
    """However many settings the twin plays it for."""
    path, counted, encode = tmp_path / "asked.jsonl", [], Tokenizer.encode
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text, **how: (counted.append(text), encode(self, text, **how))[1])
    path.write_text("".join(json.dumps({**asked, "max_tokens": 2}) + "\n" for asked in (
        {"prompt": "a fox"}, {"messages": [{"role": "user", "content": "a fox"}]}, {"prompt": [5, 6]})))
    traffic = Traffic(lambda writer, seed: Jsonl(JsonlOptions(str(path)), writer, seed), Even(RateOptions(20.0)), Extent(9), Warmup(), "0")
    bench = Engines(GIVEN, traffic, Goal(Slo({"ttft": 1.0})), Watchers([].append))
    for setting in (Setting(), Setting((("max_num_seqs", 2),))):
        bench.predicted(setting)
    assert len(counted) == 2 == len(set(counted))


def test_lengths_that_do_not_fit_are_told_with_such_as_would():
    with pytest.raises(UsageError, match=r"up to 1,037 tokens, and the context holds 128: .*max_input=96,max_output=32 or .*scale=0.12$"):
        check_lengths([Call(0.0, (range(1032),), 5)], 128)


def test_a_file_that_is_used_up_in_a_search_is_told(tmp_path):
    def searched(count):
        path, said = tmp_path / "asked.jsonl", []
        path.write_text("".join(json.dumps({"prompt": [number, 5, 6], "max_tokens": 2}) + "\n" for number in range(1, count)))
        traffic = Traffic(lambda writer, seed: Jsonl(JsonlOptions(str(path)), writer, seed), Even(RateOptions(1.0)),
                          Extent(1), Warmup(), "0")
        Engines(GIVEN, traffic, Goal(Slo({"ttft": 1e-6}), searches=True), Watchers(said.append)).highest(Setting(), 64.0)
        return [line for line in said if "was used up" in line]

    assert not searched(90) and len(searched(5)) == 1


def test_what_ends_early_was_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.study.measure.client.drive.DEPTH", 1)
    path = tmp_path / "asked.jsonl"
    path.write_text('{"prompt": [5, 6], "max_tokens": 2}\n' * 3 + "{")
    traffic = Traffic(lambda writer, seed: Jsonl(JsonlOptions(str(path)), writer, seed), Even(RateOptions(20.0)), Extent(9), Warmup(), "0")
    with pytest.raises(PenstockError, match="cut short by the dataset after .*asked.jsonl:4 is not JSON"):
        Engines(GIVEN, traffic, Goal(Slo({"ttft": 1.0})), Watchers([].append)).measured(Setting(), "race", None)


def test_settings_that_cannot_be_are_refused_before_anything_is_loaded():
    with pytest.raises(UsageError, match="unknown weight format"):
        engines({"ttft": 1.0}).predicted(Setting((("quant", "int3"),)))


@pytest.mark.parametrize(("answers", "why"), [((), "no request was due"), ((4,), "came all at once.*: give --slo a ttft or e2e")])
def test_what_nothing_was_measured_of_has_no_score(answers, why):
    """Among them beams under an objective of TPOT alone."""
    samples = [Sample(0, 0.0, num_output=count, first_s=1.0, last_s=1.0, end_s=1.0) for count in answers]
    with pytest.raises(PenstockError, match=why):
        score(figures(samples, Warmup(), Slo({"tpot": 1.0})), 1.0)


def test_drift_is_that_of_the_format():
    drifts = Drifts(GIVEN)
    same, fine, coarse = drifts.of("none"), drifts.of("int8"), drifts.of("int4")
    assert (same.kl, same.flips) == (0.0, 0.0)
    assert 0 < fine.kl < coarse.kl and fine.flips <= coarse.flips and fine.places == 128


def test_a_format_in_which_the_model_computes_nothing_has_no_drift(monkeypatch):
    """Nothing is no more than a budget, so it would be kept."""
    drifts, found = Drifts(GIVEN), Drifts._log_probs
    monkeypatch.setattr(Drifts, "_log_probs", lambda self, config: found(self, config) * math.nan)
    with pytest.raises(PenstockError, match="its drift has no number: in int4"):
        drifts.of("int4")


def test_an_interruption_that_is_passed_on_twice_waits_until_the_engine_has_stopped(monkeypatch):
    """A thread that is left in native code ends the process with an abort."""
    stopped = []

    def stop():
        signal.raise_signal(signal.SIGINT)
        stopped.append(True)

    async def run(*_):
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(10)

    monkeypatch.setattr("penstock.study.plan.tune.engines.start", lambda *_: SimpleNamespace(loop=SimpleNamespace(stop=stop)))
    monkeypatch.setattr(Engines, "_run", run)
    with pytest.raises(KeyboardInterrupt):
        engines({"ttft": 1.0}).measured(Setting(), "a", None)
    assert stopped
