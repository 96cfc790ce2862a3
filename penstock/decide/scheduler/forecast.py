"""Forecasts when a waiting prompt will have its first token, by running the scheduler's next steps ahead in strides.

Prompts fill steps in their order, besides one token of every running answer; answers are assumed to reach their maximum length, or where
clients gave none, lengths like those of others (see `lengths`). A prompt enters when there is a seat, room for its keys and values, and one
more answer would not make steps slower than all can afford; as long as it may not, those in progress go on, wherever they stand. A stretch
in which nothing changes is one stride, and the farther back in the queue, the more prompts are treated together, as if they entered and
ended as one: a sixteenth of those before them, but no more than run beside them. So the first 32 are forecast one by one; those behind them
cost a fraction of that, and come out a few percent early or late.
"""
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain, takewhile
from math import ceil, inf

from penstock.core.message import message
from penstock.core.types import Seq, Status
from penstock.decide.scheduler.costs import StepCosts, mean_context
from penstock.decide.scheduler.limits import Limits
from penstock.decide.scheduler.promise import Claim, affords_s, dues_s, num_answers, pace_s, tpot_s

TOGETHER = 16  # for so many prompts ahead, one is taken together with others
FAR = 1 << 62  # steps
RUNNING = Status.RUNNING  # which Python 3.11 looks up as slowly as a method


@dataclass(frozen=True, slots=True)
class Load:
    """What there is at `now`. `free_tokens`: room in the KV cache for sequences that enter."""

    now: float
    decodes: Sequence[Seq]  # running, one token behind
    prompts: Sequence[Claim]  # in order: of those that wait, and of those that run and are more than one token behind
    limits: Limits
    free_tokens: int


@message
class _Bunch:
    """Prompts that are computed one after the other and answered side by side; usually a single one."""

    seqs: Sequence[Seq]
    num_left: int  # tokens to compute, of all of them
    num_before: int  # in the cache, before those of one
    num_tokens: int  # in the cache afterwards, of all of them
    num_more: int  # output tokens of one after its first
    num_answers: int

    def tightest(self, now: float) -> Seq:
        """The one with the least time per token."""
        return self.seqs[0] if len(self.seqs) == 1 else min(self.seqs, key=lambda seq: tpot_s(seq, now))


class Forecast:
    """The steps from `load` on: answers that run are served, and prompts when `serve` names them. `reserve`: share of the time per token of
    answers that steps leave unused."""

    def __init__(self, costs: StepCosts, load: Load, reserve: float) -> None:
        self._costs = costs
        self._planned = 1 - reserve
        self._limits = load.limits
        self._context = mean_context([*load.decodes, *[claim.seq for claim in load.prompts]])
        self._now = load.now
        self._step = 0
        self._rows = 0  # of prompts in the step that is being filled
        self._start = 0  # tokens before them
        self._free = load.free_tokens
        prefills = [claim for claim in load.prompts if _runs(claim)]
        self._seats = load.limits.max_num_seqs - len(prefills)
        self.begun_s = load.now  # when the step begins that has the first row of the last of those that are served
        self._num_served = 0
        self._num_answers = len(load.decodes)
        # A heap: (last step, first, answers, tokens then, seconds affordable).
        self._ends: list[tuple[int, int, int, int, float]] = [(FAR, 0, 0, 0, inf)]
        self._bound: float | None = None  # seconds that a step may take while the same answers run
        self._most: int | None = None  # rows of prompts in such a step
        tokens = iter(costs.lengths.left([*load.decodes, *[claim.seq for claim in prefills]]))
        for seq in load.decodes:
            _, last_s = dues_s(seq, load.now if seq.first_token_s is None else seq.first_token_s)
            self._ends.append((next(tokens), 0, 1, len(seq.tokens), affords_s(seq, last_s, load.now)))
        heapify(self._ends)
        self._paces = sorted([affords for *_, affords in self._ends if affords < inf])  # those seconds, sorted
        # By seq_id, of those in progress that are not served yet: tokens to compute, and output tokens after the first.
        self._prefills = {claim.seq.seq_id: (claim.seq, claim.num_left, next(tokens) - 1) for claim in prefills}
        self._first_s: dict[int, float] = {}  # by seq_id: of prefills that were

    def serve(self, claims: Sequence[Claim]) -> None:
        """The next in the queue are served."""
        self.first_tokens_s(claims)

    def first_tokens_s(self, claims: Sequence[Claim]) -> list[float]:
        """When each of the next in the queue has its first token, if none that waits behind them is served. Those that are treated together
        have it at the same time."""
        return list(chain.from_iterable(self.served(claims)))

    def served(self, claims: Sequence[Claim]) -> Iterator[list[float]]:
        """The same, as they are served: of those that are treated together."""
        first, left = 0, waiting_rows(claims)
        while first < len(claims):
            together = self.next(claims, first)
            first_s, left = self.serve_next(together, left)
            yield [first_s] * len(together)
            first += len(together)

    def next(self, claims: Sequence[Claim], first: int) -> Sequence[Claim]:
        """Who is treated together with the first of those that are left in the queue."""
        num = 1 if _runs(claims[first]) else self.together
        together = claims[first : first + num]
        return list(takewhile(lambda claim: not _runs(claim), together)) if num > 1 and (self._prefills or self._first_s) else together

    def serve_next(self, together: Sequence[Claim], left: int) -> tuple[float, int]:
        """(when these, who are next, have their first tokens, rows of prompts that wait behind them). `left`: with theirs."""
        if _runs(together[0]):
            return self._go_on(together[0].seq.seq_id, left), left
        bunch = _bunch(together)
        left -= bunch.num_left
        tightest = bunch.tightest(self._now)
        self._enter(bunch, tightest)
        self._num_served += len(together)
        return self._run(bunch, tightest, left), left

    def first_token_s(self, claim: Claim, behind: Sequence[Claim]) -> float:
        """When the next in the queue would have its first token; `behind` come the others."""
        ahead = self.copied()
        bunch = _bunch((claim,))
        ahead._enter(bunch, claim.seq)
        ahead._compute(bunch.num_left, bunch.num_before)
        most, filled = ahead._num_rows, ahead._rows
        for other in behind:
            if filled >= most:
                break
            filled += ahead._left(other)
        return ahead._now + ahead._step_s(max(ahead._rows, min(filled, most)))

    def copied(self) -> "Forecast":
        """One that goes its own way from here."""
        ahead = Forecast.__new__(Forecast)
        ahead.__dict__.update(self.__dict__)  # copy.copy takes five times as long
        ahead._ends, ahead._paces = self._ends.copy(), self._paces.copy()
        ahead._prefills, ahead._first_s = self._prefills.copy(), self._first_s.copy()
        return ahead

    @property
    def now(self) -> float:
        """When the step begins that is being filled."""
        return self._now

    @property
    def together(self) -> int:
        """How many of the next in the queue are treated as one."""
        return max(1, min(self._num_served // TOGETHER, self._num_answers))

    @property
    def is_idle(self) -> bool:
        return not (self._num_answers or self._rows)

    def let_in(self, claims: Sequence[Claim]) -> None:
        """The next in the queue begin. From then on they are in progress."""
        bunch = _bunch(claims)
        self._enter(bunch, bunch.tightest(self._now))
        self._seats -= len(claims)
        self._free -= bunch.num_tokens
        self._prefills |= {claim.seq.seq_id: (claim.seq, claim.num_left, claim.num_more) for claim in claims}

    @property
    def num_in_progress(self) -> int:
        """Rows of prompts that have begun and are not served."""
        return sum([left for _, left, _ in self._prefills.values()])

    def seconds(self, behind: int) -> float:
        """Of the step that is being filled, with so many more rows of prompts as far as they fit."""
        rows = max(self._rows, min(self._rows + behind, self._num_rows))
        return self._step_s(rows) if rows or self._num_answers else 0.0

    def until(self, at_s: float, behind: int) -> int:
        """On to the first step that begins then or later. `behind`: rows of prompts that fill steps meanwhile. Returns those left."""
        while self._now < at_s:
            step_s, filled = self.seconds(behind), self._rows
            if not step_s:
                self._now = at_s
                break
            self._rows = max(filled, min(filled + behind, self._num_rows))
            more = self._rows - filled
            num = 1 if filled else min(ceil((at_s - self._now) / step_s), max(1, self._next_end - self._step))
            num = min(num, behind // more) if more else num
            self._advance(num)
            behind -= num * more
        return behind

    def next_step_s(self, claims: Sequence[Claim]) -> float:
        """How long the step that begins at `load.now` takes; rows of waiting prompts may fill it."""
        return self._step_s(min(self._rows + sum([claim.num_left for claim in claims]), max(self._rows, self._num_rows)))

    def _go_on(self, seq_id: int, behind: int) -> float:
        """When a prompt in progress has its first token. It may have been served already, while others could not enter."""
        if (prefill := self._prefills.pop(seq_id, None)) is not None:
            seq, left, num_more = prefill
            self._seats += 1
            self._free += len(seq.tokens)  # which it has taken already
            bunch = _Bunch((seq,), left, len(seq.tokens) - left, len(seq.tokens), num_more, num_answers(seq))
            self._first_s[seq_id] = self._run(bunch, seq, behind)
        return self._first_s[seq_id]

    def _go_on_meanwhile(self) -> None:
        """The first prompt in progress goes on until it is served or an answer ends: till then, who may not enter still may not."""
        seq_id, (seq, left, num_more) = next(iter(self._prefills.items()))
        most = self._num_rows
        room = max(most - self._rows, 0) + (self._next_end - self._step - 1) * most
        if left <= room:
            self._go_on(seq_id, 0)
            return
        if room:
            self._compute(room, len(seq.tokens) - left)
            self._prefills[seq_id] = seq, left - room, num_more
        self._skip()

    def _left(self, claim: Claim) -> int:
        """Tokens that are still to be computed of a prompt that was not named yet."""
        if not _runs(claim):
            return claim.num_left
        prefill = self._prefills.get(claim.seq.seq_id)
        return 0 if prefill is None else prefill[1]

    def _run(self, bunch: _Bunch, tightest: Seq, behind: int) -> float:
        """When the bunch, which is let in, has its first token (half of it, where it is several), if so many rows come behind it beside
        those of prompts in progress."""
        later = bunch.num_left // 2 if len(bunch.seqs) > 1 else 0  # answers of one bunch begin when half of it is computed
        self._compute(bunch.num_left - later, bunch.num_before)
        if self._prefills:
            behind += self.num_in_progress
        first_s = self._now + self._step_s(max(self._rows, min(self._rows + later + behind, self._num_rows)))
        self._begin(bunch, tightest)
        if later:
            self._compute(later, bunch.num_before)
        return first_s

    def _enter(self, bunch: _Bunch, tightest: Seq) -> None:
        """Runs until the prompts are let in: at the latest when nothing else runs."""
        num, own = len(bunch.seqs), pace_s(tightest, self._now, self._costs, self._planned)
        half = (num + 1) // 2  # if half of them wait for room, errors cancel out, as many being early as late
        room, answers = bunch.num_tokens * half // num, bunch.num_answers * half // num
        while self._num_answers or self._prefills:
            if self._num_answers + half <= self._seats and self._free >= room:
                bound = min(self._bound_s, own)
                if bound == inf or self._costs.step_s(self._num_answers + answers, self._context) <= bound:
                    return
            if self._prefills:
                self._go_on_meanwhile()
            else:
                self._skip()

    def _compute(self, left: int, start: int) -> None:
        """Fills steps with so many rows behind `start` others; the last of them is in the step that is then being filled."""
        end = start + left
        while True:
            self._start = end - left
            most = self._num_rows if self._most is None else self._most
            room = most - self._rows
            if self._start == start and room > 0:
                self.begun_s = self._now
            if left <= room:
                self._rows += left
                return
            if not most:
                self._skip()
                continue
            if room > 0:
                left -= room
                self._rows = most
            whole = min((left - 1) // most, self._next_end - self._step - 1)
            self._advance(1)
            if whole > 0:
                self._rows, self._start = most, end - left + whole * most // 2
                left -= whole * most
                self._advance(whole)

    def _begin(self, bunch: _Bunch, tightest: Seq) -> None:
        """The prompts are in the step that is being filled: from the next one on they gain a token a step."""
        if not bunch.num_more:
            return
        begun, affords = self._step + 1, tpot_s(tightest, self._now)
        heappush(self._ends, (begun + bunch.num_more, begun, bunch.num_answers, bunch.num_tokens, affords))
        self._free -= bunch.num_tokens
        self._num_answers += bunch.num_answers
        self._bound = self._most = None
        if affords < inf:
            insort(self._paces, affords)

    def _skip(self) -> None:
        """On to the end of the next answer, or of the step that is being filled."""
        self._advance(1 if self._rows else max(1, self._next_end - self._step))

    @property
    def _next_end(self) -> int:
        return self._ends[0][0]

    def _advance(self, num_steps: int) -> None:
        """So many steps like the one that is being filled; answers that end with them leave."""
        ends = self._ends
        self._now += num_steps * self._step_s(self._rows)
        self._step += num_steps
        self._rows = 0
        self._free -= self._num_answers * num_steps
        while ends[0][0] <= self._step:
            end, begun, num, num_tokens, affords = heappop(ends)
            self._free += num_tokens + num * (end - begun)
            self._num_answers -= num
            self._bound = self._most = None
            if affords < inf:
                del self._paces[bisect_left(self._paces, affords)]

    def _step_s(self, rows: int) -> float:
        return self._costs.step_s(self._num_answers, self._context, rows, self._start if rows else 0)

    @property
    def _bound_s(self) -> float:
        """Seconds that a step may take: what all can afford that could keep their pace with half as many running."""
        if self._bound is None:
            paces = self._paces
            helped = bisect_left(paces, self._costs.step_s((self._num_answers + 1) // 2, self._context)) if paces else 0
            self._bound = self._planned * paces[helped] if helped < len(paces) else inf
        return self._bound

    @property
    def _num_rows(self) -> int:
        """Of prompts, in a step."""
        if self._most is None:
            num, bound = self._num_answers, self._bound_s
            most = max(self._limits.max_num_batched_tokens - num, 0)
            self._most = most if bound == inf else self._costs.rows_within(num, self._context, bound, most)
        return self._most


def waiting_rows(claims: Sequence[Claim]) -> int:
    """Of their prompts, but for those that are in progress."""
    return sum([claim.num_left for claim in claims if not _runs(claim)])


def _runs(claim: Claim) -> bool:
    return claim.seq.status is RUNNING


def _bunch(claims: Sequence[Claim]) -> _Bunch:
    if len(claims) == 1:
        claim, seq = claims[0], claims[0].seq
        left, tokens = claim.num_left, len(seq.tokens)
        return _Bunch((seq,), left, tokens - left, tokens, claim.num_more, num_answers(seq))
    seqs, num = [claim.seq for claim in claims], len(claims)
    left, tokens = sum([claim.num_left for claim in claims]), sum([len(seq.tokens) for seq in seqs])
    return _Bunch(seqs, left, (tokens - left) // num, tokens, sum([claim.num_more for claim in claims]) // num, sum(map(num_answers, seqs)))
