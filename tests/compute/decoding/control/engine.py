"""An engine on a virtual clock whose step times are known, with a proposer that is right as often as the test says."""
import random

import numpy as np

from penstock.compute.decoding.control.contract import StepLoad
from penstock.compute.decoding.control.patient import Patient
from penstock.compute.decoding.control.skip import Skip

MAX_DRAFTS = 6


class Overridden:
    """A controller whose `limits` is replaced."""

    def __init__(self, controller, limits):
        self._controller, self.limits = controller, limits

    def __getattr__(self, name):
        return getattr(self._controller, name)


class SimulatedEngine:
    """An engine on a virtual clock. All times are in seconds."""

    def __init__(self, fixed: float, row: float, acceptance: dict[int, float], answers: float = 1.0, propose: float = 1e-5,
                 verify: float = 2e-5, host: float = 3e-5, context: float = 0.0, pair: float = 0.0, max_context: int = 0,
                 after_drafts: float = 0.0, decide: float = 0.0, catch_up: float = 0.0) -> None:
        """`acceptance`: by sequence, the probability that a draft is right if those before it are. `answers`: how often there are any.

        A step takes `fixed`, `host`, `row` for each row, `context` for each context token of a sequence, `pair` for each that a row attends
        to, `verify` more if it has drafts, and `after_drafts` more if only the step before it had some. Contexts start over when they reach
        `max_context`. Drafting takes `decide` in each step that is not skipped, and for each sequence that the proposer is asked about
        `propose`, plus `catch_up` for each step since it was last asked about it.
        """
        self.fixed, self.row, self.acceptance = fixed, row, acceptance
        self.answers, self.propose, self.verify, self.host = answers, propose, verify, host
        self.context_s, self.pair_s, self.max_context, self.after_drafts = context, pair, max_context, after_drafts
        self.decide, self.catch_up = decide, catch_up
        self.steps = 0
        self.asked_at: dict[int, int] = {}  # by sequence: the step at which the proposer was last asked about it
        self.context = 0.0  # tokens of each sequence
        self.controller = Patient(fixed + row * np.arange(1000), MAX_DRAFTS, context, pair)
        self.skip = Skip(self.controller)
        self.in_lockstep = self.is_fresh = False
        self.now = 0.0
        self.random = random.Random(0)
        self.drafts = dict.fromkeys(acceptance, 0)  # of the next step, by sequence
        self.plain_s = 0.0  # what plain decoding would have taken for the same tokens
        self.drafted_steps = 0
        self.drafted_last = False
        self.num_skipped = 0
        self.num_asked = 0
        self.computing = 0.0  # of this step: what is not the host's

    def step(self) -> None:
        count, drafted = len(self.drafts), sum(self.drafts.values())
        self.steps += 1
        is_skipped = self.skip.left > 0
        self.num_skipped += is_skipped
        if is_skipped:
            self.skip.left -= 1
        else:
            self.skip.end()
            load = StepLoad(count, drafted, int(self.context * count), True, self.in_lockstep, self.is_fresh)
            self.controller.begin_step(self.now, load)
        row = self.row + self.pair_s * self.context
        same = self.host + self.fixed + self.context_s * self.context * count
        self.computing = same - self.host + row * (count + drafted)
        self.now += self.computing + self.host
        self.now += self.verify if drafted else self.after_drafts * self.drafted_last
        self.drafted_last = drafted > 0
        self.drafted_steps += drafted > 0
        tokens = 0
        for seq_id, num in self.drafts.items():
            num_right = self.num_right(seq_id, num)
            tokens += 1 + num_right
            if num:
                self.controller.record_verified(seq_id, range(num_right), num)
        self.plain_s += tokens / count * (same + row * count)
        self.context = (self.context + tokens / count) % self.max_context if self.max_context else self.context
        self.drafts = dict.fromkeys(self.drafts, 0)
        if not is_skipped:
            self.draft()

    def draft(self) -> None:
        limits, drafting = self.controller.limits(list(self.drafts), 0), self.decide
        for seq_id, limit in zip(self.drafts, limits.max_drafts if limits is not None else (), strict=False):
            if limits is None or not limit:
                continue
            num_missed = min(self.steps - self.asked_at.get(seq_id, 0), 100)
            drafting += self.propose + self.catch_up * num_missed
            self.asked_at[seq_id] = self.steps
            self.num_asked += 1
            num = limit if self.random.random() < self.answers else 0
            self.controller.record_proposal(seq_id, num)
            self.drafts[seq_id] = 0 if limits.only_counted else num
        self.now += drafting
        self.controller.end_step(self.now, drafting, self.computing)
        self.skip.begin()

    def step_without_sequences(self) -> None:
        """The last sequence has ended, and a prompt is computed."""
        if self.skip.left > 0:
            self.skip.left -= 1
            return
        self.skip.end()
        self.controller.begin_step(self.now, StepLoad(1, 0, 0, False))
        self.now += self.fixed + 100 * self.row
        self.controller.end_step(self.now, self.decide, self.fixed + 100 * self.row)
        self.skip.begin()

    def forget(self, seq_id: int) -> None:
        self.skip.end()
        self.controller.forget(seq_id)
        self.skip.begin()

    def num_right(self, seq_id: int, count: int) -> int:
        found = 0
        while found < count and self.random.random() < self.acceptance[seq_id]:
            found += 1
        return found

    def speedup(self, steps: int) -> float:
        """Tokens per second over the next steps, relative to plain decoding."""
        now, plain_s = self.now, self.plain_s
        for _ in range(steps):
            self.step()
        return (self.plain_s - plain_s) / (self.now - now)
