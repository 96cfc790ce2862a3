import pytest

from penstock.study.measure.bench import later_told
from penstock.study.measure.metrics import Warmup, Window, concurrency, count, figures, tokens_within
from penstock.study.measure.samples import Sample
from penstock.study.measure.series import MAX_BINS, series
from penstock.study.measure.slo import parse_slo


def sample(number: int, due_s: float, num_output: int = 4, ttft_s: float = 0.5, gap_s: float = 0.25, num_prompt: int = 10) -> Sample:
    found = Sample(number, due_s, sent_s=due_s, num_prompt=num_prompt, num_output=num_output)
    for token in range(num_output):
        found.arrived(due_s + ttft_s + token * gap_s)
    found.end_s = found.last_s
    return found


def failed(number: int, due_s: float, reason: str) -> Sample:
    found = Sample(number, due_s)
    found.fail(reason, due_s + 0.1)
    return found


def test_a_warm_up_is_a_time_or_a_share_of_the_requests() -> None:
    samples = [sample(number, float(number)) for number in range(10)]
    assert Warmup().ends_s(samples) == 0 and Warmup(seconds=2.5).ends_s(samples) == 2.5 and Warmup(share=0.3).ends_s(samples) == 3.0
    found = figures(samples, Warmup(share=0.3), None)
    assert found.counts.measured == 7 and found.counts.sent == 10 and found.window == Window(3.0, 10.25)


def test_rates_are_of_all_that_came_within_the_window() -> None:
    """The request before the window leaves its last two tokens in it."""
    found = figures([sample(0, 0.0), sample(1, 1.0)], Warmup(seconds=1.0), None)
    assert found.window.seconds == pytest.approx(1.25)
    assert found.rates.output_tokens_per_s == pytest.approx((2 + 4) / 1.25)
    assert found.rates.input_tokens_per_s == pytest.approx(10 / 1.25) and found.rates.requests_per_s == pytest.approx(2 / 1.25)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_where_all_keep_the_slo_goodput_is_the_throughput(share: float) -> None:
    """Also of those that were asked for within the warm-up and answered behind it."""
    asked = [sample(number, number * 0.1) for number in range(60)]
    all_good, some_good = (figures(asked, Warmup(share=share), parse_slo(slo)) for slo in ("ttft=1s", "ttft=0.4s"))
    assert all_good.goodput is not None and all_good.goodput.kept.value == 1.0
    assert all_good.goodput.requests_per_s == all_good.rates.requests_per_s
    assert all_good.goodput.output_tokens_per_s == pytest.approx(all_good.rates.output_tokens_per_s)
    assert some_good.goodput is not None and some_good.goodput.requests_per_s == some_good.goodput.kept.value == 0.0


def test_what_a_cache_held_is_a_share_of_the_input_within_the_window() -> None:
    """Within the warm-up it was filled."""
    cold, warm = sample(0, 0.0), sample(1, 5.0)
    warm.num_cached = 8
    assert figures([cold, warm], Warmup(seconds=3.0), None).rates.cached_share == pytest.approx(0.8)
    assert figures([cold, warm], Warmup(), None).rates.cached_share == pytest.approx(0.4)


def test_goodput_is_of_good_requests_alone() -> None:
    asked = [*(sample(number, number * 0.1, ttft_s=0.5 if number % 3 else 2.0) for number in range(60)), failed(60, 6.0, "gone")]
    found = figures(asked, Warmup(share=0.2), parse_slo("ttft=1s"))
    assert found.goodput is not None and found.goodput.kept.value == pytest.approx(32 / 49)
    good = [each for each in asked if each.ok and each.number % 3 and found.window.holds(each.end_s)]
    assert found.goodput.requests_per_s == pytest.approx(len(good) / found.window.seconds) and len(good) > 32
    assert 0.5 * found.rates.requests_per_s < found.goodput.requests_per_s < found.rates.requests_per_s


def test_a_request_that_hangs_stretches_nothing() -> None:
    """Minutes after all others the client gives it up."""
    asked = [sample(number, number * 0.1) for number in range(60)]
    hung = failed(60, 3.0, "no complete answer within 600 s")
    hung.end_s = 603.0
    plain, found = (figures(each, Warmup(), parse_slo("ttft=1s")) for each in (asked, [*asked, hung]))
    assert found.window == plain.window and found.counts.failed == 1 and found.goodput is not None and plain.goodput is not None
    assert (found.rates.requests_per_s, found.rates.output_tokens_per_s, found.goodput.requests_per_s) == (
        plain.rates.requests_per_s, plain.rates.output_tokens_per_s, plain.goodput.requests_per_s)


def test_the_window_lasts_while_requests_come_and_are_answered_or_refused() -> None:
    asked = [sample(number, number * 0.1) for number in range(30)]
    gone = [failed(number, number * 0.1, "gone") for number in range(30, 60)]
    assert figures([*asked, *gone], Warmup(), None).window == Window(0.0, pytest.approx(5.9))
    refused = failed(60, 5.0, "busy")
    refused.status, refused.end_s = 429, 8.0
    assert figures([*asked, *gone, refused], Warmup(), None).window == Window(0.0, 8.0)


def test_failures_after_the_window_are_told() -> None:
    ended, window = [failed(number, 0.0, "gone") for number in range(4)], Window(0.0, 60.0)
    assert not later_told(ended, window)
    ended[0].end_s, ended[1].end_s, ended[2].end_s, ended[2].status = 660.0, 61.0, 90.0, 429
    told = "2 requests failed up to 600.0 s after the last answer or arrival: rates are of the 60.0 s until then"
    assert later_told(ended, window) == [told]


def test_without_a_warm_up_throughput_is_all_over_all() -> None:
    """As vLLM's benchmark has it."""
    samples = [sample(number, number * 0.1) for number in range(20)]
    rates = figures(samples, Warmup(), None).rates
    duration = 1.9 + 1.25
    assert (rates.requests_per_s, rates.output_tokens_per_s, rates.input_tokens_per_s) == pytest.approx(
        (20 / duration, 80 / duration, 200 / duration))
    assert rates.as_json()["requests_per_min"] == pytest.approx(1200 / duration)


def test_pieces_that_hold_several_tokens_count_as_such() -> None:
    drafted = sample(0, 0.0, num_output=4)
    drafted.num_output = 12
    assert tokens_within(drafted, Window(0.0, 0.8)) == 6.0
    assert figures([drafted], Warmup(), None).rates.tokens_per_chunk == 3.0
    unseen = Sample(1, 0.0, sent_s=0.0, end_s=1.0, num_output=100, status=200, finish_reason="length")
    unseen.arrived(1.0, visible=False)  # all of it at once, which says nothing of pieces
    assert unseen.came_at_once and figures([drafted, unseen], Warmup(), None).rates.tokens_per_chunk == 3.0


def test_latencies_leave_failures_out_and_counts_name_them() -> None:
    found = figures([sample(0, 0.0), *(failed(number, 0.0, "busy") for number in (1, 2)), failed(3, 0.0, "gone")], Warmup(), None)
    assert found.latencies.ttft.count == 1 and found.counts.errors == {"busy": 2, "gone": 1}
    assert (found.counts.completed, found.counts.failed) == (1, 3)
    unanswered = count([Sample(0, 0.0)], [Sample(0, 0.0)])
    assert unanswered.errors == {"not answered": 1}


def test_refusals_are_no_failures_and_each_reason_is_told_once() -> None:
    given = [(429, "its first token would come after 1.5 s"), (429, "its first token would come after 900 ms"), (429, "64 requests wait"),
             (500, "64 requests wait")]
    ended = [failed(number, 0.0, f"status {status}: {reason}") for number, (status, reason) in enumerate(given)]
    for each, (status, _) in zip(ended, given, strict=True):
        each.status = status
    counts = figures([sample(9, 0.0), *ended], Warmup(), None).counts
    assert (counts.completed, counts.refused, counts.failed) == (1, 3, 1) and counts.errors == {"status 500: 64 requests wait": 1}
    assert counts.refusals == {"status 429: its first token would come after 1.5 s": 2, "status 429: 64 requests wait": 1}


def test_answers_of_one_token_have_no_time_per_output_token() -> None:
    found = figures([sample(0, 0.0, num_output=1), sample(1, 0.0)], Warmup(), None).latencies
    assert (found.ttft.count, found.tpot.count, found.itl.count) == (2, 1, 3)
    assert found.tokens_per_s_per_user.at(50) == pytest.approx(4)


def test_of_speeds_there_are_percentiles_and_no_mean() -> None:
    """One answer of two tokens that came within a microsecond would be all of it."""
    together = sample(9, 0.0, num_output=2, gap_s=1e-6)
    told = figures([*(sample(number, 0.0) for number in range(9)), together], Warmup(), None).as_json()["tokens_per_s_per_user"]
    assert told["count"] == 10 and told["p50"]["value"] == pytest.approx(4) and told["max"] > 1e5 and not {"mean", "stdev"} & told.keys()


def test_requests_in_flight() -> None:
    samples = [sample(0, 0.0), sample(1, 1.0), sample(2, 1.25)]  # the first ends as the third begins
    assert concurrency(samples, Window(0.0, 2.5)) == (pytest.approx(3 * 1.25 / 2.5), 2)
    assert concurrency(samples, Window(1.1, 1.2)) == (pytest.approx(2.0), 2)


def test_ttft_by_prompt_length() -> None:
    samples = [sample(number, 0.0, num_prompt=tokens, ttft_s=tokens / 100) for number, tokens in enumerate((16, 31, 32, 100))]
    bins = figures(samples, Warmup(), None).ttft_by_prompt
    assert [(each.low, each.high, each.ttft.count) for each in bins] == [(16, 32, 2), (32, 64, 1), (64, 128, 1)]
    assert bins[0].ttft.at(50) == pytest.approx(0.235)


def test_nothing_sent() -> None:
    told = figures([], Warmup(share=0.1), None).as_json()
    assert told["requests"]["sent"] == 0 and told["ttft_s"]["count"] == 0 and told["output_tokens_per_s"] == 0


def test_series_add_up() -> None:
    samples = [sample(number, number * 0.3) for number in range(50)]
    found = series([*samples, failed(50, 1.0, "x"), Sample(51, 2.0)])
    assert sum(found.output_tokens_per_s) * found.width_s == pytest.approx(200)
    assert sum(found.input_tokens_per_s) * found.width_s == pytest.approx(500)
    assert sum(found.requests_per_s) * found.width_s == pytest.approx(50)
    assert sum(found.running) * found.width_s == pytest.approx(50 * 1.25 + 0.1)
    assert found.width_s == 0.25 and len(found.running) == len(found.requests_per_s)


def test_series_of_a_run_that_was_cut_short_hold_what_was_in_flight() -> None:
    """As its rates do."""
    begun = [sample(number, 0.1 * number) for number in range(5)]
    for each in begun:
        each.end_s = each.num_output = None
    found, rates = series(begun, 2.0, per_chunk=3.0), figures(begun, Warmup(), None, 2.0).rates
    assert sum(found.output_tokens_per_s) * found.width_s == pytest.approx(3 * 2.0 * rates.output_tokens_per_s) == pytest.approx(60)
    assert sum(found.input_tokens_per_s) * found.width_s == pytest.approx(2.0 * rates.input_tokens_per_s) == pytest.approx(50)
    assert not sum(found.requests_per_s) and sum(found.running) * found.width_s == pytest.approx(5 * 2.0 - 1.0)


def test_series_of_long_runs_have_wider_bins() -> None:
    assert len(series([sample(0, 0.0), sample(1, 90_000.0)]).running) <= MAX_BINS + 1
    assert series([]).running == (0.0,)
