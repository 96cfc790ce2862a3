"""How much of prompts a step takes: more is better arithmetic, less lets decoding pass sooner."""
from collections.abc import Iterator

from penstock.study.explain.case import Case, Change

TIMES = (0.125, 0.25, 0.5, 2, 4, 8)


class Chunk:
    each = False

    def changes(self, case: Case) -> Iterator[Change]:
        now = case.config.max_num_batched_tokens
        for tokens in sorted({int(times * now) for times in TIMES}):
            if tokens >= case.config.max_num_seqs and tokens != now:
                yield Change(f"--max-num-batched-tokens {tokens}", case.with_config(max_num_batched_tokens=tokens))

    def unknown(self, case: Case) -> str | None:
        return None
