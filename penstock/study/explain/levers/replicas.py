"""The same engine twice, behind a router that knows what each has before it, and what it was sent."""
from collections.abc import Iterator
from dataclasses import replace

from penstock.study.explain.case import Case, Change, si_bytes


class Replicas:
    each = False

    def changes(self, case: Case) -> Iterator[Change]:
        yield Change("a second machine", replace(case.way, replicas=2), (
            f"twice the machines: a second {si_bytes(case.weight_bytes)} of weights, a prefix cache each, and a router",), here=False)

    def unknown(self, case: Case) -> str | None:
        return None
