"""More memory for keys and values, so that more sequences run at once and none loses what it has."""
from collections.abc import Iterator

from penstock.study.explain.case import Case, Change, si_bytes

TIMES = (2, 4, 8)


class Cache:
    each = False

    def changes(self, case: Case) -> Iterator[Change]:
        now = case.config.kv_tokens or 0
        for times in TIMES:
            added = (times - 1) * now * case.kv_bytes_per_token
            fits = added <= case.free_memory_bytes
            costs = (f"{si_bytes(added)} more memory" + ("" if fits else f", of which {si_bytes(case.free_memory_bytes)} are free"),)
            yield Change(f"--kv-tokens {times * now}", case.with_config(kv_tokens=times * now), costs, fits)

    def unknown(self, case: Case) -> str | None:
        return None
