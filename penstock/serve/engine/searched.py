"""Answers found by search: the search decides which sequences continue with which tokens, and the scheduler forks their keys and values."""
from dataclasses import dataclass, replace
from typing import Any, Optional

from penstock.core.types import Seq, SeqOutput, TokenLogprobs
from penstock.serve.engine.choice import Choice
from penstock.serve.engine.desk import Desk
from penstock.serve.engine.requests import Delta, Request, Usage

Candidates = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """The log-probabilities of an output's last token, and of the token before it. Outputs share what they begin with."""

    last: TokenLogprobs
    before: Optional["Scored"]

    def in_order(self) -> tuple[TokenLogprobs, ...]:
        found: list[TokenLogprobs] = []
        at: Scored | None = self
        while at is not None:
            found.append(at.last)
            at = at.before
        return tuple(found[::-1])


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
        self._scored: list[Scored | None] = [None]  # of `_live`, where log-probabilities are reported
        self._ended: list[tuple[Any, Scored]] = []  # hypotheses that may come back, where log-probabilities are reported
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
        candidates = [self._candidates[seq.seq_id] for seq in self._live]
        paths = self._search.live
        step = self._search.advance(candidates)
        self._candidates.clear()
        if self.request.params.logprobs is not None:
            self._score(step, candidates)
        if step.done:
            for seq in self._live:
                self._desk.finish(seq, "stop")
            self._live, self.done = [], True
            return self._tell()
        self._go_on(step.forks, paths)
        return []

    def usage(self) -> Usage:
        first = self._first
        return Usage(
            len(self.request.token_ids), self._num_tokens, first.num_cached, first.num_mark_created, first.num_mark_read,
            queued_s=first.queued_s, prefilled_s=first.prefilled_s)

    def _go_on(self, forks: Any, paths: Any) -> None:
        """A parent continues as the first of its children, after the others were made from it: first of hypotheses that have no children,
        which change by what differs, then of new sequences. `paths`: of the hypotheses that were live."""
        parents = {fork.parent for fork in forks}
        childless = [number for number in range(len(self._live)) if number not in parents]
        live: list[Seq] = []
        appended = []
        for fork in forks:
            seq = parent = self._live[fork.parent]
            if fork.parent in parents:
                parents.remove(fork.parent)
            elif childless:
                number = childless.pop()
                seq = self._live[number]
                num_shared = len(parent.tokens) - paths[number].num_apart(paths[fork.parent])
                self._desk.scheduler.rebase(seq.seq_id, parent.seq_id, num_shared)
            else:
                live.append(self._forked(parent, fork.token))
                continue
            live.append(seq)
            appended.append((seq, fork.token))
        for seq, token in appended:
            self._desk.scheduler.append(seq.seq_id, token)
        for number in childless:
            self._desk.finish(self._live[number], "stop")
        self._live = live

    def _forked(self, parent: Seq, token: int) -> Seq:
        params = parent.params
        if params.prompt_logprobs is not None:
            params = replace(params, prompt_logprobs=None)  # the prompt is scored already
        child = replace(
            parent, params=params, seq_id=self._desk.next_id(), tokens=[*parent.tokens, token], block_ids=(), drafts=[], num_computed=0)
        self._desk.fork(self, parent, child, len(parent.tokens))
        return child

    def _tell(self) -> list[Delta]:
        params, request = self.request.params, self.request
        deltas = []
        for index, found in enumerate(self._search.best(params.n)):
            choice = Choice(self._desk.tokenizer, params, request.token_ids)
            tokens = found.tokens
            is_end = found.finish_reason == "length" or (tokens[-1] in self._first.eos_token_ids and not params.ignore_eos)
            text = choice.push(tokens, found.finish_reason, None if is_end else tokens[-1])
            tokens = tokens[: choice.num_tokens]
            self._num_tokens += len(tokens)
            logprobs = () if params.logprobs is None else self._scored_of(found)[: len(tokens)]
            deltas.append(Delta(index, text, tokens, logprobs, None, choice.finish_reason, choice.stop_reason))
        deltas += [Delta(index, finish_reason="stop") for index in range(len(deltas), params.n)]  # no other was possible
        if self._prompt_logprobs is not None:
            deltas[0] = replace(deltas[0], prompt_logprobs=(None, *self._prompt_logprobs))
        return deltas

    def _score(self, step: Any, candidates: list[Candidates]) -> None:
        """Log-probabilities of the tokens that a step of the search has chosen. Those of outputs that cannot come back are dropped."""
        found = self._search.best(self.request.params.n)
        ended = [(each, self._extended(each.parent, each.path.token, candidates)) for each in step.finished]
        self._ended = [(each, scored) for each, scored in [*self._ended, *ended] if any(each is best for best in found)]
        self._scored = [self._extended(fork.parent, fork.token, candidates) for fork in step.forks]

    def _extended(self, parent: int, token: int, candidates: list[Candidates]) -> Scored:
        row, num_top = candidates[parent], self.request.params.logprobs
        rank, logprob = next((rank, logprob) for rank, (each, logprob) in enumerate(row, 1) if each == token)
        return Scored(TokenLogprobs(token, logprob, rank, row[:num_top]), self._scored[parent])

    def _scored_of(self, hypothesis: Any) -> tuple[TokenLogprobs, ...]:
        return next(scored for each, scored in self._ended if each is hypothesis).in_order()
