"""Prompt lookup (Saxena 2023; inference with reference, Yang et al. 2023, arXiv:2304.04487): finds the latest earlier occurrence of the
sequence's last `n` tokens (64 at most), or of fewer down to `least`, in its own prompt and output, and drafts the tokens that followed it.
Runs no model; costs a hash lookup per length. Where only sure drafts are wanted, shorter matches than `n` do not count. Helps where the
output copies from its context: edits, quotes, extraction, code."""
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.compute.decoding.propose.contract import MAX_DRAFTS, Draftable, Drafts, Host
from penstock.compute.decoding.propose.runs import best_runs
from penstock.core.errors import UsageError
from penstock.core.needs import Needs
from penstock.core.registry import check_ranges

NONE = Drafts()
MAX_RUN = 64  # tokens: each length has a table of every place in the text, and copied text is known by far fewer


class Ngram:
    @dataclass(frozen=True, slots=True)
    class Options:
        n: int = 4  # length of the longest suffix that is looked up, in tokens; the longest match is used
        least: int = 2  # length of the shortest
        k: int = 8  # maximum number of drafts

    needs = Needs()

    def __init__(self, options: Options, host: Host | None = None) -> None:
        """Raises UsageError for options out of range, and for least > n."""
        check_ranges("ngram", options, n=(1, MAX_RUN), least=(1, MAX_RUN), k=(1, MAX_DRAFTS))
        if options.least > options.n:
            raise UsageError(f"ngram: least must be at most n, not {options.least} with n={options.n}")
        self._max_drafts = options.k
        self._runs = best_runs(options.least, options.n)
        self._num_known: dict[int, int] = {}  # by sequence: tokens already passed to `_runs`

    def lookahead(self) -> int:
        return self._max_drafts

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        queries, num_known, most = [], self._num_known, self._max_drafts
        for row in rows:
            seq_id, tokens = row.seq_id, row.tokens
            queries.append((seq_id, tokens[num_known.get(seq_id, 0) :], min(most, row.room), row.sure))
            num_known[seq_id] = len(tokens)
        return [Drafts(guess) if guess else NONE for guess in self._runs.guess(queries)]

    def forget(self, seq_id: int) -> None:
        if self._num_known.pop(seq_id, None) is not None:
            self._runs.forget(seq_id)
