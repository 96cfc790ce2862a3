"""Rates, percentiles and the sentence: each is what the steps' own figures say, and nothing is said that was not measured."""
import pytest

from penstock.core.hardware import Hardware
from penstock.serve.api.dashboard.figures import Figures, Latencies, Part, Sample, Stretch, percentile
from penstock.serve.api.dashboard.limit import Sentence, points, roof
from tests.decide.builders import make_seq
from tests.serve.api.dashboard.steps import Watched

ROOF = Hardware("box", {1: 1e9}, {"fp32": 1e11})


def part(seconds: float, share_read: float = 0.0, share_ops: float = 0.0, inside: float = 1.0, weights: float = 0.8) -> Part:
    """Steps that take so many seconds, at these shares of ROOF."""
    num_bytes = int(seconds * share_read * 1e9)
    return Part(10, seconds, seconds * inside, int(seconds * share_ops * 1e11), int(num_bytes * weights), int(num_bytes * (1 - weights)),
                seconds * share_read, seconds * share_ops)


def said(stretch: Stretch, waiting: int = 0, hardware: Hardware | None = ROOF) -> tuple[str, str]:
    found = Sentence(hardware, "fp32")(stretch, waiting)
    return found.kind, found.sentence.replace("\N{NARROW NO-BREAK SPACE}", " ")


def test_the_sentence_names_what_steps_come_nearest_to() -> None:
    assert said(Stretch(2.0, decode=part(2.0, 0.71, 0.05))) == (
        "weight_bandwidth", "Decode reads weights at 71 % of the bandwidth: 0.7 of 1.0 GB/s.")
    assert said(Stretch(2.0, decode=part(2.0, 0.71, 0.05, weights=0.2)))[0] == "kv_bandwidth"
    assert said(Stretch(2.0, part(1.5, 0.1, 0.63), part(0.5, 0.7))) == (
        "compute", "Prefill computes at 63 % of the fp32 rate: 63 of 100 Gop/s.")
    assert said(Stretch(2.0, decode=part(2.0, 0.1, 0.05, inside=0.2))) == (
        "host_overhead", "Decode is far from the machine's limits: it reads at 10 % of the bandwidth and computes at 5 % of the fp32 rate, "
        "and spends 80 % of its time in scheduling, sampling and drafting.")
    assert said(Stretch(2.0, decode=part(2.0, 0.4, 0.05, inside=0.5)))[0] == "host_overhead"
    assert said(Stretch(2.0, decode=part(2.0, 0.2, 0.1)))[0] == "far"
    assert said(Stretch(2.0, decode=part(2.0, 0.9, 0.05)), 3)[1].endswith("3 requests wait in the queue.")


def test_little_work_is_not_called_a_limit() -> None:
    kind, sentence = said(Stretch(10.0, decode=part(1.0, 0.7)))
    assert kind == "arrivals" and sentence.startswith("Steps take 10 % of the time: there is room for more requests.")
    assert said(Stretch(2.0)) == ("idle", "Idle: there is nothing to compute.")
    assert said(Stretch(2.0), 1) == ("idle", "No step has ended lately. 1 request waits in the queue.")


def test_nothing_is_made_up_where_limits_were_not_measured() -> None:
    kind, sentence = said(Stretch(2.0, decode=Part(10, 1.8, 1.5, 10**9, 10**9, 10**6)), hardware=None)
    assert kind == "unmeasured" and "`penstock limits` has not been run" in sentence and "90 % of the time" in sentence
    assert Sentence(None, "fp32")(Stretch(2.0, decode=part(1.0)), 0).share is None
    assert roof(None, "fp32") is None
    found = points(Stretch(2.0, decode=Part(2, 1.0, 0.5, 1000, 10, 10)))
    assert found == {"decode": {"intensity": 50.0, "ops_per_s": 1000.0, "bandwidth_share": None, "rate_share": None, "outside_share": 0.5,
                                "bytes_per_step": 10.0, "step_s": 0.5}}


def test_a_rate_that_is_not_known_is_not_compared_with() -> None:
    unknown = Hardware("box", {1: 1e9}, {})
    assert roof(unknown, "int8") == {"name": "box", "bandwidth": 1e9, "type": "int8", "ops": None, "by_size": [[1, 1e9]]}
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


def test_history_has_a_point_a_second_and_ends() -> None:
    figures = Figures(None, "fp32")
    now = 0.0
    for _ in range(4 * 1000):
        figures.add([], now)
        figures.remember(now, 1, 2, 0.5)
        now += 0.25
    assert len(figures.history) == 300 and figures.history[-1][3:] == [1, 2, 0.5]
    assert figures.history[-1][0] - figures.history[-2][0] == pytest.approx(1.0)


def test_percentiles_are_real_samples() -> None:
    assert [percentile([1.0, 2.0, 3.0, 4.0], percent) for percent in (1, 50, 75, 76, 99, 100)] == [1.0, 2.0, 3.0, 4.0, 4.0, 4.0]
    assert percentile([], 50) is None


def test_latencies_are_of_the_last_minute_and_compared_with_their_promise() -> None:
    latencies = Latencies()
    latencies.add(Sample(0.0, 9.0, None))
    for i in range(100):
        latencies.add(Sample(50.0, (i + 1) / 100, 0.5 if i % 2 else None))
    told = latencies.tell(61.0)
    assert told == {"n": 100, "p50": 0.5, "p90": 0.9, "p99": 0.99, "slo": 0.5, "asked": 50, "met": 25}
    assert latencies.tell(200.0) == {"n": 0, "p50": None, "p90": None, "p99": None, "slo": None, "asked": 0, "met": 0}


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
    assert figures.cache(rig.look()) == {"hit_rate": None, "evicted": 0, "evicted_minute": 0}
