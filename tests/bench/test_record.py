"""What was measured in one way stays together, and apart from all else."""
import json
from pathlib import Path
from typing import Any

from versus.record import MOST_NAMED, keep_rows, named


def kept(path: Path, seconds: float, text: str, **rows: int) -> dict[str, Any]:
    told = {"seconds": seconds, "text": text, "date": "now", "rows": [{"case": case, "figure": figure} for case, figure in rows.items()]}
    return keep_rows(told, path, ("seconds", "text"), lambda row: row["case"], lambda rows: {"sum": sum(row["figure"] for row in rows)})


def test_rows_of_one_way_come_together_and_those_of_another_go_beside(tmp_path: Path) -> None:
    path = tmp_path / "b-qwen3-0.6b.json"
    kept(path, 6.0, "x", a=1, b=2)
    whole = kept(path, 6.0, "x", b=3, c=4)
    assert whole == json.loads(path.read_text()) and whole["sum"] == 8
    assert [(row["case"], row["figure"]) for row in whole["rows"]] == [("a", 1), ("b", 3), ("c", 4)]
    assert [row["case"] for row in kept(path, 3.0, "x", b=5)["rows"]] == ["b"]
    assert [row["case"] for row in kept(path, 3.0, "x", d=5)["rows"]] == ["b", "d"]
    assert [row["case"] for row in kept(path, 3.0, "y", d=5)["rows"]] == ["d"]
    assert json.loads(path.read_text()) == whole
    names = {each.name for each in tmp_path.iterdir()}
    assert names == {path.name, "b-qwen3-0.6b-seconds-3-0.json", "b-qwen3-0.6b-seconds-3-0-text-y.json"}


def test_a_name_stays_short_and_tells_apart() -> None:
    many = [{"texts": [f"book {number}" for number in range(last)]} for last in (90, 91)]
    first, second = map(named, many)
    assert len(first) == len(second) < MOST_NAMED + 12 and first != second and first.startswith("-texts-book-0-book-1")
    assert named({}) == "" and named({"gap_s": 0.5}) == "-gap-s-0-5"
