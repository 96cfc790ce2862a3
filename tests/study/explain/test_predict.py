"""Several replicas are played together, behind the router that the planner takes."""
import random
from dataclasses import replace

import pytest

from penstock.compute.fitted import Fitted
from penstock.core.config import EngineConfig
from penstock.core.work import StepWork
from penstock.study.explain.figures import Figures, figures_of
from penstock.study.explain.observed import Drafted, Lengths, drafts_of
from penstock.study.explain.predict import Drafting, Way, predict
from penstock.study.explain.traffic import Traffic
from penstock.study.measure.samples import Sample
from penstock.study.plan.simulate.call import STRETCH, Call
from penstock.study.plan.simulate.twin import Pace, Spread, simulate

TIMER = Fitted((1, 64, 512), (0.010, 0.020, 0.100), 0.0, 0.0, 0.0, 0.0)
CONFIG = EngineConfig(max_num_seqs=16, max_num_batched_tokens=512, kv_tokens=8192)
WAY = Way(CONFIG, TIMER)
VARIED = Traffic(Lengths(400, 1.5), Lengths(12, 1.0), None, 9.0)


class Families(Traffic):
    """Prompts of 560 tokens, the first 512 of which are one of 23 beginnings: the cache of one replica holds the most of them at once."""

    def calls(self, config: EngineConfig, shorter: float = 1.0) -> list[Call]:
        rng, found = random.Random(1), []
        for at in range(400):
            first = rng.randrange(23) * STRETCH
            found.append(Call(at / (self.rate or 1.0), (range(first, first + 512), range(-48 * at - 48, -48 * at)), 12))
        return found


def spread_by(routing: str, traffic: Traffic, replicas: int = 2) -> Figures:
    played = simulate(CONFIG, Pace(TIMER), traffic.calls(CONFIG), traffic.users, Spread(replicas, routing))
    return figures_of(played.samples, traffic.closed)


def test_prompts_that_begin_alike_are_sent_where_their_beginnings_are() -> None:
    traffic = Families(Lengths(560, 0), Lengths(12, 0), None, 4.0, 0.9)
    found = predict(replace(WAY, replicas=2), traffic)
    assert found == spread_by("prefix", traffic)
    assert found.ttft_s < 0.75 * spread_by("round_robin", traffic).ttft_s
    uncached = replace(CONFIG, prefix_cache=False)
    assert predict(Way(uncached, TIMER, replicas=2), traffic).ttft_s > 1.3 * found.ttft_s


def test_others_go_where_the_least_is_to_do() -> None:
    found, one = predict(replace(WAY, replicas=2), VARIED), predict(WAY, VARIED)
    assert found == spread_by("least_loaded", VARIED)
    assert found.ttft_s < 0.9 * spread_by("round_robin", VARIED).ttft_s and found.ttft_s < one.ttft_s
    assert one == spread_by("round_robin", VARIED, 1)


def test_users_who_take_turns_are_all_served_by_all() -> None:
    users = Traffic(Lengths(100, 0), Lengths(20, 0), 8)
    one, two = (predict(replace(WAY, replicas=count), users) for count in (1, 2))
    assert one.output_tokens_per_s < two.output_tokens_per_s < 2 * one.output_tokens_per_s and two.tpot_s < one.tpot_s


def test_drafts_gain_as_much_on_each_replica() -> None:
    drafted, plain = (
        predict(Way(CONFIG, TIMER, found, 2), Traffic(Lengths(100, 0), Lengths(40, 0), None, 1.0)) for found in (Drafted(1.0, 2.0), None))
    assert drafted.requests_per_s == pytest.approx(plain.requests_per_s, rel=0.05)
    assert drafted.output_tokens_per_s == pytest.approx(plain.output_tokens_per_s, rel=0.05) and drafted.tpot_s < 0.7 * plain.tpot_s


@pytest.mark.parametrize("closed", [True, False])
def test_a_refusal_is_no_answer(closed: bool) -> None:
    samples = [Sample(number, float(number)) for number in range(100)]
    for number, sample in enumerate(samples):
        if number % 2:
            sample.fail("busy", number + 0.01)
            continue
        sample.arrived(number + 0.1)
        sample.end_s, sample.num_output = number + 0.1, 1
    found = figures_of(samples, closed)
    assert found.requests_per_s == pytest.approx(0.5, rel=0.03) and found.output_tokens_per_s == pytest.approx(0.5, rel=0.03)


def test_drafts_are_seen_in_the_counters() -> None:
    grown = {'step_tokens_total{kind="decode"}': 190.0, 'steps_total{kind="decode"}': 30.0, 'steps_total{kind="mixed"}': 10.0,
             'steps_total{kind="prefill"}': 9.0, 'step_bound_seconds_total{bound="drafting"}': 2.0, "spec_passes_total": 95.0,
             "spec_drafted_tokens_total": 380.0, "spec_accepted_tokens_total": 95.0}
    grown = {f"penstock_{name}": value for name, value in grown.items()}
    assert drafts_of(grown) == Drafted(rows=4.0, tokens=1.5, share=0.5, seconds=0.05)
    assert drafts_of({**grown, "penstock_spec_passes_total": 0.0}) is None


def test_steps_that_draft_and_steps_that_do_not_take_the_mean_of_both() -> None:
    """Not as long as one with the mean number of rows: what rows cost is bent."""
    bent = Fitted((1, 8, 9, 64), (0.001, 0.001, 0.005, 0.005), 0.0, 0.0, 0.0, 0.0, ((None, 1),))
    work, prompt = StepWork(((1, 100), (1, 50)), 2), StepWork(((40, 40),), 1)
    timer = Drafting(bent, Drafted(rows=8.0, tokens=1.5, share=0.25, seconds=0.01))
    assert timer.seconds(work) == pytest.approx(0.01 + 0.75 * 0.001 + 0.25 * 0.005)
    assert timer.seconds(prompt) == bent.seconds(prompt), "nothing is drafted for who has not answered yet"


def test_less_than_a_draft_a_step_costs_its_share() -> None:
    work = StepWork((*((1, 100) for _ in range(8)), (32, 32)), 9)
    none, some, one, more = (Drafting(TIMER, Drafted(rows, 1.0)).seconds(work) for rows in (0.0, 0.4, 1.0, 2.75))
    assert none == TIMER.seconds(work) and one == TIMER.seconds(StepWork((*((2, 101) for _ in range(8)), (32, 32)), 17))
    assert some == pytest.approx(none + 0.4 * (one - none)) and one > none and more == pytest.approx(none + 2.75 * (one - none))
