"""The refused come back when told, and not all at once."""
import random
from heapq import heappop, heappush

import pytest

from penstock.decide.scheduler.admission.returns import KNOWN, MOST_S, PATIENCE_S, UNSURE, Returns
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.promise import claim_of
from tests.decide.builders import SteadyTimer, make_seq
from tests.decide.scheduler.test_admission import BUDGET, deadline
from tests.decide.scheduler.test_again import mixed

COSTS = StepCosts(SteadyTimer(0.01, 0.001), BUDGET, 16)
SURE = KNOWN / (KNOWN + UNSURE)


def asked(number, num_prompt=64):
    return make_seq(number, [number] * num_prompt, 8, arrival_s=0.0, ttft_slo_s=1.0)


def told(returns, seq, now, first_s):
    return returns.after_s(claim_of(seq, COSTS), now, first_s)


def known():
    """All come back."""
    returns = Returns()
    for number in range(KNOWN):
        told(returns, asked(number), 0.0, 0.1)
        returns.came(asked(number), 0.1)
    assert returns.share == SURE
    return returns


def test_where_nobody_is_known_to_return_all_are_told_the_first_moment():
    returns = Returns()
    assert [told(returns, asked(number), 0.0, 0.1) for number in range(9)] == [0.1] * 9


def test_who_does_not_return_takes_no_room():
    returns = known()
    assert told(returns, asked(100), 1000.0, 0.1) < told(returns, asked(101), 1000.0, 0.1)
    for number in range(KNOWN):
        told(returns, asked(number), 2000.0 + number, 0.1)
    returns.came(asked(999), 5000.0)
    assert returns.share == 0.0 and [told(returns, asked(number), 5000.0, 0.1) for number in range(3)] == [0.1] * 3


@pytest.mark.parametrize("late_s", [0.0, PATIENCE_S, PATIENCE_S + 0.2])
def test_who_comes_late_counts_for_a_while(late_s):
    returns = Returns()
    told(returns, asked(1), 0.0, 0.1)
    returns.came(asked(1), 0.1 + late_s)
    assert (returns.share > 0) is (late_s <= PATIENCE_S)


def test_each_is_told_when_those_before_it_are_served_and_smaller_ones_fit_between():
    returns, work_s = known(), claim_of(asked(1), COSTS).work_s * SURE
    first, second, far = (told(returns, asked(number), 9.0, at_s) for number, at_s in ((1, 0.1), (2, 0.1), (3, 5.0)))
    assert (first, second, far) == (pytest.approx(0.1), pytest.approx(0.1 + work_s), pytest.approx(5.0))
    assert told(returns, asked(4), 9.0, 0.1) == pytest.approx(0.1 + 2 * work_s), "there is room before the one that comes later"
    assert told(returns, asked(5), 9.0, 5.0 - 0.9 * work_s) == pytest.approx(5.0 + work_s), "there is too little"
    assert told(returns, asked(6), 12.0, 0.1) == pytest.approx(0.1), "what is over counts no more"


def test_nobody_is_told_more_than_clients_heed_unless_nothing_sooner_would_do():
    returns = known()
    found = [told(returns, asked(number, 2000), 9.0, 0.1) for number in range(40)]
    assert found == sorted(found) and found[-1] == pytest.approx(MOST_S)
    assert told(returns, asked(41, 2000), 9.0, 100.0) == pytest.approx(100.0)


def obedient(num, seed):
    """(how often so many who ask at once, among others, were refused before they were let in, how many gave up after five times)."""
    rng, play, events, number, again, lost = random.Random(seed), deadline(), [], 0, [], 0
    for client in range(num):
        heappush(events, (rng.uniform(0, 0.05) if client < num // 2 else rng.uniform(0, 5), client, 0, mixed(rng)))
    while events:
        at_s, client, tries, (num_prompt, num_new, slo) = heappop(events)
        play.run(at_s)
        play.clock.advance(max(0.0, at_s - play.clock.now()))
        number += 50
        if play.ask(number + client % 50, num_prompt, num_new, at_s, **slo):
            again.append(tries)
        elif tries < 5:
            heappush(events, (play.clock.now() + play.refused[number + client % 50].retry_after_s, client, tries + 1,
                              (num_prompt, num_new, slo)))
        else:
            lost += 1
    return again, lost


@pytest.mark.parametrize("seed", [1, 2])
def test_a_crowd_that_comes_again_when_told_is_let_in(seed):
    """If each comes at the first moment that would do for it alone, 8 and 11 of a hundred are refused six times."""
    again, lost = obedient(100, seed)
    assert not lost and sum(again) < 0.8 * len(again), (lost, sum(again), len(again))
