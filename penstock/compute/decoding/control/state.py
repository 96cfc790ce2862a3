"""What the controller keeps of each sequence, of the step in flight and of its latest decision. Steps are counted from the first."""
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.compute.decoding.control.contract import StepLoad
from penstock.compute.decoding.control.estimates import AcceptanceStats, Expected

TRIAL_BACKOFF = 2, 128  # steps from one trial of a sequence to the next: at first, and at most
PLAIN_DECISION_STEPS = 4, 256  # steps for which a decision against drafts holds: the first in a row, and at most


@dataclass(slots=True)
class SeqState:
    """A sequence's own acceptance, and when it may try drafts again while drafting does not pay."""

    stats: AcceptanceStats
    trial_due: int  # the step from which on it may be given a trial
    backoff: int = TRIAL_BACKOFF[0]  # steps until the trial after the next, if that fails
    last_proposal: tuple[int, int] = (0, 0)  # limit and number of drafts, of the step in flight


@dataclass(slots=True)
class StepInFlight:
    """The current step, or until the next one begins the step before it."""

    begin_s: float
    load: StepLoad
    expected: Expected | None = None  # of its drafts
    after_drafts: bool = False  # the step before it verified drafts
    num_accepted: int = 0
    end_s: float = 0.0
    drafting_s: float = 0.0  # part of the step that went into deciding and proposing


@dataclass(slots=True)
class Decision:
    """How many drafts each sequence may have, or that there are to be none, and for how long that holds."""

    seq_ids: list[int] = field(default_factory=list)
    limits: Sequence[int] | None = None  # [seqs] drafts; None: no drafts
    expected: Expected | None = None  # of a step
    made_at: int = -PLAIN_DECISION_STEPS[1]  # step
    valid_until: int = 0  # step
    num_steps: int = PLAIN_DECISION_STEPS[0]  # for which it was made, if it is against drafts
    min_accepted: float = 0.0  # probability that the least likely of its drafts is proposed and accepted
    only_lockstep: bool = False  # it is against drafts that would pay if the sequences were not in lockstep
    num_changed: int = 0  # sequences that have joined or left since
