"""A step in the making: what has been planned so far, and what may still be."""
from collections.abc import Iterable

from penstock.core.types import PlannedSeq, Seq, SeqInfo
from penstock.decide.scheduler.promise import num_left
from penstock.decide.scheduler.waiting import Entry, Waiting

SCORED_ROWS = 256  # of prompts whose log-probabilities are asked for: each has logits, of 600 KB with a vocabulary of 150,000


def most_logits(num_tokens: int, num_seqs: int, num_drafts: int = 0) -> int:
    """The most rows of a step that have logits: what is sampled, the drafts of each sequence, and what is scored."""
    return min(num_tokens, num_seqs * (1 + num_drafts) + SCORED_ROWS)


class Step:
    """Planned sequences by seq_id, and the budget of tokens and sequences that is left."""

    def __init__(self, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        self.num_seqs_left = max_num_seqs
        self.num_tokens_left = max_num_batched_tokens
        self.num_scored_left = SCORED_ROWS
        self.num_preempted = 0
        self._passed: Entry | None = None  # all that wait before it are to be scored, and were passed
        self.planned: dict[int, PlannedSeq] = {}
        self.copies: dict[int, list[tuple[int, int]]] = {}

    def room(self, seq: Seq, num_reserved: int) -> int:
        """How many tokens of `seq` may be planned, if `num_reserved` are left to others."""
        room = self.num_tokens_left - num_reserved
        return min(room, self.num_scored_left + max(seq.num_scored - seq.num_computed, 0)) if scores(seq) else room

    def next(self, waiting: Waiting, now: float) -> Seq | None:
        """Who waits first. Prompts that are to be scored are passed while the step scores no more rows."""
        first = waiting.first(now)
        if self.num_scored_left > 0 or not scores(first):
            return first
        self._passed = waiting.unlike(scores, self._passed)
        return None if self._passed is None else self._passed[2].seq

    def add(self, seq: Seq, num_tokens: int, num_drafts: int, copies: list[tuple[int, int]], is_new: bool) -> None:
        """Plans the next `num_tokens` tokens of `seq`, the last `num_drafts` of them drafts."""
        start, size, seq_id = seq.num_computed, len(seq.tokens), seq.seq_id
        end = start + num_tokens - num_drafts
        tokens = tuple(seq.tokens[start:end])
        parents = None
        if num_drafts:
            tokens += tuple(seq.drafts[:num_drafts])
            parents = None if seq.draft_parents is None else tuple(seq.draft_parents[:num_drafts])
        self.planned[seq_id] = PlannedSeq(
            seq_id, start, tokens, seq.block_ids, end == size, seq.num_prompt, size - seq.num_prompt, num_drafts, parents,
            describe(seq) if is_new else None, seq.num_scored)
        if copies:
            self.copies[seq.seq_id] = copies
        self.num_seqs_left -= 1
        self.num_tokens_left -= num_tokens
        if scores(seq):
            self.num_scored_left -= num_scored(self.planned[seq_id])

    def add_next(self, seq: Seq, is_new: bool) -> None:
        """Plans the one token that `seq` is behind."""
        at, seq_id, num_prompt = seq.num_computed, seq.seq_id, seq.num_prompt
        self.planned[seq_id] = PlannedSeq(
            seq_id, at, (seq.tokens[at],), seq.block_ids, True, num_prompt, at + 1 - num_prompt, 0, None, describe(seq) if is_new else None)
        self.num_seqs_left -= 1
        self.num_tokens_left -= 1

    def drop(self, seq: Seq) -> None:
        """Takes the sequence out again, if it is in."""
        self._passed = None
        planned = self.planned.pop(seq.seq_id, None)
        if planned is not None:
            self.copies.pop(seq.seq_id, None)
            self.num_seqs_left += 1
            self.num_tokens_left += len(planned.tokens)
            if scores(seq):
                self.num_scored_left += num_scored(planned)


def scores(seq: Seq) -> bool:
    """Whether it has rows to come of a prompt whose log-probabilities are asked for, and not known."""
    return seq.params.prompt_logprobs is not None and max(seq.num_computed, seq.num_scored) < seq.num_prompt - 1


def num_scored(planned: PlannedSeq) -> int:
    """How many rows of one that `scores` have not given log-probabilities before."""
    return max(planned.start + len(planned.tokens) - max(planned.start, planned.num_scored), 0)


def num_wanted(seqs: Iterable[Seq]) -> int:
    """How many rows these prompts would take of a step that holds as many tokens and sequences as they like."""
    wanted = scored = 0
    for seq in seqs:
        num_rows = num_left(seq)
        num_new = min(num_rows, len(seq.tokens) - seq.num_scored) if scores(seq) else 0
        scored += num_new
        wanted += num_rows - num_new
    return wanted + min(scored, SCORED_ROWS)


def describe(seq: Seq) -> SeqInfo:
    """What the runner is told about a sequence that is new to it."""
    return SeqInfo(
        params=seq.params,
        prompt=seq.prompt or tuple(seq.tokens[: seq.num_prompt]),
        seed=seq.seed,
        eos_token_ids=seq.eos_token_ids,
        wants_embedding=seq.wants_embedding,
        held=seq.held,
        output=tuple(seq.tokens[seq.num_prompt :]),
        salt=seq.salt,
    )
