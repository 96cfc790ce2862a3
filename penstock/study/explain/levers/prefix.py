"""Prompts that begin as others did read their keys and values instead of computing them."""
from collections.abc import Iterator

from penstock.study.explain.case import Case, Change


class Prefix:
    each = False

    def changes(self, case: Case) -> Iterator[Change]:
        if not case.config.prefix_cache and case.traffic.shared:
            yield Change("without --no-prefix-cache", case.with_config(prefix_cache=True), ("none: answers stay the same",))

    def unknown(self, case: Case) -> str | None:
        if case.config.prefix_cache or case.traffic.shared:
            return None
        return "no two of the latest prompts began alike"
