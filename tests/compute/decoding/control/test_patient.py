"""The controller that asks rarely, in an engine whose step times are known, with proposers that offer and are right as the test says."""
import pytest

from penstock.compute.decoding.control.contract import StepLoad
from penstock.compute.decoding.control.patient import BACKOFF, LOSS_PAUSE, MAX_WAIT, PROBE_DRAFTS, PROBE_WAIT, Patient, SeqState
from penstock.compute.decoding.control.rates import PositionRates
from tests.compute.decoding.control.engine import SimulatedEngine


def engine(fixed: float, row: float, right: float, count: int = 1, **more: float) -> SimulatedEngine:
    return SimulatedEngine(fixed, row, dict.fromkeys(range(count), right), **more)


def test_rates_are_of_drafts_whose_predecessors_came_true() -> None:
    rates = PositionRates.none(3)
    for num_drafts, num_accepted in ((3, 1), (3, 3), (1, 1)):
        rates.record(num_drafts, range(num_accepted), decay=1.0)
    assert (rates.reached, rates.accepted) == ([3, 2, 1], [3, 1, 1])
    assert rates.rates([0.5] * 3, 1.0) == [3.5 / 4, 1.5 / 3, 1.5 / 2]


def test_rates_of_trees_multiply_to_how_often_each_draft_comes_true() -> None:
    """Of four drafts: the first, the third or none; once the third with its child."""
    rates = PositionRates.none(4)
    for path in ((0,), (0,), (2,), (2, 3), (), (0,), (0,), (0,)):
        rates.record(4, path, decay=1.0)
    assert (rates.reached[0], rates.accepted[0]) == (8, 5) and rates.accepted[1] == 0
    assert rates.accepted[2:] == [2, 1] and rates.reached[3] == 2


def test_a_tree_came_true_if_its_longest_path_did() -> None:
    found = observed(1e-6, 1)
    found.limits([0], 0)
    found.record_proposal(0, 8)
    found.record_verified(0, (0, 3), 2)
    assert found._seqs[0].limit == found._limit


@pytest.mark.parametrize("count", [1, 4, 64])
def test_drafts_that_are_right_are_made(count: int) -> None:
    made = engine(1e-2, 1e-5, 0.97, count)
    assert made.speedup(300) > 3 and made.drafted_steps > 280


@pytest.mark.parametrize("count", [1, 8, 64])
def test_asking_in_vain_costs_next_to_nothing(count: int) -> None:
    made = engine(2e-4, 2e-5, 0.9, count, answers=0.0)
    made.speedup(200)
    assert made.speedup(2000) > 0.985
    assert made.drafted_steps == 0 and 0 < made.num_asked < 300 * count


@pytest.mark.parametrize("count", [1, 8, 64])
def test_drafts_that_are_wrong_cost_next_to_nothing(count: int) -> None:
    made = engine(2e-4, 2e-5, 0.02, count)
    made.speedup(200)
    assert made.speedup(2000) > 0.97


def test_where_rows_cost_as_much_as_steps_nothing_is_drafted() -> None:
    made = engine(0.0, 1e-4, 0.9, 32)
    assert made.speedup(1000) > 0.97 and made.drafted_steps < 50  # probes


def test_a_sequence_whose_drafts_do_not_pay_rests_and_others_go_on() -> None:
    made = engine(1e-3, 5e-5, 0.95, 2)
    made.acceptance[1] = 0.0
    made.speedup(2000)
    assert made.controller._limit_of(made.controller._seqs[0]) > 3
    assert made.controller._seqs[1].limit == 0 and made.controller._seqs[1].backoff == BACKOFF[1]


def test_a_sequence_that_has_rested_tries_one_draft_and_is_given_more_where_that_comes_true() -> None:
    made = engine(1e-3, 5e-5, 0.0)
    made.speedup(500)
    made.acceptance[0] = 1.0
    made.speedup(BACKOFF[1] + MAX_WAIT + 100)
    assert made.controller._seqs[0].limit > 3 and made.controller._seqs[0].backoff == BACKOFF[0]


@pytest.mark.parametrize(("count", "in_lockstep"), [(4, False), (16, False), (64, False), (4, True), (16, True)])
def test_after_drafts_that_were_wrong_others_are_tried_that_may_be_right(count: int, in_lockstep: bool) -> None:
    made = engine(2e-4, 2e-5, 0.0, count, propose=1e-6, answers=0.8)
    made.speedup(1000)
    assert made.controller._limit == 0
    for seq_id in made.acceptance:
        made.forget(seq_id)
        made.acceptance[seq_id] = 1.0
    made.in_lockstep = in_lockstep
    made.speedup(3 * PROBE_WAIT[1] + 500)
    assert made.controller._limit == 6
    before = made.drafted_steps
    made.speedup(500)
    assert made.drafted_steps - before > 400


def test_in_lockstep_offers_are_counted_even_where_none_would_pay() -> None:
    made = engine(2e-4, 2e-5, 0.0, 16, answers=0.3)
    made.speedup(1000)
    assert made.controller._limit == 0
    made.in_lockstep, made.answers = True, 0.0
    made.speedup(6000)
    assert made.controller._asking.share(made.controller._sure) < 0.01


def test_a_probe_is_of_all_drafts_and_comes_true_with_the_first_few(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine(2e-4, 2e-5, 0.0, 16)
    made.speedup(1000)
    assert made.controller._limit == 0
    probes: list[int] = []

    def first_few(seq_id: int, count: int) -> int:
        probes.extend([count] * (made.controller._limit == 0 and count > 0))
        return min(count, PROBE_DRAFTS)

    monkeypatch.setattr(made, "num_right", first_few)
    made.speedup(3 * PROBE_WAIT[1])
    assert set(probes) == {made.controller.max_drafts} and made.controller._limit == PROBE_DRAFTS < made.controller.max_drafts


def test_a_probe_that_is_never_verified_is_followed_by_another() -> None:
    made = engine(2e-4, 2e-5, 0.0, 16)
    made.speedup(1000)
    asked = made.num_asked
    for _ in range(3000):
        made.step()
        made.drafts = dict.fromkeys(made.drafts, 0)  # there was no room
    assert 2 < made.num_asked - asked < 3000 / PROBE_WAIT[0]


@pytest.mark.parametrize("count", [1, 4, 16])
def test_a_proposer_that_takes_long_is_asked_rarely_enough(count: int) -> None:
    made = engine(2e-4, 2e-5, 0.6, count, propose=2e-3)  # for each sequence as long as ten plain steps
    made.speedup(4000)
    assert made.speedup(4000) > 0.98


def test_in_lockstep_asking_takes_less_where_no_drafts_pay() -> None:
    made = engine(2e-4, 2e-5, 0.0, 16, propose=2e-4)
    made.speedup(1000)
    made.in_lockstep = True
    made.speedup(2000)
    asked, began = made.num_asked, made.now
    made.speedup(20000)
    assert made.controller._limit == 0 and 0.0 < made.propose * (made.num_asked - asked) < 0.0085 * (made.now - began)


@pytest.mark.parametrize(("answers", "parts"), [(0.02, False), (0.9, True)])
def test_sequences_in_lockstep_are_parted_only_for_much(answers: float, parts: bool) -> None:
    made = engine(3e-4, 2e-5, 0.95, 16, answers=answers)
    made.in_lockstep = True
    made.speedup(3000)
    assert (made.drafted_steps > 0) == parts and abs(made.controller._asking.share(made.controller._sure) - answers) < 0.06


@pytest.mark.parametrize(("propose", "parts"), [(1e-5, True), (3e-5, False)])
def test_sequences_in_lockstep_are_not_parted_where_asking_takes_what_drafts_gain(propose: float, parts: bool) -> None:
    """A plain step takes 0.65 ms; asking 0.16 ms of it, or 0.48."""
    made = engine(3e-4, 2e-5, 0.95, 16, answers=0.5, propose=propose)
    made.in_lockstep = True
    made.speedup(3000)
    assert made.drafted_steps > 2000 if parts else made.drafted_steps < 100


def load(count: int, drafts: int = 0) -> StepLoad:
    return StepLoad(count, drafts, 100 * count, True)


def observed(row: float, count: int) -> Patient:
    """After plain steps of so many sequences, whose fixed part is a tenth of a millisecond."""
    found = Patient([1e-4 + row * rows for rows in range(1000)], 8)
    for step in range(4):
        found.begin_step(step * (1e-4 + row * count), load(count))
        found.end_step((step + 1) * (1e-4 + row * count), 0.0, 1e-4 + row * count)
    return found


@pytest.mark.parametrize(("count", "sure"), [(1, False), (32, True)])  # a draft costs 0.09 tokens, 0.76
def test_where_drafts_cost_much_only_sure_ones_are_asked_for(count: int, sure: bool) -> None:
    limits = observed(1e-5, count).limits(list(range(count)), 0)
    assert limits is not None and limits.sure == sure and set(limits.max_drafts) == {6}  # 0.7^6 > 0.09, 0.96^6 > 0.76


def test_after_a_loss_nothing_is_drafted_for_a_while() -> None:
    found = observed(1e-6, 1)
    assert found.limits([0], 0) is not None
    found.record_proposal(0, 8)
    now = 1.0
    for _ in range(9):
        found.begin_step(now, load(1, 8))
        found.record_verified(0, range(8), 8)
        found.end_step(now + 1e-2, 0.0, 0.0)  # a hundred plain steps, for nine tokens
        now += 1e-2
    found.begin_step(now, load(1))
    assert found.limits([0], 0) is None and found._step < found._pauses_until


@pytest.mark.parametrize("seconds", [0.1, 10.0])
def test_steps_that_something_has_disturbed_do_not_end_drafting(seconds: float) -> None:
    made = engine(1e-3, 1e-5, 0.95)
    made.speedup(500)
    usual, made.fixed = made.fixed, seconds
    made.speedup(6)
    made.fixed, before = usual, made.drafted_steps
    made.speedup(2 * LOSS_PAUSE[1])
    assert made.drafted_steps - before > 0.9 * LOSS_PAUSE[1]


@pytest.mark.parametrize("answers", [0.0, 1.0])
def test_a_question_that_something_has_disturbed_does_not_end_asking(answers: float) -> None:
    made = engine(1e-3, 1e-5, 0.95, answers=answers)
    made.speedup(500)
    usual, made.propose, before = made.propose, 10.0, made.num_asked
    while made.num_asked == before:
        made.step()
    made.propose, made.answers, before = usual, 1.0, made.drafted_steps
    made.speedup(1000)
    assert made.drafted_steps - before > 800


def test_where_the_host_takes_long_between_steps_drafts_are_made_too() -> None:
    """As with many sequences and log-probabilities."""
    made = engine(1e-2, 1e-5, 0.95)
    for _ in range(500):
        made.speedup(1)
        made.now += 2e-3
    assert made.drafted_steps > 400


def test_a_pause_ends_when_it_should() -> None:
    found = observed(1e-6, 1)
    found.limits([0], 0)
    found._pauses_until, found._sample_due = found._step + 20, found._step + 100
    assert found.limits([0], 0) is None
    found.end_step(1.0, 0.0, 0.0)
    assert found.num_skippable() == 19


@pytest.mark.parametrize(("sample_due", "expected"), [(100, 99), (500, 499), (600, 499)])
def test_in_a_pause_no_step_is_observed_before_a_plain_one_is_due(sample_due: int, expected: int) -> None:
    found = observed(1e-6, 1)
    found.limits([0], 0)
    found._pauses_until, found._sample_due = found._step + 500, found._step + sample_due
    assert found.limits([0], 0) is None
    found.end_step(1.0, 0.0, 0.0)
    assert (found.num_skippable(), found.num_unasked()) == (expected, 499)


def test_in_the_last_step_of_a_pause_no_more_are_left_out() -> None:
    found = observed(1e-6, 1)
    assert found.limits([0], 0) is not None
    found._pauses_until, found._sample_due = found._step + 1, found._step + 100
    assert found.limits([0], 0) is None
    found.end_step(1.0, 0.0, 0.0)
    assert (found.num_skippable(), found.num_unasked()) == (0, 0)


def test_nothing_is_asked_after_steps_of_which_that_was_said() -> None:
    """Drafts that are seldom right, and sequences that come and go."""
    made, until, longest = engine(1e-3, 2e-4, 0.2, 4), 0, 0
    for _ in range(4000):
        num_asked, num_skipped = made.num_asked, made.num_skipped
        made.step()
        assert made.num_asked == num_asked or made.steps > until
        if made.steps % 50 == 0:
            made.forget(made.steps // 50 % 4)
        if made.num_skipped == num_skipped or made.steps % 50 == 0:
            until = made.steps + made.skip.left + made.skip.num_unasked
            longest = max(longest, until - made.steps)
    assert made.num_asked and longest > 2 * MAX_WAIT


def test_a_probe_that_is_due_does_not_end_a_pause() -> None:
    found = observed(1e-6, 1)
    found.limits([0], 0)
    found._pauses_until, found._sample_due, found._probe_due = found._step + 20, found._step + 100, found._step
    found._limit, found._model_price = 0, 0.5
    assert found._may_probe() and found.limits([0], 0) is None
    found.end_step(1.0, 0.0, 0.0)
    assert found.num_skippable() == 19


def test_sequences_that_rest_do_not_put_off_questions_about_others() -> None:
    found = observed(1e-6, 1)
    found._sample_due = found._step + 1000
    found.limits([0], 0)
    found.record_proposal(0, 8)
    found._seqs[0].limit, found._seqs[0].rests_until = 0, found._step + 100
    assert found.limits([0], 0) is None and found._rest_until > found._step
    assert found.limits([0, 1], 0) is not None
    found._asking.begin_step()
    found.record_proposal(1, 0)
    found.end_step(1.0, 0.0, 0.0)
    assert found.num_skippable() <= 1


def test_after_a_probe_without_an_offer_sequences_that_rest_are_again_among_all() -> None:
    found, sure, seq_ids = observed(1e-6, 4), False, list(range(4))
    found._sample_due = found._step + 1000
    found.limits(seq_ids, 0)
    usual, found._limit = found._limit, 0
    probe = found.limits(seq_ids, 0)
    assert probe is not None and sorted(probe.max_drafts) == [0, 0, 0, found.max_drafts]
    found.record_proposal(probe.max_drafts.index(found.max_drafts), 0)
    found.end_step(1.0, 1e-6, 0.0)
    found._limit = usual
    found._seqs = {seq_id: SeqState(PositionRates.none(8), 0, rests_until=found._step + 100) for seq_id in range(1, 4)}
    found.begin_step(1.0, load(4))
    ordinary = found.limits(seq_ids, 0)
    assert ordinary is not None and list(ordinary.max_drafts) == [usual, 0, 0, 0] and ordinary.sure == sure
    found.record_proposal(0, usual)
    found.end_step(2.0, 1e-6, 0.0)
    assert 0 < found._asking.share_of_all(sure) == found._asking.share(sure) / 4


def test_a_sequence_that_ended_is_forgotten_and_one_that_is_unknown_ignored() -> None:
    found = observed(1e-6, 1)
    found.limits([0], 0)
    found.record_proposal(0, 8)
    found.forget(0)
    found.record_verified(0, (0,), 8)
    assert not found._seqs


def test_who_comes_and_goes_does_not_put_off_the_next_question() -> None:
    made = engine(2e-4, 2e-5, 0.9, 8, answers=0.0)
    made.speedup(1000)
    asked = made.num_asked
    for step in range(1000):
        made.step()
        if step % 3 == 0:
            made.forget(step % 8)
    assert made.num_asked - asked >= 8 * 1000 / (MAX_WAIT + 1) - 8
