"""What an engine's steps were: sums over those that compute prompts and over those that only decode."""
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.core.types import PlannedSeq


@dataclass(slots=True)
class Steps:
    """Sums over steps of one kind. A sequence that is computed anew after a preemption has a prompt again, and a token for that."""

    count: int = 0
    seconds: float = 0.0
    decodes: int = 0  # tokens after the first, one for each sequence that decodes
    context: int = 0  # tokens that each of these sees
    prompts: int = 0  # stretches of prompts
    rows: int = 0  # tokens of these
    total: int = 0  # tokens of their sequences in the cache, after the step

    def add(self, other: "Steps") -> None:
        self.count += other.count
        self.seconds += other.seconds
        self.decodes += other.decodes
        self.context += other.context
        self.prompts += other.prompts
        self.rows += other.rows
        self.total += other.total


@dataclass(slots=True)
class Census:
    mixed: Steps = field(default_factory=Steps)  # with prompts
    decoding: Steps = field(default_factory=Steps)  # without
    num_preempted: int = 0

    @property
    def num_steps(self) -> int:
        return self.mixed.count + self.decoding.count

    @property
    def busy_s(self) -> float:
        return self.mixed.seconds + self.decoding.seconds

    @property
    def decode_tokens(self) -> int:
        return self.mixed.decodes + self.decoding.decodes

    @property
    def prefill_tokens(self) -> int:
        return self.mixed.rows

    def add_step(self, seqs: Sequence[PlannedSeq], seconds: float) -> None:
        step = Steps(1, seconds)
        for planned in seqs:
            count = len(planned.tokens)
            total = planned.start + count
            if planned.samples and planned.num_output > 0:
                step.decodes += 1
                step.context += total
                count -= 1
            if count:
                step.prompts += 1
                step.rows += count
                step.total += total
        (self.mixed if step.prompts else self.decoding).add(step)

    def add_steady(self, count: int, seconds: float, num_seqs: int, context: int) -> None:
        """So many steps of sequences that decode, one more token in each step. `context`: tokens that all of them see in the first."""
        decodes = num_seqs * count
        self.decoding.add(Steps(count, seconds, decodes, context * count + decodes * (count - 1) // 2))


def summed(found: Sequence[Census]) -> Census:
    whole = Census()
    for each in found:
        whole.mixed.add(each.mixed)
        whole.decoding.add(each.decoding)
        whole.num_preempted += each.num_preempted
    return whole
