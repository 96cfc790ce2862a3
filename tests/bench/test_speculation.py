import json

import pytest
import speculation


def record(rounds: int, **ratios: float) -> dict:
    return {"rounds": rounds, "date": "today", "rows": [
        {"workload": "story", "propose": name.split("_")[0], "concurrency": int(name.split("_")[1]), "ratio": ratio}
        for name, ratio in ratios.items()]}


@pytest.mark.parametrize(("rounds", "left"), [
    (2, {("auto", 1): 1.0, ("ngram", 8): 0.9, ("auto", 8): 1.2, ("auto", 16): 1.3}),  # measured in the same way
    (3, {("auto", 8): 1.2, ("auto", 16): 1.3}),
])
def test_rows_that_a_run_did_not_measure_stay(tmp_path, rounds, left) -> None:
    path = tmp_path / "kept.json"
    speculation.keep(record(2, ngram_8=0.9, auto_8=1.1, auto_1=1.0), path)
    speculation.keep(record(rounds, auto_16=1.3, auto_8=1.2), path)
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert {(row["propose"], row["concurrency"]): row["ratio"] for row in rows} == left
    assert [row["concurrency"] for row in rows] == sorted(row["concurrency"] for row in rows)
