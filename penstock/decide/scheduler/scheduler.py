"""Decides which sequences go into the next step, with how many tokens each, and commits the step's results.

One rule and no phases: a sequence's `num_computed` catches up with its tokens plus drafts. Chunked prefill, prefix hits,
speculation, forks and preemption by recompute all follow from it. Sequences that are one token behind go first, so that long
prompts do not hold up running answers. What they leave of the step goes to prompts in order, first to those in progress, as far as nobody
waits who is to pass them (`Order.begun`). Drafts leave prompts half of what there is beside a token for each answer.

Progress: the first sequence in the order never loses its blocks to another, every token that a step yields is kept when its sequence is
preempted, a sequence that runs alone may use the whole cache, and held ones that wait for a token make room when nothing else could go on.
So whatever `add` accepts is finished.
"""
from functools import partial
from itertools import chain, islice

from penstock.core.clock import Clock
from penstock.core.errors import OverloadedError
from penstock.core.types import PlannedSeq, Seq, SeqOutput, SeqResult, Status, StepPlan, StepResult
from penstock.decide.kv.manager import KVManager, alike
from penstock.decide.scheduler import steady
from penstock.decide.scheduler.books import check_books
from penstock.decide.scheduler.chunk import chunk
from penstock.decide.scheduler.chunking.contract import ChunkView
from penstock.decide.scheduler.counters import Counters
from penstock.decide.scheduler.ended import Ended
from penstock.decide.scheduler.entry import Batching, EntryView
from penstock.decide.scheduler.limits import Limits, check_servable
from penstock.decide.scheduler.live import Live
from penstock.decide.scheduler.pacing import Pacing
from penstock.decide.scheduler.promise import has_objectives
from penstock.decide.scheduler.queue import Key, Order, Queue
from penstock.decide.scheduler.step import Step, num_wanted
from penstock.decide.scheduler.tails import Tails
from penstock.decide.scheduler.taken import check_result, take_drafts, take_tokens
from penstock.decide.scheduler.waiting import Waiting


class Scheduler:
    """Sequences from `add` to their end. One thread; `schedule`, the step and `commit` take turns."""

    def __init__(self, limits: Limits, kv: KVManager, order: Order, batching: Batching, clock: Clock, pacing: Pacing | None = None) -> None:
        """`pacing`: serves objectives; None: they are ignored."""
        self.limits, self.kv, self.counters = limits, kv, Counters()
        self.ended = Ended()  # who was known to the runner
        self._order, self._batching, self._clock = order, batching, clock
        self._pacing = pacing or Pacing()
        self._num_steps = 0
        self._begin()

    def _begin(self) -> None:
        self.waits_for: str | None = None  # what the first in the queue that could be next lacked when last asked in; None: nobody waits
        self.refused: dict[int, OverloadedError] = {}  # by seq_id: who waited in vain; whoever reads it clears it
        self._seqs: dict[int, Seq] = {}  # waiting, running, or preempted while held: then in neither queue until `append`
        self._waiting = Waiting(self._order, self._pacing.costs)
        self._running = Queue(self._order)
        self._live = Live(self._running, self._waiting, self.limits, self.kv, self.counters)
        self._known: set[int] = set()  # to the runner
        self._copies: list[tuple[int, int]] = []  # of a step that was not committed
        self._tails = Tails()
        self._plan: StepPlan | None = None  # the step in flight
        self._num_entered = 0  # since last nothing ran
        self._began_s = 0.0

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._seqs) - len(self._running)

    def seqs(self) -> list[Seq]:
        """All that run or wait, in order of arrival."""
        return list(self._seqs.values())

    def seq(self, seq_id: int) -> Seq:
        """One that runs or waits. Raises KeyError for any other."""
        return self._seqs[seq_id]

    def has_work(self) -> bool:
        """Whether a step is due now or later (see `wake_s`)."""
        return len(self._waiting) > 0 or any(seq.todo() > 0 for seq in self._running)

    def wake_s(self) -> float:
        """When `schedule` has something to do at the latest, after it returned None with work left: a batch may wait for company."""
        now = self._clock.now()
        return max(now, self._batching.opens_s(self._view(now))) if len(self._waiting) else now

    def add(self, seq: Seq) -> None:
        """Takes in a new sequence. Raises RequestError, with the number that would fit, when the KV cache can never hold it or its
        objectives can never be met, and OverloadedError when they cannot be met now."""
        self._check_new(seq)
        if has_objectives(seq):
            self._pacing.check(seq, self._live, self._clock.now())
        self._take_in(seq)

    def fork(self, parent_id: int, child: Seq, num_tokens: int) -> None:
        """Takes in a sequence that shares the first `num_tokens` computed tokens of another and runs at once, beyond max_num_seqs
        if need be. Where the other has ended or lost its blocks, the child is added like any other."""
        self._check_new(child)
        parent = self._seqs.get(parent_id)
        if parent is None or parent not in self._running:
            self._take_in(child)
            return
        if num_tokens >= len(child.tokens) and not child.held:
            raise ValueError(f"at most {len(child.tokens) - 1} tokens of sequence {child.seq_id} can be shared, not {num_tokens}")
        self.kv.fork(parent, child, num_tokens)
        self._seqs[child.seq_id] = child
        self._enter(child, self._clock.now())

    def rebase(self, seq_id: int, parent_id: int, num_shared: int) -> None:
        """A held sequence goes on as a copy of another one: behind its first `num_shared` tokens, which both have, it takes the other's,
        with their keys and values. Raises ValueError unless both wait for a token, are as long and begin alike, with their whole prompt."""
        seq, parent = self._seqs[seq_id], self._seqs[parent_id]
        fits = len(seq.tokens) == len(parent.tokens) and seq.num_prompt <= num_shared and alike(seq, parent, num_shared)
        if not (fits and all(map(self._waits_for_token, (seq, parent)))):
            raise ValueError(f"sequence {seq_id} cannot go on as {parent_id}: both must wait for a token, with one prompt and length")
        self._tails.change(seq, num_shared, parent.tokens)
        if parent in self._running:
            self.kv.fork(parent, seq, len(parent.tokens))
            if seq not in self._running:
                self._enter(seq, self._clock.now())
        elif seq in self._running:
            self.kv.fork(seq, seq, num_shared)  # the rest is computed again

    def append(self, seq_id: int, token: int) -> None:
        """Appends a token to a held sequence. Raises ValueError when the sequence is not held or full."""
        seq = self._seqs[seq_id]
        if not seq.held or len(seq.tokens) >= seq.max_len:
            raise ValueError(f"sequence {seq_id} takes no token: it is {'full' if seq.held else 'not held'}")
        seq.tokens.append(token)
        if seq not in self._running and seq not in self._waiting:
            self._waiting.push(seq, self._clock.now())

    def finish(self, seq_id: int, reason: str) -> None:
        """Ends a sequence and frees its blocks now; what a step in flight finds for it is dropped. Unknown ids are ignored."""
        seq = self._seqs.pop(seq_id, None)
        if seq is None:
            return
        if seq in self._running:
            self._running.remove(seq)
            self.kv.free(seq)
        elif seq in self._waiting:
            self._waiting.remove(seq)
        seq.status, seq.finish_reason = Status.FINISHED, reason
        self._pacing.finished(seq)
        seq.drafts, seq.draft_parents = [], None
        self._tails.forget(seq_id)
        if seq_id in self._known:
            self.ended.add(seq)
            self._known.remove(seq_id)

    def reset(self) -> None:
        """Forgets all sequences, and all that is cached, whatever state an interrupted call has left; counts go on."""
        planned = (*self._plan.finished, *[each.seq_id for each in self._plan.seqs]) if self._plan is not None else ()
        self.ended.reset((*self._known, *planned))
        self.kv.reset()
        self._pacing.ended(None)
        self._begin()

    def schedule(self) -> StepPlan | None:
        """The next step, or None when there is nothing to compute now. A step that was never committed is planned again."""
        now = self._clock.now()
        self._take_back_plan()
        self._pacing.began(now)
        for seq, refusal in self._pacing.given_up(self._live, now):
            self.refused[seq.seq_id] = refusal
            self.finish(seq.seq_id, "abort")
        step = Step(self.limits.max_num_seqs, self.limits.max_num_batched_tokens)
        self.waits_for = None
        self._plan_running(step, now)
        if not step.planned or not step.num_preempted:
            self._let_in(step, now)
        else:
            self.waits_for = "kv"
        while not step.planned and len(self._waiting) and len(self._running):
            # All that run are held and wait for a token, which may depend on one that waits for their blocks.
            self._preempt(self._running.last(now), step, now)
            self.waits_for = None
            self._let_in(step, now)
        if not step.planned:
            return None
        for planned in step.planned.values():
            if planned.new is not None:
                self._known.add(planned.seq_id)
                seq = self._seqs[planned.seq_id]
                if seq.first_scheduled_s is None:
                    seq.first_scheduled_s = now
        self._copies.extend(chain.from_iterable(step.copies.values()))
        tails = self._tails.of(step.planned, self._seqs)
        self._plan = StepPlan(self._num_steps, tuple(step.planned.values()), tuple(self._copies), *self.ended.told(), tails)
        self._num_steps += 1
        self._copies.clear()
        self.ended.clear()
        return self._plan

    def steady_steps(self, within: int = steady.FAR) -> int:
        """How many of the next steps, up to so many, are certain to be alike: no sequence enters or ends (see `steady`)."""
        return steady.num_steps(self._live, self._clock.now(), self._order.costs is not None, within) if self._plan is None else 0

    def run_steady(self, num_steps: int, token: int) -> None:
        """Makes this many steady steps at once, without plans: every running sequence gains `token` in each."""
        self._pacing.ended(None)
        steady.run(list(self._running), self.kv, num_steps, token)

    def commit(self, plan: StepPlan, result: StepResult) -> list[SeqOutput]:
        """Takes in what the step found: appends tokens, ends sequences. One that ends with its first tokens while its request asks for
        several answers is left to be forked and then finished. Raises ValueError if result and plan do not belong together."""
        check_result(self._plan, plan, result)
        self._plan = None
        self._tails.commit(plan, result.asks)
        outputs = []
        for planned, found in zip(plan.seqs, result.seqs, strict=True):
            if (seq := self._seqs.get(planned.seq_id)) is None:
                continue
            if found.prompt_logprobs:
                seq.num_scored = max(planned.start, planned.num_scored) + len(found.prompt_logprobs)
            if planned.samples and seq.first_token_s is None:
                seq.first_token_s = self._clock.now()
            if planned.samples and not (seq.held or seq.wants_embedding):
                outputs.append(self._commit_tokens(seq, planned, found))
            elif (output := self._commit_computed(seq, planned, found)) is not None:
                outputs.append(output)
        self._pacing.ended(result.work if len(self._running) or len(self._waiting) else None)
        return outputs

    def check_integrity(self) -> None:
        """Raises IntegrityError if the queues, the states of sequences or the KV cache contradict each other."""
        check_books(self._seqs, self._live)

    def _check_new(self, seq: Seq) -> None:
        if seq.seq_id in self._seqs:
            raise ValueError(f"sequence {seq.seq_id} is known already")
        check_servable(seq, self.kv)

    def _waits_for_token(self, seq: Seq) -> bool:
        """Whether `append` is to come, and not a step."""
        return seq.held and (seq.todo() == 0 if seq in self._running else seq not in self._waiting)

    def _view(self, now: float) -> EntryView:
        return EntryView(now, len(self._running), self._num_entered, self._began_s, self._waiting)

    def _take_in(self, seq: Seq) -> None:
        seq.status = Status.WAITING
        self._seqs[seq.seq_id] = seq
        self._waiting.push(seq, self._clock.now())

    def _enter(self, seq: Seq, now: float) -> None:
        if not len(self._running):
            self._num_entered, self._began_s = 0, now
        self._num_entered += 1
        seq.status = Status.RUNNING
        self._running.push(seq, now)

    def _take_back_plan(self) -> None:
        """Recovers from a step that was planned but not committed: what it told the runner will be told again."""
        if self._plan is not None:
            self.ended.give_back(self._plan)
            self._copies.extend(self._plan.copies)
            self._known.difference_update(planned.seq_id for planned in self._plan.seqs if planned.new is not None)
            self._plan = None

    def _plan_running(self, step: Step, now: float) -> None:
        running = list(self._running)
        decodes = [seq for seq in running if len(seq.tokens) - seq.num_computed == 1]
        prefills = [seq for seq in running if len(seq.tokens) - seq.num_computed > 1] if len(decodes) < len(running) else []
        room = min(step.num_seqs_left, step.num_tokens_left, self.kv.num_allocatable) - bool(prefills)
        if len(decodes) > room or any(seq.drafts for seq in decodes):
            decodes = self._running.some(decodes, now)
        prefills = self._running.some(prefills, now)
        view = ChunkView(now, decodes, prefills, partial(self._live.prompts, now))
        self._plan_decodes(view, step)
        if prefills or len(self._waiting):
            step.num_tokens_left = self._pacing.chunking.num_rows(view.left() if step.num_preempted else view, step.num_tokens_left)
        for seq in prefills:
            if not step.num_preempted:
                self._let_in(step, now, self._running.begun(seq))
            self._plan_seq(seq, step, now, 0)

    def _plan_decodes(self, view: ChunkView, step: Step) -> None:
        """Answers that run. Of forks there may be more than seats; the one that the first prompt in progress has is not theirs."""
        most = min(step.num_seqs_left, step.num_tokens_left)
        if view.prefills and len(view.decodes) >= most > 1:
            most -= 1
        seated = view.decodes[:most]
        drafts = any(seq.drafts for seq in seated)
        kept = self._kept_rows(view, step.num_tokens_left - len(seated)) if drafts else 0
        reserved = range(len(seated) - 1 + kept, kept - 1, -1)  # each keeps a token of the budget
        for seq, is_ready, num_reserved in zip(seated, self.kv.ready(seated), reserved, strict=True):
            if is_ready and not seq.drafts and seq.status is Status.RUNNING:
                step.add_next(seq, seq.seq_id not in self._known)
            else:
                self._plan_seq(seq, step, view.now, num_reserved)

    def _kept_rows(self, view: ChunkView, most: int) -> int:
        """Of `most` rows those that drafts leave to prompts: half of them, where prompts that run or may enter can have so many."""
        half, wanted = (most + 1) // 2, num_wanted(view.prefills)
        if wanted < half and len(self._waiting) and len(self._running) < self.limits.most_seqs:
            first = self._waiting.first(view.now)
            if self._barred(first, view.now) is None and self.kv.fits(first):
                wanted = num_wanted(chain(view.prefills, islice(self._waiting, self.limits.most_seqs - len(self._running))))
        return self._pacing.chunking.num_rows(view, min(wanted, half))

    def _plan_seq(self, seq: Seq, step: Step, now: float, num_reserved: int) -> None:
        """Plans what the budget less `num_reserved` allows of a running sequence; those last in order lose their blocks to make room."""
        budget = step.room(seq, num_reserved)
        if budget < 1 or step.num_seqs_left < 1 or seq.status is not Status.RUNNING:
            return
        num_tokens, num_drafts = chunk(len(seq.tokens) - seq.num_computed, len(seq.drafts), budget)
        copies = self.kv.grow(seq, num_tokens)
        if copies is None and num_drafts:
            num_tokens, num_drafts = num_tokens - num_drafts, 0
            copies = self.kv.grow(seq, num_tokens)
        while copies is None:
            if len(self._running) == 1 and (copies := self.kv.grow(seq, num_tokens, break_pins=True)) is not None:
                break
            victim = self._running.last(now)
            self._preempt(victim, step, now)
            if victim is seq:
                return
            copies = self.kv.grow(seq, num_tokens)
        step.add(seq, num_tokens, num_drafts, copies, seq.seq_id not in self._known)

    def _preempt(self, seq: Seq, step: Step, now: float) -> None:
        """The sequence loses its blocks and computes its tokens again later. A held one that has nothing to compute waits for `append`."""
        waits_for_token = self._waits_for_token(seq)
        step.drop(seq)
        step.num_preempted += 1
        self._running.remove(seq)
        self.kv.free(seq)
        seq.drafts, seq.draft_parents = [], None
        seq.status = Status.WAITING
        seq.num_preemptions += 1
        self.counters.preemptions += 1
        if not waits_for_token:
            self._waiting.push(seq, now)

    def _let_in(self, step: Step, now: float, before: Key | None = None) -> None:
        """Takes in who waits, in order, until one lacks something; with `before`, only those with smaller keys."""
        while len(self._waiting) and self.waits_for is None:
            seq = step.next(self._waiting, now)
            if seq is None:
                self.waits_for = "scored"
                return
            if before is not None and self._waiting.key(seq) >= before:
                return
            self.waits_for = self._lacks(seq, step, now)
            if self.waits_for is not None:
                return
            self._waiting.remove(seq)
            self._enter(seq, now)
            self._plan_seq(seq, step, now, 0)
            if seq.seq_id not in step.planned:
                self.waits_for = "kv"

    def _lacks(self, seq: Seq, step: Step, now: float) -> str | None:
        """What keeps one that waits from entering: seats, the step's tokens, the batching mode, the pace of running sequences, blocks.
        None: nothing, and its blocks are allocated."""
        if len(self._running) >= self.limits.most_seqs or not step.num_seqs_left:
            return "seqs"
        if step.room(seq, 0) < 1:
            return "tokens"
        barred = self._barred(seq, now)
        return barred or (None if self.kv.admit(seq, alone=not len(self._running)) else "kv")

    def _barred(self, seq: Seq, now: float) -> str | None:
        """What keeps it from entering though there is room for it."""
        if not self._batching.may_enter(seq, self._view(now)):
            return "batching"
        if len(self._running) and not self._pacing.chunking.may_start(seq, self._running, now):
            return "tpot"
        return None

    def _commit_computed(self, seq: Seq, planned: PlannedSeq, found: SeqResult) -> SeqOutput | None:
        """Commits a step that appends no token: it is not the last of the prompt, or its token is not for the scheduler to append."""
        seq.num_computed = planned.start + len(planned.tokens)
        self.kv.commit(seq)
        if not planned.samples:
            return SeqOutput(seq.seq_id, prompt_logprobs=found.prompt_logprobs) if found.prompt_logprobs else None
        if seq.wants_embedding:
            self.finish(seq.seq_id, "stop")
        return SeqOutput(seq.seq_id, (), (), found.prompt_logprobs, found.candidates, found.embedding, seq.finish_reason)

    def _commit_tokens(self, seq: Seq, planned: PlannedSeq, found: SeqResult) -> SeqOutput:
        end, check = take_tokens(seq, planned, found)
        if check is not None:
            self.counters.drafted_tokens += planned.num_drafts
            self.counters.accepted_tokens += check.num_accepted
        if seq.num_computed // self.kv.block_size > planned.start // self.kv.block_size:
            self.kv.commit(seq)
        if end.reason is not None:
            seq.stop_token_id = end.stop_token_id
            if planned.num_output or seq.params.n == 1:
                self.finish(seq.seq_id, end.reason)
        else:
            if planned.num_drafts:
                self.kv.truncate(seq)
            if found.drafts:
                take_drafts(seq, found)
        kept = end.num_kept
        return SeqOutput(seq.seq_id, found.tokens[:kept], found.logprobs[:kept], found.prompt_logprobs, (), None, end.reason, check)
