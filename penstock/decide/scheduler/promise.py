"""A sequence's objectives as times: when its first token is due, and how slow those after it may be.

Until its first token it is held to its TTFT. After that it is held to its mean TPOT at every token, so that it is kept wherever the answer
ends: token k is due at first + k * TPOT. An end-to-end objective becomes both. Of the time that the request would leave unused if it ran
alone, half is for waiting and half for sharing steps: that gives its first token's due time, and the time left after it is divided among
its maximum number of tokens. A deferred sequence has no objectives. What is promised holds for an answer as long as it may be; only what an
answer takes of the machine is as long as it is likely to be, where its client gave no maximum.
"""
from math import inf

from penstock.core.message import message
from penstock.core.types import Seq, Status
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.lengths import is_open


@message
class Claim:
    """A sequence's claim at current prices. It holds until the sequence computes a token, is deferred, or prices change."""

    seq: Seq
    num_left: int  # tokens to compute until it has its next one
    num_more: int  # output tokens after that one: at most, or before the first as many as an open answer is likely to have
    due_s: float  # its first token, or after that its next one; inf: whenever
    prompt_s: float  # what is left of a prompt that is due takes alone on the machine
    work_s: float  # what it takes of a full machine until it ends: its prompt, and `num_more` tokens; 0 once it is answered
    hopeless_s: float  # later than this, what was promised can no longer be kept, even alone on the machine; inf: it always can


def claim_of(seq: Seq, costs: StepCosts | None) -> Claim:
    """Without prices, nothing is ever due."""
    left, more, first_s = num_left(seq), num_more(seq), seq.first_token_s
    if costs is not None and first_s is not None:
        due_s, last_s = dues_s(seq, first_s)
        hopeless_s = inf if due_s == inf else last_s - costs.step_s(1, len(seq.tokens)) * (more + 1)
        return Claim(seq, left, more, due_s, 0.0, 0.0, hopeless_s)
    if costs is not None and is_open(seq):
        more = costs.lengths.likely(more + 1) - 1
    if costs is None or not has_objectives(seq):
        return Claim(seq, left, more, inf, 0.0, 0.0, inf)
    due_s, prompt_s = first_due_s(seq, costs), costs.prompt_s(left, len(seq.tokens))
    work_s = prompt_s + costs.answer_s(more * num_answers(seq), len(seq.tokens) + more // 2)
    return Claim(seq, left, more, due_s, prompt_s, work_s, due_s - prompt_s)


def has_objectives(seq: Seq) -> bool:
    return not seq.deferred and (seq.ttft_slo_s is not None or seq.tpot_slo_s is not None or seq.e2e_slo_s is not None)


def num_left(seq: Seq) -> int:
    """Tokens to compute until it has its next one, without those expected to be in the prefix cache."""
    done = seq.num_computed
    if seq.num_cached > done and seq.num_preemptions == 0 and seq.status is Status.WAITING:
        done = seq.num_cached
    left = len(seq.tokens) - done
    return left if left > 1 else 1


def num_more(seq: Seq) -> int:
    """Output tokens after the next one, at most."""
    more = seq.max_len - len(seq.tokens) - 1
    return more if more > 0 else 0


def num_answers(seq: Seq) -> int:
    """How many it stands for: until it has its first token, those that will be forked from it too."""
    return (seq.params.beam_width or seq.params.n) if seq.first_token_s is None else 1


def first_due_s(seq: Seq, costs: StepCosts) -> float:
    """When its first token is due; inf: whenever."""
    due_s = inf if seq.ttft_slo_s is None else seq.arrival_s + seq.ttft_slo_s
    if seq.e2e_slo_s is None:
        return due_s
    prompt_s = costs.prompt_s(seq.num_prompt, seq.num_prompt)
    spare_s = seq.e2e_slo_s - prompt_s - max(seq.max_len - seq.num_prompt - 1, 0) * costs.step_s(num_answers(seq), seq.num_prompt)
    return min(due_s, seq.arrival_s + prompt_s + spare_s / 2)


def is_due_by_e2e(seq: Seq, due_s: float) -> bool:
    """Whether its end-to-end objective is what makes its first token due then."""
    return seq.e2e_slo_s is not None and (seq.ttft_slo_s is None or due_s < seq.arrival_s + seq.ttft_slo_s)


def tpot_s(seq: Seq, first_s: float) -> float:
    """Seconds a token that it may take on average if its first token comes at `first_s`; inf: any."""
    if seq.deferred:
        return inf
    most_s = inf if seq.tpot_slo_s is None else seq.tpot_slo_s
    if seq.e2e_slo_s is None:
        return most_s
    num_tokens = seq.max_len - seq.num_prompt - 1
    return most_s if num_tokens < 1 else min(most_s, (seq.arrival_s + seq.e2e_slo_s - first_s) / num_tokens)


def pace_s(seq: Seq, now: float, costs: StepCosts, planned: float) -> float:
    """Seconds that steps may take if it is answered, or goes on, from now on, and plans with such a share of what it can afford; inf: any.
    One that would be too slow even alone is beyond help, and waits for nobody."""
    first_s = seq.first_token_s
    own = planned * (tpot_s(seq, now) if first_s is None else affords_s(seq, dues_s(seq, first_s)[1], now))
    return inf if own == inf or costs.step_s(num_answers(seq), len(seq.tokens)) > own else own


def dues_s(seq: Seq, first_s: float) -> tuple[float, float]:
    """(when its next token is due, when the last that it may have is), the first having come at `first_s`; inf: whenever."""
    most_s = tpot_s(seq, first_s)
    if most_s == inf:
        return inf, inf
    num_prompt = seq.num_prompt
    return first_s + most_s * (len(seq.tokens) - num_prompt), first_s + most_s * (seq.max_len - num_prompt - 1)


def affords_s(seq: Seq, last_s: float, now: float) -> float:
    """Seconds that each token from here to its last, which is due at `last_s`, may take: more than the TPOT where it is ahead."""
    return (last_s - now) / (num_more(seq) + 1)
