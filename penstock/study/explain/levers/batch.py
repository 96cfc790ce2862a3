"""More seats, so that a step's weights are read for more sequences."""
from collections.abc import Iterator

from penstock.study.explain.case import Case, Change

TIMES = (2, 4, 8)


class Batch:
    each = False

    def changes(self, case: Case) -> Iterator[Change]:
        seats = case.config.max_num_seqs
        for times in TIMES:
            more = seats * times
            tokens = max(case.config.max_num_batched_tokens, more)
            longer = "" if tokens == case.config.max_num_batched_tokens else f" --max-num-batched-tokens {tokens}"
            yield Change(f"--max-num-seqs {more}{longer}", case.with_config(max_num_seqs=more, max_num_batched_tokens=tokens))

    def unknown(self, case: Case) -> str | None:
        return None
