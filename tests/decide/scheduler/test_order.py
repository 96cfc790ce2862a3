import pytest

from penstock.core.errors import UsageError
from penstock.core.types import SamplingParams
from penstock.core.work import StepWork
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.counters import Counters
from penstock.decide.scheduler.limits import Limits
from penstock.decide.scheduler.live import Live
from penstock.decide.scheduler.order import TABLE
from penstock.decide.scheduler.order.deadline import Deadline
from penstock.decide.scheduler.order.fcfs import Fcfs
from penstock.decide.scheduler.order.priority import Priority
from penstock.decide.scheduler.order.shortest import Shortest
from penstock.decide.scheduler.queue import Queue
from penstock.decide.scheduler.waiting import Waiting
from tests.decide.builders import Rig, make_kv, make_seq


def order_of(order, seqs, now=10.0):
    running, waiting = Queue(order), Waiting(order)
    for queue in (running, waiting):
        for seq in seqs:
            queue.push(seq, now)
    found = [claim.seq for claim in waiting.claims(now)]
    assert running.some(list(running), now) == found and running.last(now) is found[-1] and waiting.first(now) is found[0]
    return [seq.seq_id for seq in found]


def test_first_come_first_served_and_the_id_among_those_who_came_together():
    seqs = [make_seq(2, [1], arrival_s=1.0), make_seq(0, [1], arrival_s=3.0), make_seq(1, [1], arrival_s=1.0)]
    assert order_of(Fcfs(), seqs) == [1, 2, 0]


def test_smaller_priority_first():
    seqs = [make_seq(0, [1], priority=1), make_seq(1, [1], priority=-1), make_seq(2, [1]), make_seq(3, [1], arrival_s=0.0)]
    assert order_of(Priority(), seqs) == [1, 3, 2, 0]


def test_shortest_first_by_prompt_and_answer():
    seqs = [make_seq(0, range(9), 9), make_seq(1, range(3), 20), make_seq(2, range(5), 3), make_seq(3, range(1), 7)]
    assert order_of(Shortest(), seqs) == [2, 3, 0, 1]


class Timer:
    """A second a token."""

    def seconds(self, work: StepWork) -> float:
        return float(work.num_tokens)


def deadline(work=0.0):
    return Deadline(StepCosts(Timer(), 16, 8), Deadline.Options(work))


def slo(seq_id, ttft, num_prompt=4, **rest):
    return make_seq(seq_id, range(num_prompt), arrival_s=0.0, ttft_slo_s=ttft, **rest)


def test_earliest_deadline_that_can_be_met_first_then_those_without_then_the_hopeless():
    seqs = [slo(0, None), slo(1, 30.0), slo(2, 20.0), slo(3, 13.0), slo(4, 5.0)]
    assert order_of(deadline(), seqs) == [2, 1, 0, 4, 3]


def test_of_two_deadlines_that_are_near_the_one_that_costs_less_goes_first():
    short, long = slo(0, 21.0, num_prompt=2), slo(1, 20.0, num_prompt=8)
    assert order_of(deadline(), [short, long]) == [1, 0] and order_of(deadline(work=1.0), [short, long]) == [0, 1]
    long.num_computed = 7  # what is left of it is less
    assert order_of(deadline(work=1.0), [short, long]) == [1, 0]
    with pytest.raises(UsageError, match="work must be 0 or above"):
        Deadline.Options(-1.0)


def test_what_is_computed_already_needs_no_time():
    seq, other = slo(0, 13.0), slo(1, 20.0)
    seq.num_computed = 2
    assert order_of(deadline(), [seq, other]) == [0, 1]
    assert order_of(deadline(), [slo(0, 13.0), other]) == [1, 0]


def test_after_the_first_token_the_next_one_has_a_deadline():
    def running(seq_id, tpot, num_output, num_new=10):
        seq = make_seq(seq_id, range(4), num_new, arrival_s=0.0, tpot_slo_s=tpot)
        seq.tokens += [0] * num_output
        seq.first_token_s = 2.0
        return seq

    # At 10 s and a second a token: due at 2 + 2 * 6 = 14, 2 + 3 * 4 = 14, none, hopeless (9 more tokens, the last due at 2 + 9 * 1.5).
    seqs = [running(0, 2.0, 6), running(1, 3.0, 3), running(2, None, 1), running(3, 1.5, 1), slo(4, 12.5, num_prompt=2)]
    assert order_of(deadline(), seqs) == [1, 4, 0, 2, 3]


def test_a_queue_notices_keys_that_vary_with_time():
    queue = Queue(deadline())
    urgent, late = slo(0, 10.0), slo(1, 50.0)
    queue.push(late, 0.0)
    queue.push(urgent, 0.0)
    assert queue.last(0.0) is late and queue.last(7.0) is urgent
    queue.remove(urgent)
    assert list(queue) == [late] and urgent not in queue and late in queue and len(queue) == 1


def test_some_are_looked_at_without_the_others():
    queue = Queue(deadline())
    late, urgent, begun = slo(0, 50.0), slo(1, 10.0), slo(2, 30.0)
    for seq in (late, urgent, begun):
        queue.push(seq, 0.0)
    assert queue.some([urgent, begun], 7.0) == [begun, urgent] and queue.begun(begun) < queue.begun(urgent)
    assert [seq.seq_id for seq in queue] == [1, 2, 0], "the others are where they were"
    assert queue.last(7.0) is urgent and queue.some([begun, late], 7.0) == [begun, late]


def test_forecasts_have_open_answers_in_order_whoever_looked_last():
    """How long each is expected to go on depends on its place (see `lengths`)."""
    order = deadline()
    live = Live(Queue(order), Waiting(order), Limits(8, 16), make_kv(), Counters())
    patient, hurried = [
        slo(i, 10.0 + i, params=SamplingParams(max_tokens=None), tpot_slo_s=tpot) for i, tpot in enumerate((50.0, 5.0))]
    for seq in (patient, hurried):
        live.running.push(seq, 0.0)
        seq.first_token_s, seq.num_computed = 1.0, seq.num_prompt
        seq.tokens.append(0)
    assert list(live.running) == [patient, hurried] and live.load(2.0).decodes == [hurried, patient]


class Watched(Deadline):
    """Keeps whose keys were asked for."""

    def __init__(self, costs):
        super().__init__(costs)
        self.looked_at = set()

    def key(self, claim, now):
        self.looked_at.add(claim.seq.seq_id)
        return super().key(claim, now)


@pytest.mark.parametrize(("num_blocks", "looks"), [(32, False), (12, True)])
def test_answers_are_put_in_order_only_where_there_is_not_room_for_all(num_blocks, looks):
    order = Watched(StepCosts(Timer(), 16, 8))
    rig = Rig(num_blocks, order=order)
    for i in range(4):
        rig.scheduler.add(slo(i, 40.0 + i, num_new=20, tpot_slo_s=10.0))
    while not all(seq.num_output for seq in rig.scheduler.seqs()):
        rig.step()
    order.looked_at.clear()
    while rig.step()[0] is not None and len(rig.scheduler.seqs()) == 4 and rig.scheduler.num_running == 4:
        pass
    assert bool(order.looked_at) == looks


@pytest.mark.parametrize("name", TABLE)
def test_every_order_serves_everybody(name):
    order = TABLE.load(name)
    rig = Rig(num_blocks=7, budget=8, order=deadline() if order.needs.step_timer else order())
    ttft, tpot = (None, 5.0, 10.0), (None, 1.5)
    seqs = [
        make_seq(i, range(20 * i, 21 * i + 3), 10, priority=-i, ttft_slo_s=ttft[i % 3], tpot_slo_s=tpot[i % 2]) for i in range(8)
    ]
    rig.run(*seqs)
    assert all(seq.num_output == 10 for seq in seqs)


def first_tokens(order, seqs):
    rig = Rig(max_num_seqs=1, order=order)
    rig.run(*seqs)
    return [seq.seq_id for seq in sorted(seqs, key=lambda s: s.first_token_s)]


def test_the_scheduler_obeys_the_order():
    def seqs():
        kinds = ((9, 50.0), (5, 40.0), (7, 1.0))  # prompt tokens, TTFT objective
        return [make_seq(i, [i] * n, arrival_s=float(i), priority=-i, ttft_slo_s=t) for i, (n, t) in enumerate(kinds)]

    assert first_tokens(Fcfs(), seqs()) == [0, 1, 2]
    assert first_tokens(Priority(), seqs()) == [2, 1, 0]
    assert first_tokens(Shortest(), seqs()) == [1, 2, 0]
    assert first_tokens(deadline(), seqs()) == [1, 0, 2]
