"""The queue that is kept in order comes to what sorting it anew at every look comes to, and asks for far fewer prices."""
import random
from math import inf

import pytest

from penstock.core.types import Status
from penstock.core.work import StepWork
from penstock.decide.scheduler.order.deadline import Deadline
from penstock.decide.scheduler.order.fcfs import Fcfs
from penstock.decide.scheduler.waiting import Waiting
from tests.decide.builders import CountedCosts, SteadyTimer, make_seq

WORK = 4.0


def costs():
    return CountedCosts(SteadyTimer(0.01, 0.001), 64, 16)


class Plain:
    """The same policy, said plainly: all is computed at every look."""

    def __init__(self, prices):
        self.prices = prices

    def in_order(self, seqs, now):
        return [seq.seq_id for seq in sorted(seqs, key=lambda seq: (self.key(seq, now), seq.seq_id))]

    def hopeless(self, seqs, now):
        """Those that no step has held."""
        return {seq.seq_id for seq in seqs if seq.first_scheduled_s is None and self.bound(seq) and not self.due(seq, now)[1]}

    def bound(self, seq):
        return not seq.deferred and (seq.ttft_slo_s, seq.tpot_slo_s, seq.e2e_slo_s) != (None, None, None)

    def key(self, seq, now):
        if seq.deferred:
            return 1, seq.arrival_s, seq.priority, seq.arrival_s
        due_s, feasible = self.due(seq, now) if self.bound(seq) else (inf, True)
        return int(not feasible), due_s, seq.priority, seq.arrival_s

    def due(self, seq, now):
        """(its place among deadlines, whether it can be met)."""
        size, more = len(seq.tokens), seq.max_len - seq.num_prompt - 1
        if seq.first_token_s is None:
            found = seq.num_cached if seq.num_preemptions == 0 else 0
            due_s = inf if seq.ttft_slo_s is None else seq.arrival_s + seq.ttft_slo_s
            if seq.e2e_slo_s is not None:
                alone_s = self.prices.prompt_s(seq.num_prompt, seq.num_prompt)
                spare_s = seq.e2e_slo_s - alone_s - max(more, 0) * self.prices.step_s(1, seq.num_prompt)
                due_s = min(due_s, seq.arrival_s + alone_s + spare_s / 2)
            prompt_s = self.prices.prompt_s(max(1, size - max(seq.num_computed, found)), size)
            left = max(seq.max_len - size - 1, 0)
            answer_s = left * self.prices.step_s(16, size + left // 2) / 16
            return due_s + WORK * (prompt_s + answer_s), now + prompt_s <= due_s
        tpot = inf if seq.tpot_slo_s is None else seq.tpot_slo_s
        if seq.e2e_slo_s is not None and more > 0:
            tpot = min(tpot, (seq.arrival_s + seq.e2e_slo_s - seq.first_token_s) / more)
        if tpot == inf:
            return inf, True
        affords = (seq.first_token_s + tpot * more - now) / (max(seq.max_len - size - 1, 0) + 1)
        return seq.first_token_s + tpot * (size - seq.num_prompt), self.prices.step_s(1, size) <= affords


class Play:
    """Sequences come, go, are preempted and deferred, time passes and prices move."""

    def __init__(self, seed):
        self.rng, self.now, self.count = random.Random(seed), 0.0, 0
        self.prices = costs()
        self.plain = Plain(self.prices)
        self.queue = Waiting(Deadline(self.prices, Deadline.Options(WORK)))
        self.seqs = {}

    def come(self):
        draw, slo = self.rng.uniform, self.rng.random
        seq = make_seq(
            self.count, [1] * self.rng.randint(1, 200), self.rng.randint(1, 40), arrival_s=self.now - draw(0, 0.2),
            priority=self.rng.randint(0, 1), ttft_slo_s=draw(0.05, 3) if slo() < 0.6 else None,
            tpot_slo_s=draw(0.005, 0.1) if slo() < 0.5 else None, e2e_slo_s=draw(0.2, 6) if slo() < 0.4 else None)
        seq.num_cached = self.rng.choice([0, 0, len(seq.tokens) // 2])
        self.count += 1
        self.push(seq)

    def push(self, seq):
        self.seqs[seq.seq_id] = seq
        self.queue.push(seq, self.now)

    def take(self):
        seq = self.seqs.pop(self.rng.choice(list(self.seqs)))
        self.queue.remove(seq)
        return seq

    def preempt(self):
        """One is let in and comes back, perhaps with tokens."""
        seq = self.take()
        seq.status, seq.num_preemptions = Status.WAITING, seq.num_preemptions + 1
        if self.rng.random() < 0.8:
            seq.first_scheduled_s = self.now
        if self.rng.random() < 0.6 and len(seq.tokens) < seq.max_len:
            seq.first_token_s = self.now if seq.first_token_s is None else seq.first_token_s
            seq.tokens.append(1)
        self.push(seq)

    def defer(self):
        seq = self.take()
        seq.deferred = True
        self.push(seq)

    def learn(self):
        ratio = self.rng.uniform(0.5, 2.0)
        for rows in self.rng.choices((1, 8, 64), k=self.rng.randint(1, 30)):
            self.prices.learn(StepWork(((rows, rows),)), ratio * (0.01 + 0.001 * rows))

    def act(self):
        self.now += self.rng.choice([0.0, self.rng.expovariate(20)])
        choice = self.rng.random()
        if choice < 0.4 or len(self.seqs) < 5:
            self.come()
        elif choice < 0.6:
            self.take()
        elif choice < 0.75:
            self.preempt()
        elif choice < 0.8:
            self.defer()
        elif choice < 0.85:
            self.learn()


@pytest.mark.parametrize("seed", range(25))
def test_order_and_hopeless_are_those_of_sorting_anew(seed):
    play, met, lost = Play(seed), 0, 0
    for _ in range(150):
        play.act()
        seqs = list(play.seqs.values())
        hopeless = {claim.seq.seq_id for claim in play.queue.hopeless(play.now) if claim.seq.first_scheduled_s is None}
        assert hopeless == play.plain.hopeless(seqs, play.now)
        assert [claim.seq.seq_id for claim in play.queue.claims(play.now)] == play.plain.in_order(seqs, play.now)
        assert play.queue.first(play.now).seq_id == play.plain.in_order(seqs, play.now)[0] == next(iter(play.queue)).seq_id
        met, lost = met + len(seqs) - len(hopeless), lost + len(hopeless)
    assert met > 500 and lost > 100 and play.prices.version > 0


def waiting(num, prices, order=None, **slo):
    queue = Waiting(order or Deadline(prices), prices)
    for number in range(num):
        queue.push(make_seq(number, [1] * (number % 90 + 1), 20, arrival_s=0.0, **slo), 0.0)
    return queue


def test_a_look_asks_for_no_price_while_prices_stay():
    prices = costs()
    queue = waiting(512, prices, e2e_slo_s=30.0)
    prices.num_asked, now = 0, 0.0
    while not queue.hopeless(now):
        assert len(queue.claims(now)) == 512
        now += 0.05
    assert now > 5.0 and prices.num_asked == 0
    queue.push(make_seq(600, [1] * 50, 20, arrival_s=now, e2e_slo_s=30.0), now)
    assert 0 < prices.num_asked <= 6
    queue.remove(queue.first(now))
    assert prices.num_asked <= 6 and len(queue) == 512


def test_all_are_priced_anew_when_prices_move():
    prices = costs()
    queue = waiting(3, prices, ttft_slo_s=0.5)
    assert not queue.hopeless(0.4)
    for _ in range(100):
        prices.learn(StepWork(((1, 1),)), 20 * 0.011)
    assert len(queue.hopeless(0.4)) == 3
    for _ in range(400):
        prices.learn(StepWork(((1, 1),)), 0.011)
    assert not queue.hopeless(0.41)


def test_whom_nothing_is_due_is_never_hopeless():
    prices = costs()
    for queue in (waiting(3, prices), waiting(3, prices, tpot_slo_s=0.1), waiting(3, None, Fcfs(), ttft_slo_s=0.1)):
        assert not queue.hopeless(1e9) and [claim.due_s for claim in queue.claims(1e9)] == [inf] * 3


def test_any_order_knows_who_is_hopeless():
    queue = waiting(5, costs(), Fcfs(), ttft_slo_s=0.5)
    queue.push(make_seq(9, [1], 20, arrival_s=0.0), 0.0)
    assert len(queue.hopeless(0.6)) == 5 and [seq.seq_id for seq in queue] == [0, 1, 2, 3, 4, 9]
