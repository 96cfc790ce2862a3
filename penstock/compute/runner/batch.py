"""A StepPlan as the flat arrays that a backend takes."""
from dataclasses import dataclass

import numpy as np

from penstock.compute.backends.contract import Batch
from penstock.core.types import PlannedSeq, StepPlan


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows of one sequence whose logits are wanted, as offsets among its own: first those that tell of prompt tokens, then its end."""

    num_prompt: int  # offsets 0 .. num_prompt - 1 tell of the prompt tokens after them
    ends: bool  # the last row chooses a token


def wanted_rows(planned: PlannedSeq, prompt_logprobs: bool, chooses: bool) -> Wanted:
    num_prompt = max(0, min(len(planned.tokens), planned.num_prompt - 1 - planned.start)) if prompt_logprobs else 0
    return Wanted(num_prompt, planned.samples and chooses)


def assemble(plan: StepPlan, block_size: int, wanted: list[Wanted], buffers: tuple[str, ...]) -> Batch:
    """`wanted` holds one entry per planned sequence; the logits come in its order."""
    tokens: list[int] = []
    positions, slots, tables = [], [], []
    logit_rows: list[int] = []
    row_starts, contexts = [0], []
    for planned, rows in zip(plan.seqs, wanted, strict=True):
        first, end = planned.start, planned.start + len(planned.tokens)
        at = np.arange(first, end, dtype=np.int64)
        table = np.array(planned.block_ids, dtype=np.int64)
        logit_rows.extend(range(row_starts[-1], row_starts[-1] + rows.num_prompt))
        tokens.extend(planned.tokens)
        positions.append(at)
        slots.append(table[at // block_size] * block_size + at % block_size)
        tables.append(table)
        row_starts.append(len(tokens))
        contexts.append(end)
        if rows.ends:
            logit_rows.append(len(tokens) - 1)
    return Batch(
        tokens=np.array(tokens, dtype=np.int64), positions=np.concatenate(positions), slots=np.concatenate(slots),
        row_starts=np.array(row_starts, dtype=np.int64), contexts=np.array(contexts, dtype=np.int64), block_tables=tables,
        logit_rows=np.array(logit_rows, dtype=np.int64), copies=np.array(plan.copies, dtype=np.int64).reshape(-1, 2), wanted=buffers,
    )
