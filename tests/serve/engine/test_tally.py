"""An engine's time goes where it belongs, and all of it; what is named from it follows by the rules."""
from dataclasses import replace

import pytest

from penstock.core.clock import VirtualClock
from penstock.core.events import StepRecord
from penstock.core.hardware import Hardware
from penstock.core.work import StepWork
from penstock.serve.engine.binding import LIMITS, evidence, limit_of
from penstock.serve.engine.ledger import MAX_SIZES, Ledger, fine
from penstock.serve.engine.tally import BOUNDS, SLOW, Tally, shared_out

HARDWARE = Hardware("box", {1: 1000.0}, {"fp32": 100.0})  # 1,000 bytes and 100 operations a second


def step(began_s=0.0, seconds=1.0, compute=0.8, prefill=0, decode=1, *, ops=0, weights=0, kv=0, running=1, waiting=0, waits=None, drafts=0,
         waited=(), served=0, ended=0):
    rows = prefill + decode + drafts
    return StepRecord(
        1, began_s, seconds, compute, max(1, decode), prefill, decode, drafts, weight_bytes=weights, kv_bytes=kv, operations=ops,
        num_running=running, num_waiting=waiting, waits_for=waits, waited_s=waited, work=StepWork(((rows, rows),), 1),
        num_served=served, num_ended=ended)


def tally(wall=10.0, bound=None, waiting=None, **more) -> Tally:
    return Tally(wall, bound_s=bound or {}, waiting_s=waiting or {}, running_s=more.pop("running", wall), **more)


@pytest.mark.parametrize(("record", "wanted"), [
    (step(prefill=30, decode=10, ops=60, weights=100), {"prefill_compute": 0.6, "decode_compute": 0.2}),
    (step(prefill=1, decode=0, ops=20, weights=100), {"prefill_compute": 0.8}),
    (step(decode=4, ops=1, weights=300, kv=100), {"weights": 0.6, "kv": 0.2}),
    (step(decode=4, drafts=12, ops=70, weights=100), {"decode_compute": 0.8}),
    (step(decode=1, ops=1, weights=100), {"weights": 0.1 * SLOW, "kernels": 0.8 - 0.1 * SLOW}),
    (step(decode=1), {"kernels": 0.8}),
])
def test_the_time_of_a_step_belongs_to_what_binds_it(record: StepRecord, wanted: dict[str, float]) -> None:
    assert {bound: seconds for bound, seconds, _ in shared_out(record, HARDWARE, "fp32")} == pytest.approx(wanted)


def test_where_nothing_was_measured_nothing_is_claimed() -> None:
    assert list(shared_out(step(ops=60, weights=100), None, "fp32")) == [("unmeasured", 0.8, 0.0)]
    found = Tally(1.0)
    found.step(step(), None, "fp32")
    assert limit_of(found).name == "unmeasured" and "penstock limits" in limit_of(found).sentence


def test_drafting_is_told_apart_from_the_host() -> None:
    found, record = Tally(2.0), replace(step(0.0, 1.0, 0.25, weights=100), draft_seconds=0.5)
    ledger = Ledger(HARDWARE, "fp32", VirtualClock())
    for began_s in (0.0, 1.0):
        found.step(record, HARDWARE, "fp32")
        ledger.on_step(replace(record, began_s=began_s))
    assert found.bound_s == pytest.approx({"weights": 0.5, "drafting": 1.0, "host": 0.5}) and found.busy_s == pytest.approx(2.0)
    assert limit_of(found).name == "host_overhead" and limit_of(found).sentence == (
        "75% of the busy time is overhead: 25% goes into scheduling, sampling and delivery, 50% into drafting, "
        "0% into kernels that run far below any limit.")
    assert [each[-2:] for each in ledger.steps()] == [[0.5, 1]], "drafts are no part of what such a step takes"


def test_each_sequence_has_its_share_of_the_host() -> None:
    """So a full batch that the host binds gains little by more seats."""
    few, many = Tally(1.0), Tally(1.0)
    few.step(step(seconds=1.0, compute=0.0, decode=1), HARDWARE, "fp32")
    many.step(step(seconds=1.0, compute=0.0, decode=114, waiting=9, waits="seqs"), HARDWARE, "fp32")
    assert [evidence(each)["twice_the_batch"] for each in (few, many)] == pytest.approx([2 * 7 / 8, 2 * 120 / 234])
    assert limit_of(many).name == "host_overhead"


def test_experts_that_more_sequences_would_read_are_no_cost_that_they_would_share() -> None:
    found = Tally(1.0)
    for _ in range(2):
        found.step(replace(step(seconds=1.0, compute=1.0, weights=450, kv=50), more_weight_bytes=90), HARDWARE, "fp32")
    assert evidence(found)["twice_the_batch"] == pytest.approx(2 / (1.0 + 0.9 * 0.2 + 0.1))
    assert limit_of(found).sentence.endswith("once per step, for 1 sequences; twice as many would read 20% more of them.")


def slow_tally(kernels_s, rows):
    """Steps that take a second in the backend beside what each row takes there, far beyond the limits; 40 of each."""
    found = Tally(1.0)
    for count in rows * 40:
        seconds = kernels_s(count)
        found.step(step(seconds=seconds, compute=seconds, decode=count, ops=count * 0.01, weights=1), HARDWARE, "fp32")
    return found


@pytest.mark.parametrize(("kernels_s", "rows", "wanted"), [
    (lambda rows: 1.0, (4, 12), 2.0), (lambda rows: 0.1 * rows, (4, 12), 1.0), (lambda rows: 0.8 + 0.1 * rows, (4, 12), 4 / 3),
    (lambda rows: 2.0 - 0.1 * rows, (4, 12), 2.0), (lambda rows: 0.1 * rows, (7, 8, 9), 2.0),
], ids=["once", "by rows", "half of it", "less by rows", "not told apart"])
def test_kernels_that_take_longer_for_more_rows_are_no_cost_that_these_would_share(kernels_s, rows, wanted) -> None:
    found = slow_tally(kernels_s, rows)
    assert found.bound_s["kernels"] > 0.9 * found.busy_s and evidence(found)["twice_the_batch"] == pytest.approx(wanted, rel=0.02)


def test_a_few_slow_steps_say_nothing_of_rows() -> None:
    found = Tally(1.0)
    for rows in (4, 12):
        found.step(step(seconds=0.1 * rows, compute=0.1 * rows, decode=rows, weights=1), HARDWARE, "fp32")
    assert evidence(found)["twice_the_batch"] == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize(("ops", "kv", "wanted"), [
    (20, 0, 2.0), (50, 0, 2.0), (80, 0, 2 / 1.6), (100, 100, 2 / 1.818), (50, 100, 2 / 1.091)])
def test_more_sequences_are_past_the_ridge_where_arithmetic_takes_longer_than_reading(ops: int, kv: int, wanted: float) -> None:
    """1,000 bytes of weights take a second, 100 operations take another."""
    found = Tally(1.0)
    found.step(step(seconds=1.1, compute=1.1, decode=4, ops=ops, weights=1000, kv=kv), HARDWARE, "fp32")
    assert set(found.bound_s) <= {"weights", "kv", "host"} and evidence(found)["twice_the_batch"] == pytest.approx(wanted, rel=0.01)
    assert not found.more_s.get("weights")


def test_least_times_tell_what_was_reached() -> None:
    found = Tally(1.0)
    found.step(step(seconds=1.0, compute=0.9, weights=450), HARDWARE, "fp32")
    assert limit_of(found).name == "weight_bandwidth" and limit_of(found).reached == pytest.approx(0.5)
    assert evidence(found)["weights_reached"] == pytest.approx(0.5) and found.bound_s["host"] == pytest.approx(0.1)


def test_all_the_time_is_accounted_for() -> None:
    clock = VirtualClock()
    ledger = Ledger(HARDWARE, "fp32", clock)
    ledger.on_step(step(0.0, 1.0, weights=500, running=2))
    ledger.on_step(step(1.25, 1.0, weights=500, running=0, waiting=3, waits="batching"))  # 0.25 between steps while two run: the host's
    ledger.on_step(step(3.25, 1.0, weights=500, running=0))  # 1.0 in which three wait and nothing runs
    ledger.on_step(step(5.0, 1.0, weights=500, running=1))  # 0.75 idle
    clock.advance(8.0)
    found = ledger.tally()
    assert (found.wall_s, found.num_steps) == (8.0, 4) and set(found.bound_s) <= set(BOUNDS)
    assert found.bound_s == pytest.approx({"weights": 3.2, "host": 0.8 + 0.25}) and found.busy_s == pytest.approx(4.25)
    assert found.held_s == pytest.approx(1.0) and found.waiting_s == pytest.approx({"batching": 2.0})
    assert found.running_s == pytest.approx(2 + 0.5 + 1 + 1 + 1) and found.queued_s == pytest.approx(6.0)
    assert evidence(found)["idle_share"] == pytest.approx((8 - 4.25 - 1) / 8)


def test_a_batch_that_is_held_from_idle_is_no_idleness() -> None:
    clock = VirtualClock()
    ledger = Ledger(HARDWARE, "fp32", clock)
    ledger.on_step(replace(step(0.5, 1.0, weights=500, running=0, waited=(0.5,)), held_s=0.5))  # the first of all
    ledger.on_step(replace(step(4.0, 1.0, weights=500, running=0, waited=(1.0, 0.25)), held_s=1.0))  # 1.5 in which nobody is there
    ledger.on_step(replace(step(5.25, 1.0, weights=500, running=0, waited=(3.0,)), held_s=3.0))  # no longer than the pause
    clock.advance(6.25)
    found = ledger.tally()
    assert found.held_s == pytest.approx(0.5 + 1.0 + 0.25) and found.waiting_s == pytest.approx({"batching": found.held_s})
    assert found.queued_s == pytest.approx(0.5 + 1.25 + 3.0) and evidence(found)["idle_share"] == pytest.approx(1.5 / 6.25)


def test_dispersion_tells_users_from_arrivals() -> None:
    users, arrivals = Tally(2.0), Tally(2.0)
    users.arrive(3, 4)
    users.arrive(1, 4)
    for total in (1, 1, 2, 3):
        arrivals.arrive(1, total)
    assert users.dispersion == 0.0 and users.mean_found == 4 and arrivals.dispersion == pytest.approx((15 / 4 - 49 / 16) / 0.75)
    alone = Tally(1.0)
    alone.arrive(5, 1)
    assert alone.dispersion is None and Tally(1.0).dispersion is None


def test_arrivals_are_seen_between_steps() -> None:
    ledger = Ledger(HARDWARE, "fp32", VirtualClock())
    ledger.on_step(step(0.0, decode=2, running=2, waiting=1, waits="seqs", waited=(0.0, 0.0, 0.0)))  # three came
    ledger.on_step(step(1.0, decode=2, running=1, waiting=1, waits="seqs"))  # nobody came, one is done
    ledger.on_step(step(2.0, decode=2, running=2, waiting=1, waits="seqs", waited=(0.0,)))  # one came
    found = ledger.tally()
    assert (found.num_arrived, found.found, found.found_squared) == (4, 12, 36)
    ledger.on_step(step(9.0, decode=2, running=3, waiting=2, waited=(4.0, 1.0)))  # two came, one after the other, during a pause
    assert ledger.tally().found == 12 + 4 + 5


def test_who_comes_during_a_step_finds_all_that_it_began_with() -> None:
    ledger = Ledger(HARDWARE, "fp32", VirtualClock())
    ledger.on_step(step(0.0, decode=3, running=3, waited=(0.0, 0.0, 0.0)))
    ledger.on_step(step(1.0, decode=3, running=2))  # one is done, while another waits
    ledger.on_step(step(2.25, decode=3, running=3, waited=(0.5, 0.25)))  # one had come before the end of the step, one at it
    found = ledger.tally()
    assert (found.num_arrived, found.found) == (5, 9 + (3 + 1) + (2 + 2)) and found.queued_s == pytest.approx(0.75)


def test_requests_are_served_from_their_first_step_to_their_end() -> None:
    """However many sequences each has."""
    ledger = Ledger(HARDWARE, "fp32", VirtualClock())
    ledger.on_step(step(0.0, decode=4, running=4, served=1))
    ledger.on_step(step(1.25, decode=5, running=4, served=1, ended=1))
    ledger.on_step(step(2.5, decode=4, running=4, served=1))
    assert ledger.tally().served_s == pytest.approx(1.25 + 2.25 + 1.0)
    ledger.on_step(replace(step(5.0, decode=4, running=0, ended=1), rested=True))  # who was served had been aborted
    ledger.on_step(step(7.0, served=1))
    assert ledger.tally().served_s == pytest.approx(4.5 + 1.0 + 1.0)


def test_what_was_waited_before_a_step_is_counted_once() -> None:
    ledger = Ledger(HARDWARE, "fp32", VirtualClock())
    ledger.on_step(step(0.0, running=1, waited=(0.5,)))
    ledger.on_step(step(1.0, running=1, waiting=2, waits="seqs", waited=(0.75, 0.25)))
    ledger.on_step(step(2.5, running=3))  # both had waited for that step and the half second after it
    found = ledger.tally()
    assert found.queued_s == pytest.approx(0.5 + (0.75 + 1.5) + (0.25 + 1.5)) and found.waiting_s == pytest.approx({"seqs": 1.5})


def test_steps_of_every_size_are_kept_as_means() -> None:
    clock = VirtualClock()
    ledger = Ledger(HARDWARE, "fp32", clock)
    for number in range(100):
        ledger.on_step(step(number * 1.0, 0.5, 0.4, decode=1 + number % 2))
    one, two = sorted(ledger.steps())
    assert one == [1, 1, 1, 1, 1, 1.0, 50] and two == [2, 1, 1, 2, 3, 1.0, 49]  # until the next one: there was more to do
    for number in range(10_000):
        ledger.on_step(step(1e3 + number, 0.5, 0.4, decode=3))
    assert max(ledger.steps()) == [3, 1, 1, 3, 6, 1.0, 9_999]  # all of them, so that two tellings differ by the steps in between
    for number in range(2 * MAX_SIZES):
        ledger.on_step(step(1e5 + number, 0.5, 0.4, decode=8 + number * number))
    assert len(ledger.steps()) <= MAX_SIZES
    for number in range(3):
        ledger.on_step(step(1e6 + number, 0.5, 0.4, decode=5))
    assert 5 in [each[0] for each in ledger.steps()]  # a new size is not kept out by old ones: what was not seen for the longest time goes


def test_the_way_to_an_engine_with_nothing_to_do_is_no_queue() -> None:
    ledger = Ledger(HARDWARE, "fp32", VirtualClock())
    ledger.on_step(step(0.0, running=0, waited=(0.5,)))
    ledger.on_step(step(5.0, running=1, waited=(0.25, 0.125)))  # two came one after the other, to a step that began at once
    ledger.on_step(step(7.0, running=0, waited=(0.5,)))  # one ran
    ledger.on_step(replace(step(20.0, running=0, waited=(3.0,)), held_s=3.0))  # held: for company
    ledger.on_step(step(30.0, running=0))  # nobody came
    found = ledger.tally()
    assert (found.num_wakes, found.wake_s) == (1, 0.25)


def test_sizes_are_told_apart_by_a_quarter() -> None:
    assert [fine(count) for count in (0, 1, 7)] == [0, 1, 7] and len({fine(count) for count in range(16, 32)}) == 4
    sizes = [fine(count) for count in range(4096)]
    assert fine(20) == fine(23) != fine(24) and sizes == sorted(sizes)


@pytest.mark.parametrize(("found", "name"), [
    (tally(bound={"prefill_compute": 8.0, "weights": 2.0}), "prefill_compute"),
    (tally(bound={"decode_compute": 8.0, "weights": 2.0}), "decode_compute"),
    (tally(bound={"weights": 6.0, "kv": 3.0, "host": 1.0}), "weight_bandwidth"),
    (tally(bound={"weights": 3.0, "kv": 6.0, "host": 1.0}), "kv_bandwidth"),
    (tally(bound={"weights": 3.0, "kernels": 3.0, "host": 4.0}), "host_overhead"),
    (tally(), "arrival_limited"),
    (tally(bound={"weights": 7.0}), "arrival_limited"),
    (tally(bound={"weights": 9.5}), "weight_bandwidth"),  # hardly idle
    (tally(bound={"weights": 7.0}, waiting={"seqs": 5.0}), "queueing"),
    (tally(bound={"weights": 10.0}, waiting={"seqs": 9.0}), "queueing"),
    (tally(bound={"weights": 7.0}, waiting={"scored": 5.0}), "queueing"),
    (tally(bound={"weights": 10.0}, waiting={"seqs": 1.0}), "weight_bandwidth"),  # a passing queue
    (tally(bound={"weights": 7.0}, waiting={"batching": 6.0}, held_s=3.0), "queueing"),
    (tally(bound={"prefill_compute": 10.0}, waiting={"tokens": 9.0}), "prefill_compute"),  # a larger batch would not pay
    (tally(bound={"kv": 9.0, "weights": 1.0}, waiting={"seqs": 9.0}), "kv_bandwidth"),
    (tally(bound={"weights": 10.0}, waiting={"kv": 5.0, "seqs": 1.0}), "kv_capacity"),
    (tally(bound={"kv": 9.0, "prefill_compute": 1.0}, waiting={"kv": 5.0}, num_preempted=9, num_requests=10), "kv_capacity"),
    (tally(bound={"kv": 9.0, "prefill_compute": 1.0}, waiting={"kv": 5.0}, num_preempted=0, num_requests=10), "kv_bandwidth"),
])
def test_the_limit_is_named_by_the_rules(found: Tally, name: str) -> None:
    limit = limit_of(found)
    assert limit.name == name and limit.name in LIMITS and 0 <= limit.share <= 1 and limit.sentence.endswith(".")
    assert "%" in limit.sentence or not found.busy_s


@pytest.mark.parametrize(("reason", "grows"), [("seqs", True), ("scored", False)])
def test_a_larger_batch_is_said_to_give_more_where_it_could(reason: str, grows: bool) -> None:
    assert ("twice as many" in limit_of(tally(bound={"weights": 10.0}, waiting={reason: 9.0})).sentence) == grows


def test_a_step_under_way_belongs_to_what_comes_after() -> None:
    clock = VirtualClock()
    under_way: list[float | None] = [None]
    ledger = Ledger(HARDWARE, "fp32", clock, under_way_s=lambda: under_way[0])
    clock.advance(1.0)
    under_way[0] = clock.now()
    clock.advance(0.5)
    before = ledger.tally()
    assert (before.wall_s, before.busy_s) == (1.0, 0.0)
    clock.advance(0.5)
    ledger.on_step(step(1.0, 1.0, weights=500, running=1))
    clock.advance(0.25)
    assert (ledger.tally().wall_s, ledger.tally().busy_s) == (2.25, 1.0)  # it was told, and its end is still to be noted
    under_way[0] = clock.now()
    clock.advance(1.0)
    after = ledger.tally()
    assert after.wall_s == 2.25 and after.busy_s - before.busy_s <= after.wall_s - before.wall_s


def test_time_after_the_last_one_was_aborted_is_idle() -> None:
    clock = VirtualClock()
    ledger = Ledger(HARDWARE, "fp32", clock)
    ledger.on_step(step(0.0, 1.0, weights=500, running=2, waiting=1, waits="seqs", waited=(0.0, 0.0, 0.0)))
    ledger.on_step(replace(step(101.0, 1.0, weights=500, running=0, waited=(0.0,)), rested=True))
    clock.advance(102.0)
    found = ledger.tally()
    assert found.busy_s == pytest.approx(2.0) and found.running_s == pytest.approx(3.0) and found.queued_s == pytest.approx(1.0)
    assert found.waiting_s == pytest.approx({"seqs": 1.0}) and found.num_arrived == 4
    assert [each[-2] for each in ledger.steps()] == [1.0]  # seconds of a step
