"""Suffix decoding (Oliaro et al. 2024, arXiv:2411.04975): finds the longest suffix of the sequence that occurred before, in its own prompt
and output or in recent outputs of requests with the same `cache_salt`, and drafts its most frequent continuation for as long as that is
likely enough to be accepted. Runs no model; costs trie lookups, and memory for the tries. Helps where requests repeat themselves or one
another: agents, edits, templates.

Two tries count every n-gram of up to `depth` tokens: one those of the sequence itself, prompt and output, the other those of the outputs of
all sequences with its salt. In each trie the draft starts at the longest suffix of the sequence that has a continuation, and follows the
most frequent next token as long as the estimated probability that the whole draft is accepted is at least `likely`. The draft with more
expected accepted tokens is proposed. A short suffix that was seen once predicts little: `doubt` lowers the estimate there, and hardly where
the suffix is long, as in copied text.
"""
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.compute.decoding.propose.contract import MAX_DRAFTS, Draftable, Drafts, Host
from penstock.compute.decoding.propose.tries import Row, best_tries
from penstock.core.needs import Needs
from penstock.core.registry import check_ranges


class Suffix:
    @dataclass(frozen=True, slots=True)
    class Options:
        k: int = 8  # maximum number of drafts
        depth: int = 16  # length of the longest n-grams that are counted, in tokens
        likely: float = 0.3  # minimum estimated probability that a draft and all drafts before it are accepted
        doubt: float = 1.0  # pseudo-count of unseen continuations of an n-gram: doubt / n
        remembered: int = 100_000  # output tokens of ended sequences that the shared tries keep

    needs = Needs(whole_outputs=True)

    def __init__(self, options: Options, host: Host | None = None) -> None:
        """Raises UsageError for options out of range."""
        check_ranges("suffix", options, k=(1, MAX_DRAFTS), depth=(2, MAX_DRAFTS), likely=(0, 1), doubt=(0, 1000),
                     remembered=(0, 1_000_000_000))
        self._max_drafts = options.k
        self._tries = best_tries(options.depth, options.likely, options.doubt, options.remembered)
        self._num_known: dict[int, int] = {}  # by sequence: tokens already passed to `_tries`

    def lookahead(self) -> int:
        return self._max_drafts

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        guesses = iter(self._tries.guess([self._learn(row) for row in rows if row.room]))
        return [Drafts(next(guesses)) if row.room else self._end(row) for row in rows]

    def _learn(self, row: Draftable) -> Row:
        known = self._num_known.get(row.seq_id)
        self._num_known[row.seq_id] = len(row.tokens)  # first: so that `forget` ends what an interrupt has left begun
        if known is None:
            self._tries.begin(row.seq_id, row.num_prompt, salt_of(row))
        return row.seq_id, row.tokens[known or 0 :], min(self._max_drafts, row.room)

    def _end(self, row: Draftable) -> Drafts:
        if row.seq_id not in self._num_known:
            self._num_known[row.seq_id] = row.num_prompt  # of which others learn nothing
            self._tries.begin(row.seq_id, 0, salt_of(row))
        self._tries.end(row.seq_id, row.tokens[self._num_known[row.seq_id] :])
        return Drafts()

    def forget(self, seq_id: int) -> None:
        if self._num_known.pop(seq_id, None) is not None:
            self._tries.forget(seq_id)


def salt_of(row: Draftable) -> bytes:
    return row.salt.encode("utf-8", "surrogatepass")
