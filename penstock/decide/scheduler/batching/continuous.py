"""Sequences enter between any two steps (iteration-level scheduling: Yu et al., Orca, OSDI 2022)."""
from penstock.core.types import Seq
from penstock.decide.scheduler.entry import EntryView


class Continuous:
    def may_enter(self, seq: Seq, view: EntryView) -> bool:
        return True

    def opens_s(self, view: EntryView) -> float:
        return view.now
