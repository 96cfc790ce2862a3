"""Answers that are sampled: one sequence each. The prompt is computed once; the others are forked from the first."""
from collections.abc import Sequence
from dataclasses import replace

from penstock.core.drafting import NO_DRAFTS, DraftCheck, Drafting, DraftTally, together
from penstock.core.types import Seq, SeqOutput, Status, TokenLogprobs
from penstock.serve.engine.choice import Choice
from penstock.serve.engine.desk import Desk, seed_of
from penstock.serve.engine.requests import Delta, Request, Usage


class Voice:
    """One answer of a request: its sequence, and its text so far."""

    __slots__ = ("_begun", "_scored", "_tally", "answer", "choice", "index", "request_id", "seq")

    def __init__(self, answer: "Sampled", seq: Seq, index: int, choice: Choice) -> None:
        self.answer = answer
        self.seq = seq
        self.index = index
        self.choice = choice
        self.request_id = answer.request.request_id
        self._tally: DraftTally | None = None
        self._begun = False
        self._scored: list[TokenLogprobs] | None = None if index or seq.params.prompt_logprobs is None else []

    def take(self, output: SeqOutput) -> Delta | None:
        """The delta, unless the prompt is not computed yet."""
        prompt_logprobs = queued_s = None
        if not self._begun:
            if self._scored is not None:
                self._scored.extend(output.prompt_logprobs)
            if output.embedding is not None:
                self.answer.end(self, "stop")
                return Delta(0, embedding=output.embedding, finish_reason=output.finish_reason)
            if not output.tokens and output.finish_reason is None:
                return None
            self._begun, queued_s = True, self.seq.queued_s
            self.answer.begin()
            if self._scored is not None:
                prompt_logprobs = (None, *self._scored)
        choice, tokens, logprobs = self.choice, output.tokens, output.logprobs
        before = choice.num_tokens
        text = choice.push(tokens, output.finish_reason, None if output.finish_reason is None else self.seq.stop_token_id)
        if choice.finish_reason is not None:
            num_kept = choice.num_tokens - before
            tokens, logprobs = tokens[:num_kept], logprobs[:num_kept]
            self.answer.end(self, choice.finish_reason)
        drafted: tuple[int, ...] = ()
        drafting: Drafting | None = None
        if output.check is not None or self._tally is not None:
            drafted, drafting = self._count_drafts(output.check, len(tokens))
        return Delta(
            self.index, text, tokens, logprobs, prompt_logprobs, choice.finish_reason, choice.stop_reason, drafted=drafted,
            drafting=drafting, queued_s=queued_s)

    def drafting(self) -> Drafting:
        """What became of the drafts so far."""
        return NO_DRAFTS if self._tally is None else self._tally.total()

    def _count_drafts(self, check: DraftCheck | None, num_kept: int) -> tuple[tuple[int, ...], Drafting | None]:
        """`Delta.drafted` and `Delta.drafting` of a step from which the answer keeps `num_kept` tokens."""
        tally = self._tally = self._tally or DraftTally()
        num_drafted = 0
        if check is not None:
            tally.add(check, num_kept)
            num_drafted = min(check.num_accepted, num_kept)
        return tuple(range(num_drafted)), None if self.choice.finish_reason is None else tally.total()


class Sampled:
    def __init__(self, request: Request, first: Seq, desk: Desk) -> None:
        self.request = request
        self.done = False
        self._desk = desk
        self._first = first
        self._prompt_end = desk.tokenizer.shown_end(request.token_ids, request.params.skip_special_tokens)
        self._voices = [self._voice(first, 0)]
        self._num_ended = 0

    def start(self) -> None:
        self._desk.add(self._voices[0], self._first)

    def seqs(self) -> list[Seq]:
        return [voice.seq for voice in self._voices if voice.seq.seq_id in self._desk.owners]

    def usage(self) -> Usage:
        first = self._first
        return Usage(
            len(self.request.token_ids), sum(voice.choice.num_tokens for voice in self._voices), first.num_cached,
            first.num_mark_created, first.num_mark_read, together(voice.drafting() for voice in self._voices),
            first.queued_s, first.prefilled_s)

    def begin(self) -> None:
        """The prompt is computed: the other answers share its keys and values, and compute its last token for themselves."""
        first, request = self._first, self.request
        if request.params.n == 1:
            return
        params = replace(first.params, n=1, prompt_logprobs=None)  # of one answer, whose prompt is scored already
        for index in range(len(self._voices), request.params.n):
            child = replace(
                first, params=params, seq_id=self._desk.next_id(), tokens=list(request.token_ids), seed=seed_of(first.seed, index),
                block_ids=(), drafts=[], draft_parents=None, num_computed=0, status=Status.WAITING, first_token_s=None, finish_reason=None,
                stop_token_id=None)
            self._voices.append(self._voice(child, index))
            self._desk.fork(self._voices[-1], first, child, first.num_prompt - 1)

    def end(self, voice: Voice, reason: str) -> None:
        """One of the answers is complete."""
        self._num_ended += 1
        if voice.seq.finish_reason is None:
            self._desk.finish(voice.seq, reason)
        else:
            self._desk.forget(voice.seq)
        if self._num_ended == self.request.params.n:
            self.done = True
            self._desk.due.append(self)

    def settle(self) -> Sequence[Delta]:
        """Does nothing: each delta was given in its step."""
        return ()

    def _voice(self, seq: Seq, index: int) -> Voice:
        choice = Choice(self._desk.tokenizer, self.request.params, self._prompt_end)
        return Voice(self, seq, index, choice)
