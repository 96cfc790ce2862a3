"""Sequences that begin together and have the same `max_tokens` end together, so that the prompts of the next ones are computed together.

A single accepted draft parts them, and from then on prompts come one by one, which costs 1 to 3 % of the time for as long as requests
queue. No step shows that loss. So it is taken to be PARTED_SHARE of the time, and charged to a budget that what drafts really gain and a
small share of the time are added to. Sequences are parted where decisions have promised much for long (`Promise`) and nothing is owed for
earlier partings, or somewhat less if the budget is nearly full.
"""
from dataclasses import dataclass, field

from penstock.compute.decoding.control.budget import Budget
from penstock.compute.decoding.control.estimates import Promise

PROMISED, PROMISED_PAID = 0.25, 0.15  # added speed that decisions must promise on average to part sequences: unpaid, paid
PARTING_SHARE, PARTING_STEPS = 0.002, (4, 64)  # of the time, for parting; steps whose time may be saved: times sequences squared; at most
PARTED_SHARE, MAX_DEBT = 0.02, 4  # of the time, that sequences cost which were parted; owed for it at most, times what may be saved
ENOUGH = 0.75  # share of what may be saved that pays for a parting, since steps vary


@dataclass(slots=True)
class Lockstep:
    """Whether sequences may be parted, and what those cost that were."""

    promise: Promise = field(default_factory=Promise)
    _budget: Budget = field(default_factory=lambda: Budget(PARTING_SHARE))
    _step_s: float = 0.0  # of a plain step
    _is_parted: bool = False  # drafts were made for sequences in lockstep, which have not come together since

    def earn_from(self, step_s: float, num_seqs: int) -> None:
        """Plain steps of so many sequences take `step_s`."""
        most_s = min(PARTING_STEPS[0] * num_seqs**2, PARTING_STEPS[1]) * step_s
        self._step_s = step_s
        self._budget.earn_from(step_s, most_s, least_s=-MAX_DEBT * most_s)

    def pass_steps(self, num_steps: int, is_together: bool) -> None:
        """This many steps were made. `is_together`: in the last of them, sequences were in lockstep and nothing was drafted."""
        self._budget.add(num_steps)
        self._is_parted &= not is_together
        if self._is_parted:
            self._budget.spend(PARTED_SHARE * self._step_s * num_steps)

    def spend(self, seconds: float) -> None:
        """What drafts have lost; below zero: gained."""
        self._budget.spend(seconds)

    def may_part(self) -> bool:
        """Whether decisions have promised enough for what is saved, or owed."""
        if self.promise.mean >= PROMISED and self._budget.left_s >= 0:
            return True
        return self.promise.mean >= PROMISED_PAID and self._budget.left_s >= ENOUGH * self._budget.most_s

    def part(self) -> None:
        """Drafts are made for sequences in lockstep."""
        self._is_parted = True
