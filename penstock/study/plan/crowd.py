"""How many of a trace's requests are there at once, if each takes what arithmetic says: its bursts are not those of chance."""
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.study.measure.datasets.traces import Row
from penstock.study.plan.configuration import ARITHMETIC, Configuration
from penstock.study.plan.evaluate import MOST_BATCH, ms
from penstock.study.plan.load import Load

Array = Any


def crowded(rows: Sequence[Configuration], trace: Sequence[Row], load: Load) -> list[Configuration]:
    """Rows with seats for the most that are there at once in a replica; those that the twin has played are as they are."""
    due = np.sort([row.at_s for row in trace if row.num_prompt > 0 and row.num_output > 0])
    due = (due - due[0]) * ((len(due) - 1) / (due[-1] - due[0]) / (load.rate or 1.0))
    return [_crowded(row, due, load) if row.predicted_by == ARITHMETIC and row.e2e_s is not None else row for row in rows]


def _crowded(row: Configuration, due: Array, load: Load) -> Configuration:
    there = peak(due[:: row.replicas - row.prefill_replicas], row.e2e_s or 0.0)
    seats = min(MOST_BATCH, row.kv_tokens // (load.input + load.output))
    told = f"the most at once in the trace, {there:,}, if each takes its mean of {ms(row.e2e_s or 0.0)}"
    return replace(row, batch=min(there, seats), batch_told=told + (f", and there is room for {seats:,}" if seats < there else ""))


def peak(due: Array, seconds: float) -> int:
    """The most that come within so many seconds. `due` rises."""
    gone = np.searchsorted(due, due - seconds, side="right")
    return int((np.arange(1, len(due) + 1) - gone).max())
