"""Structured outputs in the runner: masks for the rows of a step, and tokens that a grammar forces as drafts for the next step.

A grammar that fails, whatever it raises, ends the answer that follows it, and no other.
"""
import logging
from collections.abc import Sequence
from dataclasses import replace

from penstock.compute.decoding.grammar.ahead import MAX_FORCED
from penstock.compute.decoding.grammar.compiler import Compiler
from penstock.compute.decoding.grammar.masks import Masks, Path, lose
from penstock.compute.decoding.grammar.matcher import Matcher
from penstock.compute.decoding.masking import RowMasks
from penstock.compute.runner.batch import SampledRows, drafts_of
from penstock.compute.runner.cached_seq import CachedSeq
from penstock.core.errors import INTERRUPTS
from penstock.core.types import SeqResult, StepPlan

log = logging.getLogger("penstock.engine")


class Constraints:
    """Called once in each step, in this order: `begin_step`, `masks`, `advance`."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._masks = Masks(compiler.vocabulary.width)
        self._live: set[int] = set()  # sequences that follow a grammar
        self._lost: set[int] = set()  # those of them whose grammar could not be begun
        self._rows: list[int] = []  # of this step: indices into SampledRows that have a mask

    def enter(self, seq_id: int, cached: CachedSeq) -> None:
        """A sequence that is new to the runner."""
        if cached.info.params.structured_outputs is not None:
            self._live.add(seq_id)
            try:
                cached.state.matcher = self._compiler.matcher(cached.info.params, cached.info.output)
            except INTERRUPTS:
                raise
            except BaseException as error:  # a panic of native code is no Exception
                self._lost.add(seq_id)
                log.error("a grammar could not be begun: %s: %s", type(error).__name__, error, exc_info=error)

    def forget(self, seq_id: int) -> None:
        self._live.discard(seq_id)
        self._lost.discard(seq_id)

    def begin_step(self, plan: StepPlan, sampled: SampledRows) -> None:
        """Begins to compute the masks, on another thread."""
        self._rows = []
        if not self._live:
            return
        paths = []
        for place, first in sampled.first_rows().items():
            matcher = sampled.states[first].matcher
            if matcher is not None:
                matcher.alone = len(plan.seqs) == 1
                planned = plan.seqs[place]
                path = Path(matcher, drafts_of(planned), planned.draft_parents) if planned.num_drafts else Path(matcher)
                paths.append(path)
                self._rows += range(first, first + path.num_rows)
        if paths:
            self._masks.begin(paths)

    def masks(self) -> RowMasks | None:
        """The masks of this step's rows, once the backend's step has ended."""
        return RowMasks(self._rows, self._masks.take()) if self._rows else None

    def advance(self, cached: Sequence[CachedSeq], results: list[SeqResult]) -> None:
        """Advances grammars over the chosen tokens. Tokens after a grammar's end are removed; those that it forces next become drafts."""
        if not self._live:
            return
        for place, found in enumerate(results):
            matcher = cached[place].state.matcher
            if not found.tokens or (matcher is None and found.seq_id not in self._lost):
                continue
            num_kept, forced = (0, ()) if matcher is None else taken(matcher, found.tokens)
            results[place] = replace(
                found, tokens=found.tokens[:num_kept], logprobs=found.logprobs[:num_kept], drafts=forced,
                ended="abort" if matcher is None else matcher.ended, num_cut=len(found.tokens) - num_kept)


def taken(matcher: Matcher, tokens: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Advances over the tokens. Returns how many of them belong to the answer, and those that must follow."""
    try:
        return matcher.take(tokens), tuple(matcher.forced()[:MAX_FORCED])
    except INTERRUPTS:
        raise
    except BaseException as error:
        lose(matcher, error)
        return 0, ()
