"""Sequences that may enter between any two steps, instead of batch by batch."""
from collections.abc import Iterator

from penstock.study.explain.case import Case, Change

CONTINUOUS = "continuous"


class BatchingMode:
    each = False

    def changes(self, case: Case) -> Iterator[Change]:
        if case.config.batching != CONTINUOUS:
            yield Change(f"--batching {CONTINUOUS}", case.with_config(batching=CONTINUOUS))

    def unknown(self, case: Case) -> str | None:
        return None
