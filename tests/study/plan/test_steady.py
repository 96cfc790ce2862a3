"""A replica in the long run: what must hold of it whatever the hardware."""
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compute.attends import Attends, Form
from penstock.compute.steptime import Roofline, Split
from penstock.core.catalogue.read import Catalogue
from penstock.core.work import StepWork
from penstock.serve.engine import build
from penstock.study.plan.model import Stored, weight_format
from penstock.study.plan.request import model_of
from penstock.study.plan.steady import MeanStep, Queue, Steady, told_of

PART = Catalogue().part("h100-sxm")
STORED: Stored = model_of("llama-3-8b").stored(weight_format("none", build.parse_quant), "auto")


def timer(split: Split | None = None) -> Roofline:
    return Roofline(STORED.program, STORED.numbers, PART, split)


def steady(lengths: tuple[int, int], chunk: int = 2048, stages: int = 1) -> Steady:
    return Steady(timer(Split(1, stages)), stages, lengths, chunk)


def test_a_mean_step_counts_as_the_step_that_it_stands_for() -> None:
    work = StepWork(((1, 300),) * 5 + ((100, 400),), 6)
    mean = MeanStep(5, 300, 1, 100, 400)
    assert (mean.num_tokens, mean.num_logits) == (work.num_tokens, work.num_logits)
    assert all(mean.windowed(window) == work.windowed(window) for window in (None, 50, 350))
    assert list(mean.sequences()) == [(5, 1, 300), (1, 100, 400)] and len(list(work.sequences())) == 6
    attends = Attends(1, (Form(7, row=100), Form(2, read=90)))
    assert attends.counts(mean) == attends.counts(work)
    assert timer().seconds(mean) == pytest.approx(timer().seconds(work))


def test_one_request_alone_takes_its_prompt_and_its_tokens() -> None:
    point = steady((1000, 101)).closed(1)
    prompt, token = timer().seconds(StepWork(((1000, 1000),), 1)), timer().seconds(StepWork(((1, 1050),), 1))
    assert point.ttft_s == pytest.approx(prompt) and point.tpot_s == pytest.approx(token, rel=0.001)
    assert point.requests_per_s == pytest.approx(1 / (prompt + 100 * token), rel=0.001)


def test_an_answer_of_one_token_is_all_prompt() -> None:
    one, many = steady((3000, 1)).closed(1), steady((3000, 1)).closed(8)
    assert told_of(one.shares())["bound"] == "prefill compute" and one.requests_per_s == pytest.approx(1 / one.ttft_s)
    assert many.requests_per_s == pytest.approx(one.requests_per_s, rel=0.05) and many.ttft_s == pytest.approx(8 * one.ttft_s, rel=0.05)


def test_the_arithmetic_of_steps_with_both_is_divided_by_their_rows() -> None:
    """1,024 at once, of which each step computes two prompts or so: what they are bound by is decoding."""
    shares = steady((64, 512)).closed(1024).shares()
    assert shares["prefill compute"] == pytest.approx(64 / (64 + 511) * (shares["prefill compute"] + shares["decode compute"]), rel=0.05)
    full = steady((1600, 401), 256).closed(64).shares()
    assert full["prefill compute"] == pytest.approx(0.8 * (full["prefill compute"] + full["decode compute"]), rel=0.01)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8000), st.integers(1, 2000), st.integers(0, 9), st.sampled_from([256, 2048, 8192]))
def test_littles_law_and_plausible_shares(prompt: int, answer: int, power: int, chunk: int) -> None:
    batch = 1 << power
    point = steady((prompt, answer), chunk).closed(batch)
    waited = point.queue.mean_s - point.queue.service_s if point.ttft_s == point.queue.mean_s else 0.0  # outside
    assert point.requests_per_s * (point.ttft_s - waited + (answer - 1) * point.tpot_s) == pytest.approx(batch)
    assert sum(point.shares().values()) == pytest.approx(1) and all(share >= 0 for share in point.shares().values())
    assert point.ttft_s >= point.queue.service_s * 0.999 and (point.tpot_s > 0 or answer == 1)


@settings(max_examples=40, deadline=None)
@given(st.integers(16, 4000), st.integers(16, 1000), st.integers(0, 8))
def test_more_at_once_is_never_less_in_all(prompt: int, answer: int, power: int) -> None:
    one, two = (steady((prompt, answer)).closed(batch) for batch in (1 << power, 2 << power))
    assert two.requests_per_s > 0.95 * one.requests_per_s and two.ttft_s > 0.95 * one.ttft_s


def test_doubling_a_small_batch_is_nearly_free() -> None:
    one, two = (steady((64, 256)).closed(batch).requests_per_s for batch in (1, 2))
    assert two / one == pytest.approx(2, rel=0.1)


def test_closed_and_open_loops_agree_where_neither_waits() -> None:
    closed = steady((500, 400)).closed(16)
    point = steady((500, 400)).open(closed.requests_per_s, 1000)
    assert point is not None and point.running == pytest.approx(16, rel=0.1) and point.tpot_s == pytest.approx(closed.tpot_s, rel=0.1)


def test_a_rate_above_what_it_can_do_is_refused() -> None:
    most = steady((1000, 100)).closed(1024).requests_per_s
    assert steady((1000, 100)).open(0.5 * most, 4096) is not None
    assert steady((1000, 100)).open(1.3 * most, 4096) is None
    assert steady((1000, 100)).open(0.5 * most, 2) is None  # the cache is too small


def test_waiting_grows_with_the_rate() -> None:
    most = steady((1000, 100)).closed(1024).requests_per_s
    points = [steady((1000, 100)).open(share * most, 4096) for share in (0.01, 0.3, 0.6, 0.8)]
    waits = [point.ttft_s for point in points if point is not None]
    assert len(waits) == 4 and waits == sorted(waits)


@pytest.mark.parametrize("busy", [0.1, 0.5, 0.9])
def test_the_queue_is_m_d_1(busy: float) -> None:
    queue = Queue(2.0, busy, 1.0)
    assert queue.mean_s == pytest.approx(1 + 2 + busy * 2 / (2 * (1 - busy)))
    assert queue.share_within(2.9) == 0 and queue.share_within(3.0) == pytest.approx(1 - busy) and queue.share_within(math.inf) == 1
    for share in (0.95, 0.99):
        assert queue.percentile(share) >= queue.mean_s and queue.share_within(queue.percentile(share)) >= share - 1e-9


def test_stages_pass_prompts_on() -> None:
    one, two = (steady((4096, 1), 512, stages).closed(1).ttft_s for stages in (1, 2))
    assert 0.5 * one < two < 0.75 * one  # eight chunks, nine passes of half a model


@pytest.mark.parametrize("stages", [2, 8])
def test_a_token_goes_through_all_stages_once_whoever_is_there(stages: int) -> None:
    """The last stage makes the logits, and is slower than the others: it counts for each sequence where all stages have one."""
    each, step = timer(Split(1, stages)), StepWork(((1, 1050),), 1)
    through, slowest = each.seconds(step), each.interval(step)
    made = steady((1000, 101), stages=stages)
    one, full = made.closed(1), made.closed(stages)
    assert one.tpot_s == pytest.approx(through, rel=0.001) and full.tpot_s >= 0.999 * stages * slowest > 1.01 * through
    seldom, often = made.open(0.01 / one.tpot_s / 100, 4096), made.open(full.requests_per_s, 4096)
    assert seldom is not None and seldom.tpot_s == pytest.approx(through, rel=0.01)
    assert often is not None and often.tpot_s == pytest.approx(full.tpot_s, rel=0.02)
    apart = made.decode(0.01 / one.tpot_s / 100, 4096)
    assert apart is not None and apart[0] == pytest.approx(through, rel=0.001)
    tokens_s = [made.closed(batch).tpot_s for batch in range(1, 2 * stages + 1)]
    assert tokens_s == sorted(tokens_s)


def test_time_with_nothing_to_do_is_bound_by_nothing() -> None:
    """A prompt of nine seconds and an answer of six, once in a thousand: most of the time in which anything is done is the prompt's."""
    made = steady((120_000, 500))
    one, seldom = made.closed(1), made.open(0.001, 4096)
    assert seldom is not None and seldom.shares() == pytest.approx(one.shares(), abs=0.01)
    assert told_of(seldom.shares())["bound"] == "prefill compute" and seldom.prefilling == pytest.approx(0.001 * one.ttft_s, rel=0.05)
    alone = steady((2000, 1)).open(0.5, 4096)
    assert alone is not None and alone.tpot_s == 0 and alone.decoding.seconds == 0 and alone.shares()["prefill compute"] > 0.85


def test_where_the_time_of_replicas_goes_that_compute_prompts_alone_or_none() -> None:
    made = steady((1000, 100))
    queue, tokens = made.prefill(1.0), made.decode(1.0, 4096)
    assert queue is not None and tokens is not None
    prompts = made.computing(1.0, queue.busy)
    assert prompts.seconds == pytest.approx(queue.busy) and prompts.compute > 0.8 * queue.busy
    assert tokens[1].seconds == pytest.approx(1 - math.exp(-99 * tokens[0])) and tokens[1].weights > 0.5 * tokens[1].seconds


def test_apart_prompts_and_tokens_keep_their_pace() -> None:
    made = steady((1000, 100))
    queue = made.prefill(1.0)
    assert queue is not None and queue.service_s == pytest.approx(made.closed(1).ttft_s)
    assert queue.later(3.0).mean_s == pytest.approx(3 + queue.mean_s) and queue.later(3.0).service_s == queue.service_s
    long = steady((4096, 100), chunk=512)
    several = long.prefill(1.0)
    assert several is not None and several.later(3.0).mean_s == pytest.approx(3 + several.mean_s)
    assert long.prefill(1.01 / several.service_s) is None
    few, many = made.decode(1.0, 4096), made.decode(20.0, 4096)
    assert few is not None and many is not None and few[0] < many[0] and made.decode(20.0, 4) is None


def test_short_prompts_apart_are_computed_together() -> None:
    """To read the weights takes as long for one as for several."""
    made = steady((64, 100))
    alone, together = (timer().seconds(StepWork(((64, 64),) * count, count)) for count in (1, 4))
    assert together < 1.3 * alone
    queue = made.prefill(2 / alone)
    assert queue is not None and queue.mean_s < 2 * alone and 0.5 < queue.busy < 1
    most = 2048 / 64 / timer().seconds(StepWork(((64, 64),) * 32, 32))
    assert made.prefill(0.99 * most) is not None and made.prefill(1.01 * most) is None


@pytest.mark.parametrize("prompt", [130, 150])
def test_what_keeps_up_does_not_wait_for_ever(prompt: int) -> None:
    """Passes take one whole prompt and a part of another: their queue has the capacity that the rate is held against."""
    made = steady((prompt, 20), 256)
    most = 256 / prompt / timer().seconds(StepWork(((prompt, prompt), (256 - prompt, 256 - prompt)), 2))
    for share, passes in ((0.5, 3), (0.8, 6)):
        point = made.open(share * most, 4096)
        assert point is not None and point.ttft_s < passes * point.queue.service_s
    assert made.open(1.05 * most, 4096) is None
