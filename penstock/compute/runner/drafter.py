"""Speculative decoding in the runner: reports what became of a step's drafts, and obtains those of the next step."""
from collections.abc import Collection, Mapping, Sequence

from penstock.compute.arrays import Array
from penstock.compute.decoding.control.contract import Controller, DraftLimits, step_load
from penstock.compute.decoding.control.skip import Skip
from penstock.compute.decoding.grammar.masks import lose
from penstock.compute.decoding.propose.contract import Draftable, Drafts, Proposer, Verification
from penstock.compute.runner.batch import drafts_of
from penstock.compute.runner.cached_seq import CachedSeq
from penstock.compute.runner.guarded import Guarded, or_else
from penstock.compute.runner.verify import without_none
from penstock.core.clock import Clock
from penstock.core.drafting import depths
from penstock.core.errors import INTERRUPTS
from penstock.core.types import PlannedSeq, SeqResult, StepPlan

SHOWN_STATES = 8  # the latest steps before the one after which a proposer is asked that output hidden states, if it needs so many
STATE_BYTES = 256 << 20  # of hidden states of all sequences that no proposer has seen yet


class Drafter:
    """Connects the runner, a proposer and the controller that limits drafts.

    Called once in each step, in this order: `begin_step`, `record_verified` for each sequence with drafts, `keep_states`, `propose`. A step
    may leave out all of these while `skip.left` exceeds `skip.num_shown`, decrementing `skip.left` instead; the tokens of such steps are
    requested later, by `propose`.
    """

    def __init__(self, proposer: Proposer, controller: Controller, clock: Clock, vocab_size: int) -> None:
        self.buffers: tuple[str, ...] = ()  # that this step must output
        self._buffers = proposer.needs.buffers  # that those must after which the proposer may be asked
        self._most_states = proposer.needs.num_states  # of each sequence
        self._num_stated = min(SHOWN_STATES + 1, self._most_states) if self._buffers else 0  # the latest steps that output them
        self._shows_verified = proposer.needs.verified_drafts
        # The last skipped step is needed, so that missing tokens can be requested before the first step that is not skipped.
        self.skip = Skip(controller, least_shown=1, most_shown=self._num_stated - 1)
        self._proposer = Guarded(proposer, vocab_size)
        self._controller = controller
        self._clock = clock
        self._paths: dict[int, tuple[int, ...]] = {}  # by sequence: the drafts that this step accepted
        self._verifications: dict[int, Verification] = {}  # by sequence: the drafts that this step verified, where the proposer needs them
        self._proposed: set[int] = set()  # sequences whose drafts in the next step are the proposer's, not a grammar's
        self.is_lost = False
        self._is_skipped = False  # the controller does not observe this step
        self.spent_s = 0.0  # in this step, by this drafter

    @property
    def has_failed(self) -> bool:
        """The proposer or the controller has failed. The runner may go on without the drafter: answers stay the same."""
        return self.is_lost or self._proposer.has_failed

    @or_else(None)
    def finish(self, seq_id: int, ended: CachedSeq | None = None, output: Sequence[int] = ()) -> None:
        """A sequence has ended. `output`: to be learned from, since some of it came while nothing was asked."""
        if ended is not None and output:
            self.skip.end()
            if self._controller.invests():
                began, info = self._clock.now(), ended.info
                self._proposer.propose([Draftable(seq_id, [*info.prompt, *output], len(info.prompt), 0, info.salt)])
                self._controller.invested(self._clock.now() - began)
        self.forget(seq_id)

    @or_else(None)
    def forget(self, seq_id: int) -> None:
        """Drops everything about a sequence, which may come back as a new one."""
        self._proposer.forget(seq_id)
        self.skip.end()
        self._controller.forget(seq_id)
        self._proposed.discard(seq_id)
        self.skip.begin()

    @or_else(None)
    def begin_step(self, plan: StepPlan, cached: Sequence[CachedSeq]) -> None:
        left = self.skip.left
        self._is_skipped, self.spent_s = left > 0, 0.0
        self.buffers = self._buffers if left + self.skip.num_unasked < self._num_stated else ()
        if self._is_skipped:
            self.skip.left -= 1
            return
        now = self._clock.now()
        self.skip.end()
        drafted = [planned.seq_id for planned in plan.seqs if planned.num_drafts]
        has_grammar_drafts = bool(drafted) and not self._proposed.issuperset(drafted)
        self._controller.begin_step(now, step_load(plan, has_grammar_drafts, [seq.info.params.max_tokens for seq in cached]))
        self.spent_s = self._clock.now() - now

    @or_else(None)
    def record_verified(self, planned: PlannedSeq, rows: Sequence[int], choices: Sequence[int | None]) -> None:
        """`rows`: the accepted path as accept.walk returns it; `choices`: the model's choice after each row, empty if some are unknown."""
        seq_id, parents = planned.seq_id, planned.draft_parents
        path = self._paths[seq_id] = tuple([row - 1 for row in rows[1:]])
        if self._shows_verified:
            self._verifications[seq_id] = Verification(Drafts(drafts_of(planned), parents), path, without_none(choices))
        if seq_id in self._proposed:
            self._controller.record_verified(seq_id, path, max(depths(parents)) if parents else planned.num_drafts)

    @or_else(None)
    def keep_states(
        self, plan: StepPlan, cached: Sequence[CachedSeq], buffers: Mapping[str, Array], every: Collection[CachedSeq]
    ) -> None:
        """Keeps the hidden states of tokens, not of rejected drafts, for the next proposal: of sequences for which there may be one. Where
        those of `every` sequence, in the step or not, take too much memory, those with the most are dropped."""
        hidden, first = buffers["hidden"], 0
        for planned, seq in zip(plan.seqs, cached, strict=True):
            num_rows, num_drafts = len(planned.tokens), planned.num_drafts
            if seq.generates:
                states = hidden[first : first + num_rows]
                path = self._paths.get(planned.seq_id, ()) if num_drafts else ()
                if len(path) < num_drafts:
                    num_fixed = num_rows - num_drafts
                    states = states[[*range(num_fixed), *[num_fixed + draft for draft in path]]]
                seq.keep_states(planned.start, states, self._most_states)
            first += num_rows
        surplus = sum([seq.num_states for seq in every]) - STATE_BYTES // (4 * hidden.shape[1])
        for seq in sorted(every, key=lambda seq: -seq.num_states) if surplus > 0 else ():
            if surplus > 0:
                surplus -= seq.num_states
                seq.drop_states()

    @or_else(())
    def propose(
        self, plan: StepPlan, cached: Sequence[CachedSeq], results: list[SeqResult], computing_s: float
    ) -> tuple[tuple[int, int], ...]:
        """Adds drafts for the next step to the results of sequences that chose a token, unless their grammar has ended or has drafted. The
        scheduler ends some of these; the proposer is shown what they said last.

        Returns `StepResult.asks`: (seq_id, index of the first missing token) of sequences of which tokens are missing here. Nothing is
        drafted until the next plan has brought them.
        """
        began = self._clock.now()
        missing = append_tokens(plan, cached, results)
        self._proposed.clear()
        if not self._is_skipped and not missing:
            places, num_other_rows = draftable(plan, results)
            seq_ids = [plan.seqs[place].seq_id for place in places]
            limits = self._controller.limits(seq_ids, num_other_rows) if places else None
            if limits is not None:
                self._ask(plan, cached, results, places, limits)
        self._paths.clear()
        self._verifications.clear()
        if self._is_skipped:
            return missing
        now = self._clock.now()
        self.spent_s += now - began
        self._controller.end_step(now, self.spent_s, computing_s)
        self.skip.begin()
        return missing

    def _ask(
        self, plan: StepPlan, cached: Sequence[CachedSeq], results: list[SeqResult], places: Sequence[int], limits: DraftLimits
    ) -> None:
        """Adds to the results of these places what the proposer drafts within the limits."""
        has_states, record, asked, rows = bool(self.buffers), self._controller.record_proposal, [], []
        for place, limit in zip(places, limits.max_drafts, strict=True):
            seq = cached[place]
            room = min(limit, seq.longest - len(seq.tokens) - 1)  # of one more nothing could follow
            if room > 0:
                planned = plan.seqs[place]
                asked.append(place)
                rows.append(Draftable(
                    planned.seq_id, seq.tokens, planned.num_prompt, room, seq.info.salt, seq.states() if has_states else None,
                    self._verifications.get(planned.seq_id), seq.state, limits.sure))
        for place, row, proposed in zip(asked, rows, self._proposer.propose(rows), strict=True):
            seq = cached[place]
            if has_states and not proposed.is_reading:
                seq.drop_states()
            if not proposed.tokens:
                record(row.seq_id, None if proposed.is_reading else 0)
                continue
            if len(proposed.tokens) > row.room:
                proposed = subset(proposed, range(row.room))
            if seq.state.matcher is not None:
                proposed = allowed(seq, proposed)
            record(row.seq_id, len(proposed.tokens))
            if proposed.tokens and not limits.only_counted:
                self._proposed.add(row.seq_id)
                results[place] = results[place].with_drafts(proposed.tokens, proposed.parents)


def append_tokens(plan: StepPlan, cached: Sequence[CachedSeq], results: Sequence[SeqResult]) -> tuple[tuple[int, int], ...]:
    """Appends the chosen tokens to each sequence whose earlier tokens are all known. Returns (seq_id, number of known tokens) of the
    others that continue."""
    missing = []
    for planned, seq, found in zip(plan.seqs, cached, results, strict=True):
        if not found.tokens:
            continue
        if len(seq.tokens) == planned.start + len(planned.tokens) - planned.num_drafts:
            seq.tokens.extend(found.tokens)
        elif found.ended is None:
            missing.append((planned.seq_id, len(seq.tokens)))
    return tuple(missing)


def draftable(plan: StepPlan, results: Sequence[SeqResult]) -> tuple[list[int], int]:
    """(the places of sequences for which there may be drafts, the rows that others will have in the next step)."""
    places, num_other_rows = [], 0
    for place, (planned, found) in enumerate(zip(plan.seqs, results, strict=True)):
        if not planned.samples:
            num_other_rows += len(planned.tokens)
        if found.drafts:
            num_other_rows += 1 + len(found.drafts)
        elif found.tokens and found.ended is None:
            places.append(place)
    return places, num_other_rows


def allowed(cached: CachedSeq, drafts: Drafts) -> Drafts:
    """The drafts that the sequence's grammar allows."""
    matcher = cached.state.matcher
    if matcher is None or not drafts.tokens:
        return drafts
    try:
        kept = matcher.allowed(drafts.tokens, drafts.parents)
    except INTERRUPTS:
        raise
    except BaseException as error:
        lose(matcher, error)
        return Drafts()
    return drafts if len(kept) == len(drafts.tokens) else subset(drafts, kept)


def subset(drafts: Drafts, kept: Sequence[int]) -> Drafts:
    """The drafts at these indices, which are rising and with each draft contain its parent."""
    tokens = tuple([drafts.tokens[draft] for draft in kept])
    if drafts.parents is None:
        return Drafts(tokens)
    index = {-1: -1, **{draft: i for i, draft in enumerate(kept)}}
    return Drafts(tokens, tuple([index[drafts.parents[draft]] for draft in kept]))
