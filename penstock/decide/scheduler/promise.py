"""What a sequence was promised, in times: when its first token is due, and how slow those after it may be.

Until its first token it is held to its TTFT. After that it is held to its mean TPOT at every token, so that it is kept wherever the
answer ends: token k is due at first + k * TPOT. An end-to-end objective becomes both. Of the time that a lone request would leave, half is
for waiting and half for company: that gives its first token's due time, and what is left then is shared by the tokens that it may have.
"""
from math import inf

from penstock.core.types import Seq, Status
from penstock.decide.scheduler.costs import StepCosts


def has_objectives(seq: Seq) -> bool:
    return not seq.deferred and (seq.ttft_slo_s, seq.tpot_slo_s, seq.e2e_slo_s) != (None, None, None)


def num_left(seq: Seq) -> int:
    """Tokens to compute until it has its next one. What the prefix cache is expected to hold needs no computing."""
    found = seq.num_cached if seq.status is Status.WAITING and seq.num_preemptions == 0 else 0
    return max(1, len(seq.tokens) - max(seq.num_computed, found))


def num_more(seq: Seq) -> int:
    """Output tokens after the next one, at most."""
    return max(seq.max_len - len(seq.tokens) - 1, 0)


def first_due_s(seq: Seq, costs: StepCosts) -> float:
    """When its first token is due; inf: whenever."""
    due_s = inf if seq.ttft_slo_s is None else seq.arrival_s + seq.ttft_slo_s
    if seq.e2e_slo_s is None:
        return due_s
    prompt_s = costs.prompt_s(seq.num_prompt, seq.num_prompt)
    spare_s = seq.e2e_slo_s - prompt_s - max(seq.max_len - seq.num_prompt - 1, 0) * costs.step_s(1, seq.num_prompt)
    return min(due_s, seq.arrival_s + prompt_s + spare_s / 2)


def tpot_s(seq: Seq, first_s: float) -> float:
    """Seconds a token that it may take on average if its first token comes at `first_s`; inf: any."""
    most_s = inf if seq.tpot_slo_s is None else seq.tpot_slo_s
    num_tokens = seq.max_len - seq.num_prompt - 1
    if seq.e2e_slo_s is None or num_tokens < 1:
        return most_s
    return min(most_s, (seq.arrival_s + seq.e2e_slo_s - first_s) / num_tokens)


def next_due_s(seq: Seq, first_s: float) -> float:
    """When its next token is due, the first having come at `first_s`."""
    return first_s + tpot_s(seq, first_s) * seq.num_output


def affords_s(seq: Seq, first_s: float, now: float) -> float:
    """Seconds that each token from here to its last may take: more than the TPOT where it is ahead, less where it is behind."""
    most_s = tpot_s(seq, first_s)
    return inf if most_s == inf else (first_s + most_s * (seq.max_len - seq.num_prompt - 1) - now) / (num_more(seq) + 1)
