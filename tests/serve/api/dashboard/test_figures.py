"""Rates, percentiles and the sentence: each is what the steps' own figures say, and nothing is said that was not measured."""
import pytest

from penstock.core.clock import VirtualClock
from penstock.core.events import StepRecord
from penstock.core.hardware import Hardware
from penstock.core.types import StepPlan
from penstock.serve.api.dashboard.feed import rates
from penstock.serve.api.dashboard.figures import Figures, History, Latencies, Part, Sample, Stretch, percentile
from penstock.serve.api.dashboard.limit import Binding, points, roof
from penstock.serve.engine.binding import ARRIVALS, PREFILL_COMPUTE, WEIGHT_BANDWIDTH, Limit
from penstock.serve.engine.requests import Gauges
from penstock.serve.engine.tally import UNMEASURED
from penstock.serve.engine.watch import Seen
from tests.decide.builders import make_seq
from tests.serve.api.dashboard.steps import Watched

ROOF = Hardware("box", {1: 1e9}, {"fp32": 1e11})


def step(number: int, seconds: float, least_read_s: float = 0.0, least_compute_s: float = 0.0, prefill: int = 0) -> StepRecord:
    """One of a row of steps without a pause, which ROOF would allow to take so long."""
    num_bytes = int(least_read_s * 1e9)
    return StepRecord(number, number * seconds, seconds, seconds * 0.95, 4, prefill, 0 if prefill else 4, weight_bytes=num_bytes,
                      operations=int(least_compute_s * 1e11), num_running=4)


def limit(records: list[StepRecord], hardware: Hardware | None = ROOF) -> Limit:
    clock = VirtualClock()
    binding = Binding(hardware, "fp32", clock)
    clock.advance(records[-1].began_s + records[-1].seconds if records else 1.0)
    return binding.limit(records)


def test_the_sentence_is_what_explain_says_of_the_last_seconds() -> None:
    found = limit([step(i, 0.5, least_read_s=0.35) for i in range(8)])
    assert found.name == WEIGHT_BANDWIDTH and found.reached == pytest.approx(0.35 / 0.475) and "weights" in found.sentence
    assert limit([step(i, 0.5, 0.1, 0.3, prefill=64) for i in range(8)]).name == PREFILL_COMPUTE
    assert limit([]).name == ARRIVALS and limit([]).sentence.startswith("Idle")


def test_what_bound_long_ago_binds_no_more() -> None:
    clock = VirtualClock()
    binding = Binding(ROOF, "fp32", clock)
    for i in range(40):
        clock.advance(0.5)
        binding.limit([step(i, 0.5, least_read_s=0.4)])
    for i in range(40, 60):
        clock.advance(0.5)
        found = binding.limit([step(i, 0.5, 0.1, 0.4, prefill=64)])
    assert found.name == PREFILL_COMPUTE and found.reached == pytest.approx(0.4 / 0.475)
    clock.advance(20.0)
    assert [binding.limit([]).name, binding.limit([]).name][-1] == ARRIVALS


def test_a_step_that_takes_longer_than_anybody_looks_back_is_no_idleness() -> None:
    clock, began = VirtualClock(), [None]
    binding = Binding(ROOF, "fp32", clock, lambda: began[0])
    for i in range(4):
        clock.advance(0.5)
        before = binding.limit([step(i, 0.5, least_read_s=0.4)])
    began[0] = 2.0
    clock.advance(60.0)
    assert binding.limit([], somebody=True) == before and before.name == WEIGHT_BANDWIDTH
    fresh = Binding(ROOF, "fp32", clock, lambda: 2.0)
    assert fresh.limit([]).name == UNMEASURED and "no step" in fresh.limit([]).sentence
    assert limit([], ROOF).name == ARRIVALS


def test_nothing_is_made_up_where_limits_were_not_measured() -> None:
    found = limit([step(i, 0.5, least_read_s=0.35) for i in range(8)], hardware=None)
    assert found.name == UNMEASURED and found.reached is None and "`penstock limits`" in found.sentence
    assert roof(None, "fp32") is None
    assert points(Stretch(2.0, decode=Part(2, 1.0, 1000, 10, 10))) == {"decode": {
        "intensity": 50.0, "ops_per_s": 1000.0, "bandwidth_share": None, "rate_share": None, "bytes_per_step": 10.0,
        "step_s": 0.5}}


def test_a_rate_that_is_not_known_is_not_compared_with() -> None:
    unknown = Hardware("box", {1: 1e9}, {})
    assert roof(unknown, "int8") == {"name": "box", "bandwidth": 1e9, "type": "int8", "ops": None}
    rig, figures = Watched(), Figures(unknown, "int8")
    rig.add(make_seq(1, range(8), 4))
    figures.add([], 0.0)
    rig.tick_into(figures)
    assert figures.recent().prefill.rate_share is None and figures.recent().prefill.bandwidth_share is not None


def test_rates_are_of_the_last_seconds() -> None:
    rig, figures = Watched(), Figures(ROOF, "fp32")
    rig.add(make_seq(1, range(8), 4))
    figures.add([], 0.0)
    rig.tick_into(figures)
    recent = figures.recent()
    assert (recent.num_prefilled, recent.num_output, recent.window_s) == (8, 4, 4.0)
    assert recent.prefill.num_steps == 1 and recent.decode.num_steps == 3 and recent.busy_s == 2.0
    assert recent.decode.bandwidth_share == pytest.approx(3 * 1500 / 1e9 / 1.5)
    for second in range(1, 5):
        figures.add([], 4.0 + second)
    assert figures.recent().num_output == 0 and figures.recent().window_s == pytest.approx(2.0)


def test_rates_of_long_steps_are_those_of_the_time_that_they_took() -> None:
    """512 tokens of prompts each 10 s are 51 a second, at every moment: also while the next such step is computed."""
    figures, told = Figures(None, "fp32"), set()
    for number in range(1, 160):
        now = number / 4
        began_s = now // 10 * 10
        figures.add([Seen(StepPlan(0, ()), (), (), step(number // 40 - 1, 10.0, prefill=512))] if now == began_s else [], now, began_s)
        told |= {(each["prefill"], each["busy"]) for each in [rates(figures.recent())] if now >= 10}
    assert told == {(51.2, 1.0)}
    figures.add([], 42.5)
    assert rates(figures.recent())["prefill"] == 0.0, "it is over, and nothing is computed"


def test_history_has_a_point_a_second_and_ends() -> None:
    history = History()
    for number in range(4 * 1000):
        history.add(number / 4, 10.0, 20.0, 1, 2, 0.5)
    points = history.before(999.5)
    assert len(points) == 300 and points[-1][1:] == [10.0, 20.0, 1, 2, 0.5]
    assert points[-1][0] - points[-2][0] == pytest.approx(1.0)
    assert not history.before(1299.5) and history.before(1099.5) == points[100:]


def test_percentiles_are_real_samples() -> None:
    assert [percentile([1.0, 2.0, 3.0, 4.0], percent) for percent in (1, 50, 75, 76, 99, 100)] == [1.0, 2.0, 3.0, 4.0, 4.0, 4.0]
    assert percentile([], 50) is None


def test_latencies_are_of_the_last_minute_and_compared_with_their_promise() -> None:
    latencies = Latencies()
    latencies.add(Sample(0.0, 9.0, None))
    for i in range(100):
        latencies.add(Sample(50.0, (i + 1) / 100, 0.5 if i % 2 else None))
    told = latencies.tell(61.0)
    assert told == {"n": 100, "p50": 0.5, "p90": 0.9, "p99": 0.99, "slo": 0.5, "asked": 50, "met": 25, "span_s": 60.0}
    assert latencies.tell(200.0) == {"n": 0, "p50": None, "p90": None, "p99": None, "slo": None, "asked": 0, "met": 0, "span_s": 60.0}


def test_latencies_say_how_far_back_they_go() -> None:
    """A request each hundredth of a second: no more are kept than those of 41 s."""
    latencies = Latencies()
    for number in range(6000):
        latencies.add(Sample(number / 100, 0.1, None))
    told = latencies.tell(60.0)
    assert told["n"] == 4096 and told["span_s"] == pytest.approx(40.96)


def test_a_requests_latencies_are_its_own() -> None:
    rig, figures = Watched(), Figures(None, "fp32")
    rig.add(make_seq(1, range(8), 5, arrival_s=0.0, ttft_slo_s=2.0, tpot_slo_s=0.5))
    rig.tick(3)
    rig.look()
    running = figures.requests(rig.lanes.entries(), rig.lanes.ended, rig.clock.now())
    assert running["ttft"]["n"] == 1 and running["ttft"]["slo"] == 2.0 and running["ttft"]["met"] == 1
    assert running["tpot"]["n"] == 1 and running["tpot"]["p50"] == pytest.approx(1.25) and running["tpot"]["met"] == 0
    rig.tick(2)
    rig.look()
    ended = figures.requests(rig.lanes.entries(), rig.lanes.ended, rig.clock.now())
    assert ended["ttft"]["n"] == 1 and ended["tpot"]["n"] == 1 and ended["tpot"]["p50"] == pytest.approx(4.5 / 4)
    assert figures.cache(rig.look()) == {"hit_rate": None, "evicted_minute": 0}


def test_tokens_of_a_step_that_was_not_seen_yet_are_not_divided_by() -> None:
    rig, figures = Watched(), Figures(None, "fp32")
    rig.add(make_seq(1, range(8), 40, arrival_s=0.0))
    rig.tick(2)
    rig.look()
    before = figures.requests(rig.lanes.entries(), [], rig.clock.now())["tpot"]
    plan = rig.scheduler.schedule()
    assert plan is not None
    rig.scheduler.commit(plan, rig.runner.execute(plan))  # meanwhile, on the engine's thread
    assert figures.requests(rig.lanes.entries(), [], rig.clock.now())["tpot"] == before and before["n"] == 1


def test_first_tokens_of_long_ago_are_none_of_the_last_minute() -> None:
    """A page is opened while requests run that began before it."""
    rig, figures = Watched(), Figures(None, "fp32")
    rig.add(make_seq(1, range(8), 40, arrival_s=0.0))
    rig.tick(3)
    rig.clock.advance(70.0)
    rig.add(make_seq(2, range(8), 40, arrival_s=rig.clock.now()))
    rig.tick()
    rig.look()
    for _ in range(2):
        assert figures.requests(rig.lanes.entries(), [], rig.clock.now())["ttft"]["n"] == 1


def test_those_who_could_not_be_served_in_time_are_counted_for_a_minute() -> None:
    figures = Figures(None, "fp32")
    assert figures.late(Gauges(num_refused=7, num_deferred=2), 0.0) == {"refused": 0, "deferred": 0}  # before anybody watched
    assert figures.late(Gauges(num_refused=9, num_deferred=2), 10.0) == {"refused": 2, "deferred": 0}
    assert figures.late(Gauges(num_refused=9, num_deferred=3), 60.0) == {"refused": 2, "deferred": 1}
    assert figures.late(Gauges(num_refused=9, num_deferred=3), 70.1) == {"refused": 0, "deferred": 0}
