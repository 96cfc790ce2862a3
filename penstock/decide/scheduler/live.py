"""A scheduler's state, as its plug-ins see it."""
from dataclasses import dataclass

from penstock.decide.kv.manager import KVManager
from penstock.decide.scheduler.counters import Counters
from penstock.decide.scheduler.forecast import Load
from penstock.decide.scheduler.limits import Limits
from penstock.decide.scheduler.queue import Queue
from penstock.decide.scheduler.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Live:
    running: Queue
    waiting: Waiting
    limits: Limits
    kv: KVManager
    counters: Counters

    def load(self, now: float) -> Load:
        seqs = self.running.in_order(now)
        decodes = [seq for seq in seqs if len(seq.tokens) - seq.num_computed <= 1]
        prefills = [seq for seq in seqs if len(seq.tokens) - seq.num_computed > 1]
        return Load(now, decodes, prefills, self.waiting.claims(now), self.limits, self.kv.num_free_tokens)
