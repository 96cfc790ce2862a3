"""The benchmark of the twin keeps what it measured in one way together, and apart from all else."""
import json
from pathlib import Path
from typing import Any

import pytest
import twin_error

USUAL = {"quant": "none", "requests": 600, "rounds": 2, "slo": "ttft=300ms,tpot=20ms", "phase": 1.5, "max_num_seqs": 32}


def report(trace: str, load: float = 0.5, **asked: Any) -> dict[str, Any]:
    return {"model": "brook", **USUAL, **asked, "rows": [{"trace": trace, "load": load, "error": {"ttft_p50": 0.1}, "error_at_pace": {}}]}


@pytest.mark.parametrize(("asked", "name"), [
    ({}, "kept"), ({"quant": "int8"}, "kept-quant-int8"), ({"max_num_seqs": 8}, "kept-max-num-seqs-8"),
    ({"slo": "ttft=1s"}, "kept-slo-ttft-1s"), ({"requests": 9}, "kept-requests-9"),
    ({"model": "a/brook"}, "kept-model-a-brook")])
def test_rows_that_were_measured_alike_stay(tmp_path: Path, asked: dict[str, Any], name: str) -> None:
    path = tmp_path / "kept.json"
    for each in (report("a"), report("a:scale=0.5"), report("a", 0.8)):
        twin_error.keep(each, path)
    twin_error.keep(report("b", **asked), path)
    told = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    before = [] if asked else [("a", 0.5), ("a:scale=0.5", 0.5), ("a", 0.8)]
    assert [(row["trace"], row["load"]) for row in told["rows"]] == [*before, ("b", 0.5)]
    assert len(json.loads(path.read_text(encoding="utf-8"))["rows"]) == (3 if asked else 4)


def test_a_goal_is_judged_by_the_rows_that_have_its_figure() -> None:
    rows = [{"error": {"ttft_p50": error}, "error_at_pace": {}} for error in (0.01, -0.5)] + [{"error": {}, "error_at_pace": {}}]
    found = twin_error.kept(rows)
    assert (found["error"]["ttft_p50"], found["error"]["tpot_p99"], found["error_at_pace"]["ttft_p50"]) == ("1 of 2", "0 of 0", "0 of 0")


def test_figures_that_rounds_do_not_have_are_left_out() -> None:
    rounds = [{"tpot_p50": None, "ttft_p50": 0.2, "goodput_per_s": 0.0}, {"tpot_p50": None, "ttft_p50": None, "goodput_per_s": 0.0},
              {"tpot_p50": None, "ttft_p50": 0.3, "goodput_per_s": 4.0}]
    measured, spread = twin_error.middle(rounds)
    assert measured == {"tpot_p50": None, "ttft_p50": 0.25, "goodput_per_s": 0.0} and spread == {"ttft_p50": pytest.approx(0.5)}
    assert twin_error.errors({"tpot_p50": 0.1, "ttft_p50": 0.5}, measured) == {"ttft_p50": 1.0}


def test_a_trace_is_told_with_its_options_and_without_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "conv.csv"
    rows = "".join(f"2023-11-16 18:17:0{second}.9,37,10\n" for second in (3, 5))
    path.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}", encoding="utf-8")
    assert [twin_error.cut_of(f"{path}{options}", 9).name for options in ("", ":scale=0.5")] == ["conv.csv", "conv.csv:scale=0.5"]


def test_what_is_not_kept_alone_is_an_option_of_the_script() -> None:
    parser = twin_error.make_parser()
    assert {name: parser.get_default(name) for name in twin_error.WAY} == USUAL
