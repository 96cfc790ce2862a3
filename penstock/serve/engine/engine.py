"""The engine: requests in, one step at a time, deltas out. One thread; `loop.py` runs it on one of its own, `LLM` in the caller's."""
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.compute.decoding.draw import mixed
from penstock.core.clock import Clock
from penstock.core.drafting import Drafting, DraftTally
from penstock.core.errors import PenstockError, RequestError
from penstock.core.events import StepRecord
from penstock.core.message import message
from penstock.core.types import Seq, SeqOutput, StepPlan, StepResult
from penstock.decide.kv.manager import looks_up
from penstock.decide.scheduler.limits import check_servable
from penstock.serve.engine.desk import Answer, Desk, seed_of
from penstock.serve.engine.repeats import Repeats
from penstock.serve.engine.requests import Delta, Gauges, Request, failed
from penstock.serve.engine.sampled import Sampled
from penstock.serve.engine.searched import Searched
from penstock.serve.engine.watch import Watch

log = logging.getLogger("penstock.engine")


class Runner(Protocol):
    def execute(self, plan: StepPlan) -> StepResult: ...


class Listener(Protocol):
    """Is notified of what happens, on the engine's thread."""

    def on_step(self, record: StepRecord) -> None: ...

    def on_queue(self, seconds: float) -> None:
        """A request was scheduled into its first step `seconds` after it arrived."""
        ...


class NoListener:
    def on_step(self, record: StepRecord) -> None:
        pass

    def on_queue(self, seconds: float) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Facts:
    """What the engine serves."""

    model_name: str
    max_model_len: int  # tokens, prompt and output
    vocab_size: int
    seed: int | None = None  # seeds requests that bring none
    compute_type: str = "fp32"  # of the backend: fp32, bf16, int16 or int8


class Engine:
    def __init__(self, facts: Facts, desk: Desk, runner: Runner, clock: Clock, listener: Listener | None = None) -> None:
        self.facts = facts
        self.clock = clock
        self._desk = desk
        self._scheduler = desk.scheduler
        self._runner = runner
        self._listener: Listener = listener or NoListener()
        self._watch: Watch | None = None
        self._lost: set[str] = set()  # figures that could not be taken
        self._answers: dict[str, Answer] = {}
        self._queued: dict[str, Seq] = {}  # first sequences that no step has held yet
        self._came: dict[str, Seq] = {}  # since the last step: by request, the first sequence
        self._left_s: list[float] = []  # how long those waited who came since then and were aborted
        self._num_unseeded = 0
        self._num_served = 0  # requests in the step, or in an earlier one, that have not ended
        self._rested = False  # since the last step there was a time without work
        self._held_since_s: float | None = None  # requests wait, and no step could be planned
        self._held_s = 0.0  # so since the last step, until then
        self._is_torn = False  # a call changes the books, or was interrupted while it did
        self.under_way_s: float | None = None  # when the step that is computed now began; may be read on any thread
        kv = desk.scheduler.kv
        self.repeats = None if kv.prefix_cache else Repeats(kv.block_size, kv.num_total)
        self._refused: list[tuple[str, RequestError]] = []

    def check(self, request: Request) -> None:
        """Raises RequestError, with the numbers, for a request that can never be served. May be called from any thread."""
        check_servable(self._first_seq(request, seq_id=-1, seed=0), self._scheduler.kv)

    def add(self, request: Request) -> None:
        """Queues a request. Raises RequestError for one that can never be served, whose id is in use, or that fails here, OverloadedError
        for one that could not be served in time."""
        if request.request_id in self._answers:
            raise RequestError(f"request id {request.request_id!r} is in use", "request_id")
        try:
            seq = self._first_seq(request, self._desk.next_id(), self._seed(request))
            answer = self._answer(request, seq)
        except PenstockError:
            raise
        except BaseException as error:
            raise failed(error) from error
        was_torn, self._is_torn = self._is_torn, True
        try:
            answer.start()
        except RequestError:  # nothing has changed
            self._is_torn = was_torn
            raise
        if self.repeats is not None and looks_up(request.params):
            self.repeats.add(request.token_ids, request.salt)
        self._answers[request.request_id] = answer
        self._queued[request.request_id] = self._came[request.request_id] = seq
        self._is_torn = was_torn

    def abort(self, request_id: str) -> None:
        """Frees at once what the request holds; unknown ids are ignored."""
        was_torn, self._is_torn = self._is_torn, True
        self._abort(request_id)
        self._is_torn = was_torn

    def clear(self) -> None:
        """Ends all requests without an answer. Where a call was interrupted (Ctrl-C, no memory left), even one of this, the books may
        be wrong, and keys and values in the cache, too: they begin anew, with an empty prefix cache."""
        if not self._is_torn:
            for request_id in list(self._answers):
                self.abort(request_id)
            return
        self._scheduler.reset()
        self._desk.reset()
        for each in (self._answers, self._queued, self._came):
            each.clear()
        self._left_s.clear()
        self._refused.clear()
        self.under_way_s = self._held_since_s = None
        self._rested, self._is_torn = True, False

    def _abort(self, request_id: str) -> None:
        answer = self._answers.pop(request_id, None)
        self._queued.pop(request_id, None)
        if (seq := self._came.pop(request_id, None)) is not None:
            self._left_s.append(self.clock.now() - seq.arrival_s)
        if answer is not None:
            for seq in answer.seqs():
                self._desk.finish(seq, "abort")
            if not self._scheduler.has_work():
                self._rested = True
                self._let_go(self.clock.now())

    def has_work(self) -> bool:
        return self._scheduler.has_work()

    def num_requests(self) -> int:
        return len(self._answers)

    def wake_s(self) -> float:
        """When the next step is due at the latest, on the engine's clock."""
        return self._scheduler.wake_s()

    def step(self, meanwhile: Callable[[], None] | None = None) -> list[tuple[str, Delta]] | None:
        """Computes one step: (request id, delta) in the order of the plan. None when there is nothing to compute now. After whatever it
        raises, `clear` comes before the next.

        `meanwhile` is called when the step is planned, just before it is computed: what it sets going on other threads does not wait
        for this one.
        """
        was_torn, self._is_torn = self._is_torn, True
        began = self.under_way_s = self.clock.now()
        try:
            deltas = self._step(began, meanwhile)
        finally:
            self.under_way_s = None
        self._is_torn = was_torn
        return deltas

    def _step(self, began: float, meanwhile: Callable[[], None] | None) -> list[tuple[str, Delta]] | None:
        counters = self._scheduler.counters
        num_preempted = counters.preemptions
        plan = self._scheduler.schedule()
        if self._scheduler.refused:
            self._refuse()
        if plan is None:
            if self._held_since_s is None and self._scheduler.has_work():
                self._held_since_s = began
            return None
        self._let_go(began)
        queued_s = self._take_begun(plan) if self._queued else ()
        self._num_served = len(self._answers) - len(self._queued)
        if self._watch is not None:
            try:
                self._watch.on_plan(plan, self._scheduler)
            except Exception:
                self._lose("what a watch sees of a plan")
        census = count(plan)
        if meanwhile is not None:
            meanwhile()
        result = self._runner.execute(plan)
        outputs = self._scheduler.commit(plan, result)
        deltas, drafting = self._collect(outputs)
        num_preempted = counters.preemptions - num_preempted
        record = self._record(census, result, began, drafting, num_preempted)
        try:
            for seconds in queued_s:
                self._listener.on_queue(seconds)
            self._listener.on_step(record)
        except Exception:
            self._lose("the metrics of a step")
        if self._watch is not None:
            try:
                self._watch.on_step(plan, outputs, record)
            except Exception:
                self._lose("what a watch sees of a step")
        return deltas

    def watch(self, watch: Watch | None) -> None:
        """Shows each step to `watch` from now on; None stops that."""
        self._watch = watch

    def look(self, watch: Watch) -> None:
        """Renews what `watch` sees of the sequences and the KV cache."""
        try:
            watch.look_at(self._scheduler, self.clock.now())
        except Exception:
            self._lose("a watch's look")

    def take_refused(self) -> list[tuple[str, RequestError]]:
        """Requests that were queued and have ended without an answer, because it would have come too late, or amidst one that could not be
        made. Each is returned once."""
        refused, self._refused = self._refused, []
        return refused

    def _refuse(self) -> None:
        for seq_id, refusal in self._scheduler.refused.items():
            request_id = self._desk.owners[seq_id].request_id
            self._abort(request_id)
            self._refused.append((request_id, refusal))
        self._scheduler.refused.clear()

    def gauges(self) -> Gauges:
        kv, counters = self._scheduler.kv, self._scheduler.counters
        return Gauges(
            self._scheduler.num_running, self._scheduler.num_waiting, kv.num_used, kv.num_total, kv.num_cached, counters.refused,
            counters.deferred)

    def check_integrity(self) -> None:
        self._scheduler.check_integrity()

    def room(self, num_prompt: int, held: bool = False) -> int:
        """Tokens that the context and the KV cache leave to an answer; less than 1 where the prompt itself does not fit. `held`: of a beam
        search; else the last token's keys and values are never needed."""
        return min(self.facts.max_model_len, self._scheduler.kv.num_tokens + (not held)) - num_prompt

    def _first_seq(self, request: Request, seq_id: int, seed: int) -> Seq:
        params, num_prompt, most = request.params, len(request.token_ids), self.facts.max_model_len
        if params.best_of not in (None, params.n) or params.scorer is not None or params.self_consistency is not None:
            raise RequestError("the engine gives all answers that it makes: the best are chosen above it (selection.py)", "best_of")
        if num_prompt + (not request.wants_embedding) > most:
            raise RequestError(
                f"the prompt has {num_prompt} tokens, but this model is served with a context of {most} tokens"
                f"{'' if request.wants_embedding else ', one of which the answer needs'}", "prompt", code="context_length_exceeded")
        if (largest := max(request.token_ids, default=0)) >= self.facts.vocab_size:
            raise RequestError(
                f"the prompt holds token {largest}, which the tokenizer has but the model, with {self.facts.vocab_size} tokens, does not",
                "prompt")
        if params.max_tokens is not None and num_prompt + params.max_tokens > most and not request.wants_embedding:
            raise RequestError(
                f"max_tokens is {params.max_tokens}, but after a prompt of {num_prompt} tokens the context of {most} tokens "
                f"leaves {most - num_prompt}", "max_tokens", code="context_length_exceeded")
        held = params.beam_width is not None
        longest = num_prompt + (self.room(num_prompt, held) if params.max_tokens is None else params.max_tokens)
        return Seq(
            seq_id, list(request.token_ids), num_prompt, params, request_id=request.request_id,
            arrival_s=self.clock.now() if request.arrival_s is None else request.arrival_s,
            priority=request.priority, ttft_slo_s=request.ttft_slo_s, tpot_slo_s=request.tpot_slo_s, e2e_slo_s=request.e2e_slo_s,
            max_len=num_prompt if request.wants_embedding else max(longest, num_prompt + 1),
            eos_token_ids=self._desk.tokenizer.eos_token_ids, seed=seed, salt=request.salt, marks=request.marks, prompt=request.token_ids,
            wants_embedding=request.wants_embedding, held=held)

    def _answer(self, request: Request, seq: Seq) -> Answer:
        params = request.params
        if params.beam_width is None:
            return Sampled(request, seq, self._desk)
        stops = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else frozenset(seq.eos_token_ids))
        search = self._desk.search(
            params.beam_width, seq.max_len - seq.num_prompt, stops, params.length_penalty, params.early_stopping)
        return Searched(request, seq, self._desk, search)

    def _seed(self, request: Request) -> int:
        if request.params.seed is not None:
            return request.params.seed % 2**64
        if self.facts.seed is None:
            return int.from_bytes(os.urandom(8))
        self._num_unseeded += 1
        return mixed(seed_of(self.facts.seed, self._num_unseeded))  # else answer 1 of a request would be answer 0 of the next

    def _take_begun(self, plan: StepPlan) -> list[float]:
        """How long those requests have waited whose first step it is."""
        new = [self._desk.owners[planned.seq_id].request_id for planned in plan.seqs if planned.new is not None]
        return [seq.queued_s or 0.0 for request_id in new if (seq := self._queued.pop(request_id, None)) is not None]

    def _collect(self, outputs: list[SeqOutput]) -> tuple[list[tuple[str, Delta]], Drafting]:
        """The deltas of a step's outputs, each with its request's id, and the outcome of the step's drafts; only drafts that are in an
        answer count as accepted."""
        deltas: list[tuple[str, Delta]] = []
        tally = DraftTally()
        owners = self._desk.owners
        for output in outputs:
            owner, delta = owners.get(output.seq_id), None
            if owner is not None:
                try:
                    delta = owner.take(output)
                except BaseException as error:
                    self._fail(owner.request_id, error)
                if delta is not None:
                    deltas.append((owner.request_id, delta))
            if output.check is not None:
                tally.add(output.check, 0 if delta is None else len(delta.token_ids))
        if self._desk.due:
            self._settle(deltas)
        return deltas, tally.total()

    def _settle(self, deltas: list[tuple[str, Delta]]) -> None:
        """Adds what answers have to say at a step's end. The last delta of a request says that it is done, and tells the usage."""
        last = {request_id: at for at, (request_id, _) in enumerate(deltas)}
        due = list(self._desk.due)
        self._desk.due.clear()
        for answer in due:
            request_id = answer.request.request_id
            if request_id not in self._answers:  # it has failed since
                continue
            try:
                found, usage = answer.settle(), answer.usage()
            except BaseException as error:
                self._fail(request_id, error)
                continue
            for delta in found:
                last[request_id] = len(deltas)
                deltas.append((request_id, delta))
            if answer.done:
                self._answers.pop(request_id, None)
                at = last[request_id]
                deltas[at] = (request_id, replace(deltas[at][1], done=True, usage=usage))

    def _fail(self, request_id: str, error: BaseException) -> None:
        """Ends a request whose answer cannot be made, and whatever it holds. It was served in this step all the same."""
        self._refused.append((request_id, failed(error)))
        del self._answers[request_id]
        for seq_id in [seq_id for seq_id, owner in self._desk.owners.items() if owner.request_id == request_id]:
            del self._desk.owners[seq_id]
            self._scheduler.finish(seq_id, "abort")

    def _record(self, census: "Census", result: StepResult, began: float, drafting: Drafting, num_preempted: int) -> StepRecord:
        scheduler = self._scheduler
        kv = scheduler.kv
        rested, self._rested = self._rested, False
        held_s, self._held_s = self._held_s, 0.0
        waited_s = self._take_waits(began) if self._came or self._left_s else ()
        num_served = len(self._answers) - len(self._queued)
        return StepRecord(
            result.step_id, began, self.clock.now() - began, result.compute_seconds, census.seqs, census.prefill_tokens,
            census.decode_tokens, census.draft_tokens, drafting.num_accepted, result.weight_bytes, result.kv_bytes,
            result.activation_bytes, result.operations, scheduler.num_running, scheduler.num_waiting, num_preempted,
            kv.num_used, kv.num_total, census.draft_seqs, drafting, result.work, scheduler.waits_for, waited_s,
            held_s, num_served, self._num_served - num_served, rested, result.more_weight_bytes,
            result.draft_seconds)

    def _lose(self, what: str) -> None:
        """Figures about answers are no reason to give none. What fails at each step is told once."""
        if what not in self._lost:
            log.exception("lost: %s", what)
        self._lost.add(what)

    def _let_go(self, now: float) -> None:
        """Ends the wait for a step that could not be planned."""
        if self._held_since_s is not None:
            self._held_s += now - self._held_since_s
            self._held_since_s = None

    def _take_waits(self, began: float) -> tuple[float, ...]:
        found = (*[began - seq.arrival_s for seq in self._came.values()], *self._left_s)
        self._came.clear()
        self._left_s.clear()
        return found


@message
class Census:
    """What a plan holds, in counts."""

    seqs: int
    prefill_tokens: int
    decode_tokens: int
    draft_tokens: int
    draft_seqs: int


def count(plan: StepPlan) -> Census:
    seqs, num_tokens = plan.seqs, plan.num_tokens
    drafts = [planned.num_drafts for planned in seqs if planned.num_drafts] if num_tokens > len(seqs) else []
    decodes = sum([planned.start >= planned.num_prompt and len(planned.tokens) - planned.num_drafts == 1 for planned in seqs])
    return Census(len(seqs), num_tokens - decodes - sum(drafts), decodes, sum(drafts), len(drafts))
