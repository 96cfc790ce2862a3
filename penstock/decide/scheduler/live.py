"""A scheduler's state, as its plug-ins see it."""
from dataclasses import dataclass

from penstock.core.types import Seq
from penstock.decide.kv.manager import KVManager
from penstock.decide.scheduler.counters import Counters
from penstock.decide.scheduler.forecast import Load
from penstock.decide.scheduler.lengths import is_open
from penstock.decide.scheduler.limits import Limits
from penstock.decide.scheduler.promise import Claim, claim_of
from penstock.decide.scheduler.queue import Key, Queue
from penstock.decide.scheduler.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Live:
    running: Queue
    waiting: Waiting
    limits: Limits
    kv: KVManager
    counters: Counters

    def load(self, now: float) -> Load:
        decodes = [seq for seq in self.running if len(seq.tokens) - seq.num_computed <= 1]
        if any(map(is_open, decodes)):  # which share of what is known of lengths each has depends on its place
            decodes = self.running.some(decodes, now)
        return Load(now, decodes, self.prompts(now), self.limits, self.kv.num_free_tokens)

    def key(self, claim: Claim, now: float) -> Key:
        """Of one that may come then."""
        return self.waiting.order.key(claim, now)

    def key_of(self, claim: Claim) -> Key:
        """Of one of `prompts`, as of the last look."""
        return self.running.begun(claim.seq) if claim.seq in self.running else self.waiting.key(claim.seq)

    def begun(self, seq: Seq) -> Key:
        return self.running.begun(seq) if seq in self.running else self.waiting.order.begun(self.waiting.key(seq))

    def prompts(self, now: float) -> list[Claim]:
        """Of all that have more than one token to compute, the first to be served first: they wait, or are in progress."""
        prompts = self.waiting.claims(now)
        prefills = [seq for seq in self.running if len(seq.tokens) - seq.num_computed > 1]
        for seq in reversed(self.running.some(prefills, now)):
            prompts.insert(self.waiting.num_before(self.running.begun(seq)), claim_of(seq, self.waiting.costs))
        return prompts
