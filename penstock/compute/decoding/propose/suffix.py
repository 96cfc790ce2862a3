"""Suffix decoding (Oliaro et al. 2024, arXiv:2411.04975): what followed the last tokens before, in this sequence and in what the server
wrote lately, weighted by how often it did. Pays where jobs repeat themselves: agents, edits, templates.

Two tries count every run of up to `depth` tokens: one those of the sequence itself, prompt and output, the other those of the outputs of
all sequences with its salt. From the longest suffix of the sequence that a trie contains, the most frequent next tokens are followed as
long as the estimated probability of the whole draft is high enough; the trie whose draft has more expected accepted tokens is used. A
short run that was seen once says little about what follows: `doubt` shortens drafts there, but not where text is copied.
"""
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.compute.decoding.propose.contract import MAX_DRAFTS, Draftable, Drafts, Host
from penstock.compute.decoding.propose.tries import best_tries
from penstock.core.needs import Needs
from penstock.core.registry import check_ranges


class Suffix:
    @dataclass(frozen=True, slots=True)
    class Options:
        k: int = 8  # drafts
        depth: int = 16  # tokens of the longest runs that are counted
        likely: float = 0.3  # the least probability that a draft is accepted with all before it
        doubt: float = 1.0  # pseudo-count, doubt / n, of unseen tokens after a run of n tokens
        remembered: int = 100_000  # output tokens of ended sequences that are kept

    needs = Needs()

    def __init__(self, options: Options, host: Host | None = None) -> None:
        """Raises UsageError for options out of range."""
        check_ranges("suffix", options, k=(1, MAX_DRAFTS), depth=(2, MAX_DRAFTS), likely=(0, 1), doubt=(0, 1000),
                     remembered=(0, 1_000_000_000))
        self._max_drafts = options.k
        self._tries = best_tries(options.depth, options.likely, options.doubt, options.remembered)
        self._num_known: dict[int, int] = {}  # by sequence: tokens that `_tries` has

    def lookahead(self) -> int:
        return self._max_drafts

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        queries = []
        for row in rows:
            known = self._num_known.get(row.seq_id)
            if known is None:
                self._tries.begin(row.seq_id, row.num_prompt, row.salt)
            self._num_known[row.seq_id] = len(row.tokens)
            queries.append((row.seq_id, row.tokens[known or 0 :], min(self._max_drafts, row.room)))
        return [Drafts(guess) for guess in self._tries.guess(queries)]

    def forget(self, seq_id: int) -> None:
        if self._num_known.pop(seq_id, None) is not None:
            self._tries.forget(seq_id)
