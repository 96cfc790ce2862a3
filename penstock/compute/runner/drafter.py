"""What a runner does for drafts: checks those of a step, and asks for those of the next."""
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.compute.decoding.accept import walk
from penstock.compute.decoding.control.contract import Control, load_of
from penstock.compute.decoding.control.rest import Rest
from penstock.compute.decoding.propose.contract import Checked, Draftable, Drafts, Proposer
from penstock.compute.runner.batch import drafts_of
from penstock.compute.runner.known import Known
from penstock.core.clock import Clock
from penstock.core.drafting import depths
from penstock.core.types import PlannedSeq, SeqResult, StepPlan

Array = Any


@dataclass(frozen=True, slots=True)
class DryRun:
    """Drafts that no step checks: the sequence had `begin` tokens when they were made, and room for `room` drafts."""

    known: Known
    begin: int
    room: int
    drafts: Drafts

    def is_over(self) -> bool:
        """Whether as many tokens have come as there was room for: if failures were told before successes, those who are told would believe
        in too few of these."""
        return len(self.known.tokens) - self.begin >= self.room

    def path(self) -> tuple[int, ...]:
        """Those that would have been accepted (indices), by the tokens that have come since."""
        came, drafts = self.known.tokens[self.begin :], self.drafts
        if drafts.parents is None:
            right = 0
            while right < min(len(came), len(drafts.tokens)) and came[right] == drafts.tokens[right]:
                right += 1
            return tuple(range(right))
        ranks = (0, *depths(drafts.parents))  # by row of `walk`
        rows, _ = walk(drafts.tokens, drafts.parents, lambda row: came[ranks[row]] if ranks[row] < len(came) else None)
        return tuple([row - 1 for row in rows[1:]])


class Drafter:
    """Of one step at a time: `began`, `check` if it has drafts, `keep`, `propose`. None of it where more of `rest` is left than it wants
    to hear of; what was chosen meanwhile it then asks for.
    """

    def __init__(self, proposer: Proposer, control: Control, clock: Clock) -> None:
        self.buffers = proposer.needs.buffers  # of every step
        self.rest = Rest(control)
        self._proposer = proposer
        self._control = control
        self._clock = clock
        self._checked: dict[int, Checked] = {}  # by sequence, of this step
        self._own: set[int] = set()  # sequences whose drafts, in the next step, are the proposer's and not a grammar's
        self._dry: dict[int, DryRun] = {}  # by sequence
        self._rests = False  # the controller, in this step
        self._spent_s = 0.0  # here, of this step, before its rows were computed
        self._listen()

    def end(self, seq_id: int) -> None:
        """A sequence has ended, and so has its dry run: no more tokens will come."""
        run = self._dry.pop(seq_id, None)
        if run is not None:
            self.rest.end()
            self._control.tried(seq_id, run.room, len(run.drafts.tokens), run.path())
        self.forget(seq_id)

    def forget(self, seq_id: int) -> None:
        """It is as if it were new."""
        self._proposer.forget(seq_id)
        self.rest.end()
        self._control.forget(seq_id)
        self._own.discard(seq_id)
        self._dry.pop(seq_id, None)
        self.rest.begin()
        self._listen()

    def _listen(self) -> None:
        """Every token counts for a dry run, every hidden state for a proposer that takes them; else the last step of a rest is soon
        enough to ask for what was missed."""
        self.rest.heard = sys.maxsize if self._dry or self.buffers else 1

    def began(self, plan: StepPlan) -> None:
        self._rests = self.rest.left > 0
        if self._rests:
            self.rest.left -= 1
            return
        now = self._clock.now()
        self.rest.end()
        spelled = any(planned.num_drafts and planned.seq_id not in self._own for planned in plan.seqs)
        self._control.began(now, load_of(plan, spelled))
        self._spent_s = self._clock.now() - now

    def check(self, planned: PlannedSeq, rows: Sequence[int], choices: tuple[int, ...]) -> None:
        """`rows` as accept.walk gives them; `choices`: of all rows, if they are known."""
        drafts = Drafts(drafts_of(planned), planned.draft_parents)
        path = tuple([row - 1 for row in rows[1:]])
        self._checked[planned.seq_id] = Checked(drafts, path, choices)
        if planned.seq_id in self._own:
            self._control.checked(planned.seq_id, path)

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

    def propose(self, plan: StepPlan, known: Sequence[Known], results: list[SeqResult]) -> tuple[tuple[int, int], ...]:
        """Adds drafts for the next step to the results of sequences that chose a token and go on, unless their grammar has drafted.
        What it does not know, and would have to: (seq_id, from which token on)."""
        began = self._clock.now()
        self._checked, checked = {}, self._checked
        asks = note(plan, known, results)
        self._own = set()
        if self._rests:
            return asks
        if self._dry:
            self._end_dry_runs()
        places = [place for place, found in enumerate(results) if found.tokens and found.ended is None and not found.drafts]
        others = sum([len(planned.tokens) for planned in plan.seqs if not planned.samples])
        others += sum([1 + len(found.drafts) for found in results if found.drafts])
        rooms = self._control.rooms([plan.seqs[place].seq_id for place in places], others) if places and not asks else None
        num_asked = 0
        if rooms is not None:
            given = [(place, min(room, of_use(plan.seqs[place], known[place]))) for place, room in zip(places, rooms.most, strict=True)]
            asked = [(place, room) for place, room in given if room > 0]
            rows = [draftable(plan.seqs[place], known[place], room, checked) for place, room in asked]
            num_asked = len(rows)
            for (place, room), row, offered in zip(asked, rows, self._proposer.propose(rows), strict=True):
                drafts = allowed(known[place], offered if len(offered.tokens) <= room else among(offered, range(room)))
                if rooms.dry:
                    self._dry[row.seq_id] = DryRun(known[place], len(known[place].tokens), room, drafts)
                    continue
                self._control.offered(row.seq_id, room, len(drafts.tokens))
                if drafts.tokens:
                    self._own.add(row.seq_id)
                    results[place] = results[place].with_drafts(drafts.tokens, drafts.parents)
        now = self._clock.now()
        self._control.ended(now, self._spent_s + now - began, num_asked)
        self.rest.begin()
        self._listen()
        return asks

    def _end_dry_runs(self) -> None:
        for seq_id, run in list(self._dry.items()):
            if run.is_over():
                del self._dry[seq_id]
                self._control.tried(seq_id, run.room, len(run.drafts.tokens), run.path())


def note(plan: StepPlan, known: Sequence[Known], results: Sequence[SeqResult]) -> tuple[tuple[int, int], ...]:
    """Adds what was chosen to the tokens of those of whom all before it are known; of the others that go on (seq_id, how many are)."""
    behind = []
    for planned, each, found in zip(plan.seqs, known, results, strict=True):
        if not found.tokens:
            continue
        if len(each.tokens) == planned.start + len(planned.tokens) - planned.num_drafts:
            each.tokens.extend(found.tokens)
        elif found.ended is None:
            behind.append((planned.seq_id, len(each.tokens)))
    return tuple(behind)


def draftable(planned: PlannedSeq, known: Known, room: int, checked: Mapping[int, Checked]) -> Draftable:
    return Draftable(planned.seq_id, known.tokens, planned.num_prompt, room, known.info.salt, known.take_states(),
                     checked.get(planned.seq_id), known.state)


def of_use(planned: PlannedSeq, known: Known) -> int:
    """Drafts that a sequence can take at most: the token after the last of them is its last by max_tokens."""
    most = known.info.params.max_tokens
    return sys.maxsize if most is None else most - (len(known.tokens) - planned.num_prompt) - 1


def allowed(known: Known, drafts: Drafts) -> Drafts:
    """Those that the sequence's grammar allows."""
    matcher = known.state.matcher
    if matcher is None or not drafts.tokens:
        return drafts
    kept = matcher.allowed(drafts.tokens, drafts.parents)
    return drafts if len(kept) == len(drafts.tokens) else among(drafts, kept)


def among(drafts: Drafts, kept: Sequence[int]) -> Drafts:
    """Some of the drafts, in their order; with each the one that it follows."""
    tokens = tuple([drafts.tokens[at] for at in kept])
    if drafts.parents is None:
        return Drafts(tokens)
    place = {-1: -1, **{at: i for i, at in enumerate(kept)}}
    return Drafts(tokens, tuple([place[drafts.parents[at]] for at in kept]))
