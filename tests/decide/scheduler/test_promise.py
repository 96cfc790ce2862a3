from math import inf

import pytest

from penstock.core.types import SamplingParams
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.promise import affords_s, claim_of, dues_s, first_due_s, has_objectives, num_left, tpot_s
from tests.decide.builders import SteadyTimer, make_seq

COSTS = StepCosts(SteadyTimer(0.01, 0.001), 16, 8)


def seq(num_new=11, **slo):
    return make_seq(0, range(10), num_new, arrival_s=1.0, **slo)


def test_without_objectives_nothing_is_due():
    free = seq()
    assert not has_objectives(free) and first_due_s(free, COSTS) == tpot_s(free, 2.0) == affords_s(free, inf, 9.0) == inf
    assert dues_s(free, 2.0) == (inf, inf)


def test_what_is_deferred_has_none():
    late = seq(ttft_slo_s=1.0, tpot_slo_s=0.1)
    assert has_objectives(late) and tpot_s(late, 2.0) == 0.1 and claim_of(late, COSTS).due_s == 2.0
    late.deferred = True
    assert not has_objectives(late) and tpot_s(late, 2.0) == claim_of(late, COSTS).due_s == inf


def test_work_is_the_prompt_and_the_answers_share_of_full_steps():
    # Ten rows take 20 ms; a step of eight answers takes 18 ms.
    claim = claim_of(seq(ttft_slo_s=1.0), COSTS)
    assert (claim.prompt_s, claim.work_s) == (pytest.approx(0.02), pytest.approx(0.02 + 10 * 0.018 / 8))
    assert claim.hopeless_s == pytest.approx(2.0 - 0.02) and claim_of(seq(), COSTS).work_s == 0.0


def test_tokens_are_due_one_by_one():
    asked = seq(ttft_slo_s=0.5, tpot_slo_s=0.1)
    assert first_due_s(asked, COSTS) == 1.5
    asked.tokens += [0] * 4
    due_s, last_s = dues_s(asked, 2.0)
    assert (due_s, last_s) == (pytest.approx(2.4), pytest.approx(3.0))
    # seven tokens are left, and the last is due at 2 + 10 * 0.1
    assert affords_s(asked, last_s, 2.3) == pytest.approx(0.7 / 7)
    assert affords_s(asked, last_s, 2.65) == pytest.approx(0.05)


def test_an_end_to_end_objective_becomes_both():
    # The prompt takes 20 ms alone, ten tokens more 11 ms each: of 1 s, 870 ms are spare, and half of them are for waiting.
    asked = seq(e2e_slo_s=1.0)
    assert first_due_s(asked, COSTS) == pytest.approx(1.0 + 0.02 + 0.87 / 2)
    assert tpot_s(asked, 1.5) == pytest.approx(0.05)
    assert first_due_s(seq(e2e_slo_s=1.0, ttft_slo_s=0.1), COSTS) == pytest.approx(1.1)
    assert tpot_s(seq(e2e_slo_s=1.0, tpot_slo_s=0.02), 1.5) == 0.02
    several = seq(e2e_slo_s=1.0, params=SamplingParams(n=4))  # 14 ms for a token of each: 840 ms are spare
    assert first_due_s(several, COSTS) == pytest.approx(1.0 + 0.02 + 0.84 / 2)


def test_one_token_has_no_pace():
    assert tpot_s(seq(1, e2e_slo_s=1.0), 1.5) == inf and first_due_s(seq(1, e2e_slo_s=1.0), COSTS) == pytest.approx(1.51)


def test_what_the_cache_is_expected_to_hold_is_not_left():
    asked = seq()
    asked.num_cached = 8
    assert num_left(asked) == 2
    asked.num_preemptions = 1
    assert num_left(asked) == 10


def test_a_claim_is_hopeless_when_even_alone_it_would_be_late():
    asked = seq(ttft_slo_s=0.5, tpot_slo_s=0.1)
    claim = claim_of(asked, COSTS)
    assert (claim.num_left, claim.due_s, claim.prompt_s, claim.hopeless_s) == (10, 1.5, pytest.approx(0.02), pytest.approx(1.48))
    asked.first_token_s = 2.0
    asked.tokens += [0] * 4
    claim = claim_of(asked, COSTS)  # seven tokens are left, 11 ms each
    assert (claim.due_s, claim.prompt_s, claim.hopeless_s) == (pytest.approx(2.4), 0.0, pytest.approx(3.0 - 0.077))
    asked.tpot_slo_s = None
    assert claim_of(asked, COSTS).due_s == claim_of(asked, COSTS).hopeless_s == inf == claim_of(seq(ttft_slo_s=0.5), None).due_s


def test_a_search_whose_first_token_is_not_chosen_yet_is_due_whenever():
    asked = seq(ttft_slo_s=0.5)
    asked.first_token_s = 1.2
    assert claim_of(asked, COSTS).due_s == inf
