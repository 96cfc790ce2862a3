"""How many of a trace's requests are there at once."""
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.study.plan.crowd import peak


@pytest.mark.parametrize(("seconds", "most"), [(0.5, 2), (1.0, 2), (1.5, 3), (100.0, 5)])
def test_the_most_that_come_within_a_time(seconds: float, most: int) -> None:
    assert peak(np.array([0.0, 1.0, 2.0, 2.25, 9.0]), seconds) == most


def test_a_burst_of_a_trace_takes_more_seats_than_chance_would(ask: Any, tmp_path: Path) -> None:
    trace = tmp_path / "bursts.jsonl"
    trace.write_text("".join(json.dumps(
        {"timestamp": 60_000 * (at // 40), "input_length": 100, "output_length": 20, "hash_ids": [at]}) + "\n" for at in range(400)))
    asked = {"quant": ("none",), "kv_dtype": ("auto",), "tensor_parallel": "1", "pipeline_parallel": "1", "prefill_split": False}
    row = ask("llama-2-7b", "l4", traffic=str(trace), simulate=False, **asked)[0]
    chance = ask("llama-2-7b", "l4", rate=row.requests_per_s, input=100, output=20, simulate=False, **asked)[0]
    assert row.replicas == 1 and row.batch == 40 > 2 * chance.batch and "the most at once in the trace, 40," in row.batch_told
    faster = ask("llama-2-7b", "l4", traffic=str(trace), rate=80 * row.requests_per_s, simulate=False, **asked)[0]
    assert faster.replicas > 1 and faster.batch < 400 / faster.replicas + 1
