"""Answers that are sampled: one sequence each. The prompt is computed once; the others are forked from the first.

With best_of, more are made than are returned, and the likeliest ones (mean log-probability of a token) are sent at the end.
"""
from dataclasses import replace

from penstock.core.types import Seq, SeqOutput, Status, TokenLogprobs
from penstock.serve.engine.choice import Choice, Collected, Said
from penstock.serve.engine.desk import Desk, seed_of
from penstock.serve.engine.requests import Delta, Request, Usage


class Sampled:
    def __init__(self, request: Request, first: Seq, desk: Desk) -> None:
        self.request = request
        self.done = False
        self._desk = desk
        self._first = first
        params = request.params
        self._num = params.best_of or params.n
        self._seqs: dict[int, Seq] = {first.seq_id: first}
        self._index = {first.seq_id: 0}
        self._choices = [Choice(desk.tokenizer, params, request.token_ids) for _ in range(self._num)]
        self._collected = [Collected() for _ in range(self._num)] if self._num > params.n else None
        self._prompt_logprobs: list[TokenLogprobs] | None = None if params.prompt_logprobs is None else []
        self._num_ended = 0
        self._forked = self._num == 1

    def start(self) -> None:
        self._desk.add(self, self._first)

    def seqs(self) -> list[Seq]:
        return list(self._seqs.values())

    def take(self, output: SeqOutput) -> list[Delta]:
        if self._prompt_logprobs is not None and output.seq_id == self._first.seq_id:
            self._prompt_logprobs.extend(output.prompt_logprobs)
        if output.embedding is not None:
            self._end(self._first)
            return [Delta(0, embedding=output.embedding, finish_reason=output.finish_reason)]
        if not output.tokens and output.finish_reason is None:
            return []
        if not self._forked:
            self._fork()
        seq = self._seqs[output.seq_id]
        index = self._index[output.seq_id]
        choice = self._choices[index]
        before = choice.num_tokens
        said = choice.push(output.tokens, output.finish_reason, seq.stop_token_id)
        if said.finish_reason is not None:
            self._end(seq, said.finish_reason)
        return self._tell(index, output, said, choice.num_tokens - before)

    def settle(self) -> list[Delta]:
        return []

    def usage(self) -> Usage:
        first = self._first
        return Usage(
            len(self.request.token_ids), sum(choice.num_tokens for choice in self._choices), first.num_cached,
            first.num_mark_created, first.num_mark_read)

    def _fork(self) -> None:
        """The prompt is computed: the other answers share its keys and values, and compute its last token for themselves."""
        self._forked = True
        first = self._first
        for index in range(1, self._num):
            child = replace(
                first, seq_id=self._desk.next_id(), tokens=list(self.request.token_ids), seed=seed_of(first.seed, index),
                block_ids=[], drafts=[], num_computed=0, status=Status.WAITING, first_token_s=None, finish_reason=None,
                stop_token_id=None)
            self._seqs[child.seq_id] = child
            self._index[child.seq_id] = index
            self._desk.fork(self, first, child, first.num_prompt - 1)

    def _end(self, seq: Seq, reason: str = "stop") -> None:
        del self._seqs[seq.seq_id]
        self._num_ended += 1
        self.done = self._num_ended == self._num
        if seq.finish_reason is None:
            self._desk.finish(seq, reason)
        else:
            self._desk.forget(seq)

    def _tell(self, index: int, output: SeqOutput, said: Said, num_kept: int) -> list[Delta]:
        if self._collected is not None:
            self._collected[index].add(output, said, num_kept)
            return self._tell_best() if self.done else []
        prompt_logprobs = None
        if index == 0 and self._prompt_logprobs is not None:
            prompt_logprobs, self._prompt_logprobs = (None, *self._prompt_logprobs), None
        return [Delta(
            index, said.text, output.tokens[:num_kept], output.logprobs[:num_kept], prompt_logprobs, said.finish_reason, said.stop_reason)]

    def _tell_best(self) -> list[Delta]:
        assert self._collected is not None
        params = self.request.params
        best = sorted(self._collected, key=lambda each: -each.score())[: params.n]
        deltas = [each.delta(index, params.logprobs is not None) for index, each in enumerate(best)]
        if self._prompt_logprobs is not None:
            deltas[0] = replace(deltas[0], prompt_logprobs=(None, *self._prompt_logprobs))
        return deltas
