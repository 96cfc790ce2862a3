"""What a runner does for drafts: checks those of a step, and asks for those of the next."""
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.compute.decoding.control import Control
from penstock.compute.decoding.propose.contract import Checked, Draftable, Drafts, Proposer
from penstock.compute.runner.batch import drafts_of
from penstock.compute.runner.known import Known
from penstock.core.clock import Clock
from penstock.core.types import PlannedSeq, SeqResult, StepPlan

Array = Any


class Drafting:
    """Of one step at a time: `began`, `check` if it has drafts, `keep`, `propose`."""

    def __init__(self, proposer: Proposer, control: Control, clock: Clock) -> None:
        self.buffers = proposer.needs.buffers  # of every step
        self._proposer = proposer
        self._control = control
        self._clock = clock
        self._checked: dict[int, Checked] = {}  # by sequence, of this step

    def forget(self, seq_id: int) -> None:
        self._proposer.forget(seq_id)
        self._control.forget(seq_id)

    def began(self, plan: StepPlan) -> None:
        num_rows, num_drafts = plan.num_tokens, sum([planned.num_drafts for planned in plan.seqs])
        steady = num_rows - num_drafts == len(plan.seqs) and all(planned.samples for planned in plan.seqs)
        self._checked.clear()
        self._control.began(self._clock.now(), num_rows, num_drafts, steady)

    def check(self, planned: PlannedSeq, rows: Sequence[int], choices: tuple[int, ...]) -> None:
        """`rows` as accept.walk gives them; `choices`: of all rows, if they are known."""
        drafts = Drafts(drafts_of(planned), planned.draft_parents)
        path = tuple([row - 1 for row in rows[1:]])
        self._checked[planned.seq_id] = Checked(drafts, path, choices)
        self._control.checked(planned.seq_id, planned.num_drafts, path)

    def keep(self, plan: StepPlan, known: Sequence[Known], buffers: Mapping[str, Array]) -> None:
        """Hidden states of tokens that stay wait for the next proposal."""
        first = 0
        for planned, each in zip(plan.seqs, known, strict=True):
            fixed = len(planned.tokens) - planned.num_drafts
            states = buffers["hidden"][first : first + len(planned.tokens)]
            checked = self._checked.get(planned.seq_id)
            stays = [*range(fixed), *(fixed + at for at in (checked.path if checked else ()))]
            each.keep_states(planned.start, states if len(stays) == len(states) else states[stays])
            first += len(planned.tokens)

    def propose(self, plan: StepPlan, known: Sequence[Known], results: list[SeqResult]) -> None:
        """Adds drafts for the next step to the results of sequences that chose a token."""
        places = [place for place, found in enumerate(results) if found.tokens]
        for place in places:
            known[place].tokens.extend(results[place].tokens)
        began = self._clock.now()
        others = sum([len(planned.tokens) for planned in plan.seqs if not planned.samples])
        rooms = self._control.rooms([plan.seqs[place].seq_id for place in places], others) if places else None
        if rooms is not None:
            asked = [(place, room) for place, room in zip(places, rooms, strict=True) if room]
            rows = [self._draftable(plan.seqs[place], known[place], room) for place, room in asked]
            for (place, _), row, drafts in zip(asked, rows, self._proposer.propose(rows), strict=True):
                self._control.offered(row.seq_id, len(drafts.tokens))
                if drafts.tokens:
                    results[place] = replace(results[place], drafts=drafts.tokens, draft_parents=drafts.parents)
        now = self._clock.now()
        self._control.ended(now, now - began if rooms is not None else 0.0)

    def _draftable(self, planned: PlannedSeq, known: Known, room: int) -> Draftable:
        return Draftable(planned.seq_id, known.tokens, planned.num_prompt, room, known.info.salt, known.take_states(),
                         self._checked.get(planned.seq_id), known.state)

