"""What the engine reports of itself: one StepRecord a step."""
from penstock.core.drafting import NO_DRAFTS, Drafting
from penstock.core.message import message
from penstock.core.work import StepWork


@message
class StepRecord:
    """One step of the engine. Bytes and operations are added up from the program, seconds are measured."""

    step_id: int
    began_s: float  # on the engine's clock
    seconds: float  # whole step: schedule, compute, sample, commit
    compute_seconds: float  # the backend's step alone
    num_seqs: int
    num_prefill_tokens: int
    num_decode_tokens: int
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    weight_bytes: int = 0
    kv_bytes: int = 0
    activation_bytes: int = 0
    operations: int = 0
    num_running: int = 0
    num_waiting: int = 0
    num_preempted: int = 0
    kv_blocks_used: int = 0
    kv_blocks_total: int = 0
    num_draft_seqs: int = 0  # sequences whose drafts were verified
    drafting: Drafting = NO_DRAFTS  # their drafts by position
    work: StepWork | None = None
    waits_for: str | None = None  # what keeps the first in the queue out: seqs, tokens, scored, batching, tpot, kv; None: nobody waits
    waited_s: tuple[float, ...] = ()  # of each request that came since the step before: until this one began, or until it was aborted
    held_s: float = 0.0  # before it began, in which requests waited and no step could be planned: a batch waited for company
    num_served: int = 0  # requests of which a step has held a sequence by now, and that go on
    num_ended: int = 0  # requests that end with this step
    rested: bool = False  # everybody had gone before it came to this step: whoever ran or waited after the last one was aborted
    more_weight_bytes: int = 0  # that a step of twice the rows would read beside `weight_bytes`: experts
    draft_seconds: float = 0.0  # that drafting took, of those beside the backend's
