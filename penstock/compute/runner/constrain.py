"""What a runner does for sequences that follow a grammar: masks for a step's rows, and what must come next as drafts for the next step."""
from collections.abc import Sequence
from dataclasses import replace

from penstock.compute.decoding.grammar.compiler import Compiler
from penstock.compute.decoding.grammar.masks import Masks, Path
from penstock.compute.decoding.masking import RowMasks
from penstock.compute.runner.batch import Choosing, drafts_of
from penstock.compute.runner.known import Known
from penstock.core.types import SeqResult, StepPlan

MOST_FORCED = 32  # tokens that are offered at once


class Constraints:
    """Of one step at a time: `began`, `masks`, `follow`."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._masks = Masks(compiler.vocabulary.width)
        self._live: set[int] = set()  # sequences that follow a grammar
        self._rows: list[int] = []  # of this step, among those that choose

    def enter(self, seq_id: int, known: Known, before: Known | None) -> None:
        """A sequence that the runner sees for the first time, or again after it was preempted: then its grammar is still where it was.
        `before`: what was known of it."""
        if known.info.params.structured_outputs is not None:
            matcher = None if before is None else before.state.matcher
            if matcher is None or not matcher.stands_behind(known.info.output):
                matcher = self._compiler.matcher(known.info.params, known.info.output)
            known.state.matcher = matcher
            self._live.add(seq_id)

    def forget(self, seq_id: int) -> None:
        self._live.discard(seq_id)

    def began(self, plan: StepPlan, choosing: Choosing) -> None:
        """Masks are worked out from here on, on another thread."""
        self._rows = []
        if not self._live:
            return
        paths = []
        starts = {**dict(zip(choosing.places, range(len(choosing.places)), strict=True)), **choosing.drafted}
        for place, first in starts.items():
            matcher = choosing.states[first].matcher
            if matcher is not None:
                planned = plan.seqs[place]
                path = Path(matcher, drafts_of(planned), planned.draft_parents) if planned.num_drafts else Path(matcher)
                paths.append(path)
                self._rows += range(first, first + path.num_rows)
        if paths:
            self._masks.begin(paths)

    def masks(self) -> RowMasks | None:
        """Of the rows that choose, once the step is computed."""
        return RowMasks(self._rows, self._masks.take()) if self._rows else None

    def follow(self, known: Sequence[Known], results: list[SeqResult]) -> None:
        """Grammars go on over what was chosen. Nothing is kept behind the end of one; what one spells out next becomes drafts."""
        if not self._live:
            return
        for place, found in enumerate(results):
            matcher = known[place].state.matcher
            if matcher is None or not found.tokens:
                continue
            num_kept = matcher.take(found.tokens)
            forced = tuple(matcher.forced()[:MOST_FORCED])
            results[place] = replace(
                found, tokens=found.tokens[:num_kept], logprobs=found.logprobs[:num_kept], ended=matcher.ended, drafts=forced)
