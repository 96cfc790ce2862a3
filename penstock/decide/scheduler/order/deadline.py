"""The earliest deadline that can still be met first; then requests without one; those that are late beyond help last.

Until its first token a request's deadline is arrival + TTFT objective, and it is hopeless when its prompt can no longer
be computed by then. After that the deadline is its next token's, and it is hopeless when even without a pause its last token
would come too late for its mean TPOT.
"""
from dataclasses import dataclass
from math import inf

from penstock.core.errors import UsageError
from penstock.core.needs import Needs
from penstock.core.types import Seq
from penstock.core.work import StepTimer, StepWork


class Deadline:
    """Asks `timer` how long steps take; without one, `Options` say it."""

    needs = Needs()
    varies = True

    @dataclass(frozen=True, slots=True)
    class Options:
        prefill_tokens_per_s: float = 1000.0  # of one sequence; used without a step timer
        decode_tokens_per_s: float = 20.0

        def __post_init__(self) -> None:
            for name in ("prefill_tokens_per_s", "decode_tokens_per_s"):
                if not getattr(self, name) > 0:
                    raise UsageError(f"order deadline: {name} must be above 0, not {getattr(self, name)}")

    def __init__(self, options: Options | None = None, timer: StepTimer | None = None) -> None:
        self._options = options or self.Options()
        self._timer = timer

    def key(self, seq: Seq, now: float) -> tuple[float, ...]:
        due_s, feasible = self._first_token(seq, now) if seq.first_token_s is None else self._next_token(seq, seq.first_token_s, now)
        return (0.0 if feasible else 1.0, due_s, seq.arrival_s)

    def _first_token(self, seq: Seq, now: float) -> tuple[float, bool]:
        if seq.ttft_slo_s is None:
            return inf, True
        due_s = seq.arrival_s + seq.ttft_slo_s
        left = len(seq.tokens) - seq.num_computed
        return due_s, now + self._seconds(left, len(seq.tokens), left / self._options.prefill_tokens_per_s) <= due_s

    def _next_token(self, seq: Seq, first_token_s: float, now: float) -> tuple[float, bool]:
        if seq.tpot_slo_s is None:
            return inf, True
        step_s = self._seconds(1, len(seq.tokens), 1 / self._options.decode_tokens_per_s)
        num_more = seq.max_len - len(seq.tokens)
        last_due_s = first_token_s + seq.tpot_slo_s * (seq.max_len - seq.num_prompt - 1)
        return first_token_s + seq.tpot_slo_s * seq.num_output, now + num_more * step_s <= last_due_s

    def _seconds(self, num_tokens: int, num_context_tokens: int, estimate_s: float) -> float:
        if self._timer is None:
            return estimate_s
        return self._timer.seconds(StepWork(contexts=((num_tokens, num_context_tokens),), num_logits=1))
