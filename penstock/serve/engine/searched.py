"""Answers that are searched for: the search says which sequences go on with which token, the scheduler forks their keys and values."""
from dataclasses import replace
from typing import Any

from penstock.core.types import Seq, SeqOutput, TokenLogprobs
from penstock.serve.engine.choice import Choice
from penstock.serve.engine.desk import Desk
from penstock.serve.engine.requests import Delta, Request, Usage

Candidates = tuple[tuple[int, float], ...]


class Searched:
    """All live hypotheses advance together: a step of the search is taken when every one of them has candidates."""

    def __init__(self, request: Request, first: Seq, desk: Desk, search: Any) -> None:
        self.request = request
        self.request_id = request.request_id
        self.done = False
        self._desk = desk
        self._first = first
        self._search = search
        self._live = [first]  # in the order of the search's hypotheses
        self._candidates: dict[int, Candidates] = {}
        self._prompt_logprobs: list[TokenLogprobs] | None = None if request.params.prompt_logprobs is None else []
        self._rows: dict[tuple[int, ...], Candidates] = {}  # by output so far, where log-probabilities are reported
        self._num_tokens = 0

    def start(self) -> None:
        self._desk.add(self, self._first)

    def seqs(self) -> list[Seq]:
        return list(self._live)

    def take(self, output: SeqOutput) -> Delta | None:
        if self._prompt_logprobs is not None and output.seq_id == self._first.seq_id:
            self._prompt_logprobs.extend(output.prompt_logprobs)
        if output.candidates:
            self._candidates[output.seq_id] = output.candidates
            if len(self._candidates) == len(self._live):
                self._desk.due.append(self)
        return None

    def settle(self) -> list[Delta]:
        if self.request.params.logprobs is not None:
            self._rows |= {tuple(seq.tokens[seq.num_prompt :]): self._candidates[seq.seq_id] for seq in self._live}
        step = self._search.advance([self._candidates[seq.seq_id] for seq in self._live])
        self._candidates.clear()
        if step.done:
            for seq in self._live:
                self._desk.finish(seq, "stop")
            self._live, self.done = [], True
            return self._tell()
        self._go_on(step.forks)
        return []

    def usage(self) -> Usage:
        first = self._first
        return Usage(
            len(self.request.token_ids), self._num_tokens, first.num_cached, first.num_mark_created, first.num_mark_read,
            queued_s=first.queued_s)

    def _go_on(self, forks: Any) -> None:
        """A parent goes on as the first of its children, after the others were forked from it; one without children ends."""
        heirs: dict[int, Seq] = {}
        live, appended = [], []
        for fork in forks:
            parent = self._live[fork.parent]
            if fork.parent not in heirs:
                heirs[fork.parent] = parent
                live.append(parent)
                appended.append((parent, fork.token))
                continue
            child = replace(
                parent, seq_id=self._desk.next_id(), tokens=[*parent.tokens, fork.token], block_ids=(), drafts=[], num_computed=0)
            self._desk.fork(self, parent, child, len(parent.tokens))
            live.append(child)
        for parent, token in appended:
            self._desk.scheduler.append(parent.seq_id, token)
        for number, seq in enumerate(self._live):
            if number not in heirs:
                self._desk.finish(seq, "stop")
        self._live = live

    def _tell(self) -> list[Delta]:
        params, request = self.request.params, self.request
        deltas = []
        for index, found in enumerate(self._search.best(params.n)):
            choice = Choice(self._desk.tokenizer, params, request.token_ids)
            text = choice.push(found.tokens, found.finish_reason)
            tokens = found.tokens[: choice.num_tokens]
            self._num_tokens += len(tokens)
            logprobs = () if params.logprobs is None else tuple(self._score(tokens, at, params.logprobs) for at in range(len(tokens)))
            deltas.append(Delta(index, text, tokens, logprobs, None, choice.finish_reason, choice.stop_reason))
        deltas += [Delta(index, finish_reason="stop") for index in range(len(deltas), params.n)]  # no other was possible
        if self._prompt_logprobs is not None:
            deltas[0] = replace(deltas[0], prompt_logprobs=(None, *self._prompt_logprobs))
        return deltas

    def _score(self, tokens: tuple[int, ...], at: int, num_top: int) -> TokenLogprobs:
        row = self._rows[tokens[:at]]
        rank = next(place for place, (token, _) in enumerate(row, 1) if token == tokens[at])
        return TokenLogprobs(tokens[at], row[rank - 1][1], rank, row[:num_top])
