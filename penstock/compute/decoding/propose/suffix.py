"""Suffix decoding (Oliaro et al. 2024, arXiv:2411.04975): what followed the last tokens before, in this sequence and in what the server
wrote lately, weighted by how often it did. Pays where jobs repeat themselves: agents, edits, templates.

Two tries hold every run of up to `depth` tokens with the number of times it was seen: one of the sequence itself, prompt and output, and
one of the outputs of all that have its salt. The longest end of the sequence that a trie knows is followed downwards along the commonest
tokens, as long as the whole guess is likely enough; the trie whose guess promises more tokens is believed. A short run that was seen
once says little of what follows: with `doubt` less is guessed there, as much where text is copied.
"""
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.compute.decoding.propose.contract import MOST, Draftable, Drafts, Host
from penstock.compute.decoding.propose.tries import best_tries
from penstock.core.needs import Needs
from penstock.core.registry import check_ranges


class Suffix:
    @dataclass(frozen=True, slots=True)
    class Options:
        k: int = 8  # drafts
        depth: int = 16  # tokens of the longest run that is remembered
        likely: float = 0.3  # of a guess from its beginning to any of its tokens, at least
        doubt: float = 1.0  # what was never seen after a run of n tokens counts as if it had been seen doubt / n times
        remembered: int = 100_000  # output tokens of ended sequences

    needs = Needs()

    def __init__(self, options: Options, host: Host | None = None) -> None:
        """Raises UsageError for options without sense."""
        check_ranges("suffix", options, k=(1, MOST), depth=(2, MOST), likely=(0, 1), doubt=(0, 1000), remembered=(0, 1_000_000_000))
        self._most = options.k
        self._tries = best_tries(options.depth, options.likely, options.doubt, options.remembered)
        self._num_known: dict[int, int] = {}  # tokens of each sequence

    def lookahead(self) -> int:
        return self._most

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        asked = []
        for row in rows:
            known = self._num_known.get(row.seq_id)
            if known is None:
                self._tries.begin(row.seq_id, row.num_prompt, row.salt)
            self._num_known[row.seq_id] = len(row.tokens)
            asked.append((row.seq_id, row.tokens[known or 0 :], min(self._most, row.room)))
        return [Drafts(guess) for guess in self._tries.guess(asked)]

    def forget(self, seq_id: int) -> None:
        if self._num_known.pop(seq_id, None) is not None:
            self._tries.forget(seq_id)
