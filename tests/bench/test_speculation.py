import hashlib
import json
import sys
from pathlib import Path

import pytest
import speculation
from drafts import echo

from penstock.core.config import EngineConfig


def record(rounds: int, **ratios: float) -> dict:
    return {"rounds": rounds, "date": "today", "rows": [
        {"workload": "story", "propose": name.split("_")[0], "concurrency": int(name.split("_")[1]), "ratio": ratio}
        for name, ratio in ratios.items()]}


@pytest.mark.parametrize(("way", "name", "left"), [
    ({}, "kept.json", {("auto", 1): 1.0, ("ngram", 8): 0.9, ("auto", 8): 1.2, ("auto", 16): 1.3}),  # measured in the same way
    ({"rounds": 3}, "kept-rounds-3.json", {("auto", 8): 1.2, ("auto", 16): 1.3}),
    ({"texts": ["b 1f"]}, "kept-texts-b-1f.json", {("auto", 8): 1.2, ("auto", 16): 1.3}),
])
def test_rows_that_a_run_did_not_measure_stay(tmp_path, way, name, left) -> None:
    path = tmp_path / "kept.json"
    speculation.keep(record(2, ngram_8=0.9, auto_8=1.1, auto_1=1.0), path)
    speculation.keep({**record(2, auto_16=1.3, auto_8=1.2), **way}, path)
    assert len(json.loads(path.read_text(encoding="utf-8"))["rows"]) == (3 if way else 4)
    rows = json.loads((tmp_path / name).read_text(encoding="utf-8"))["rows"]
    assert {(row["propose"], row["concurrency"]): row["ratio"] for row in rows} == left
    assert [row["concurrency"] for row in rows] == sorted(row["concurrency"] for row in rows)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Of ten paragraphs."""
    path = tmp_path / "text"
    path.write_text("\n\n".join(f"{i} " + "the fox and the king " * 20 for i in range(10)), encoding="utf-8")
    return path


ECHO = ["--echo", "qwen3-0.6b", "--folder", "{tmp}/made"]
DRAFTER = ["--drafter", "qwen3-0.6b", "--propose", "draft_model"]
TEXT = ["--text", "{tmp}/text", "--concurrency", "1"]


@pytest.mark.parametrize(("words", "why"), [
    ([], "--text names the files"), (["--text", "{tmp}/none"], "there is no file"), (["--text", "{tmp}"], "is a folder, not a file"),
    (["--text", "{tmp}/text", "--concurrency", "11"], "has 10 paragraphs"), ([*TEXT, "--concurrency", "0"], "at least 1, not 0"),
    ([*TEXT, "--rounds", "0"], "at least 1, not 0"), ([*TEXT, "--rounds", "many"], "a whole number, not 'many'"),
    ([*TEXT, "--restarts", "-1"], "at least 1, not -1"), ([*TEXT, "--threads", "0"], "at least 1, not 0"),
    ([*TEXT, "--new", "1"], "at least 8, not 1"), ([*TEXT, "--new", "1000"], "--new 1,000 must be at most"),
    ([*TEXT, "--propose", "nobody"], "unknown proposer 'nobody'; known: "), ([*TEXT, "--propose", ""], "no value"),
    ([*TEXT, "--propose", "ngram:speed=1"], "no option 'speed'"), ([*TEXT, "--propose", "draft_model:model=nobody"], "no folder 'nobody'"),
    ([*TEXT, "--backend", "nobody"], "unknown backend 'nobody'"),
    ([*TEXT, "--model", "nobody"], "no folder 'nobody'"), ([*TEXT, "--quant", "int3"], "unknown weight format 'int3'"),
    ([*TEXT, "--workloads", "tell"], "the workloads without --echo are story, copy, mixed, not tell"),
    ([*TEXT, "--workloads", "sing"], "invalid choice: 'sing'"), ([*TEXT, *ECHO], "leave out --model and --text"),
    (ECHO[:2], "--echo needs --folder"), ([*ECHO[:2], "--folder", "{tmp}/text/made"], "is a file, not a folder"),
    ([*ECHO, "--model", "brook"], "leave out --model"), ([*ECHO, "--workloads", "story"], "of --echo are quote, edit, tell, not story"),
    ([*ECHO, "--propose", "nobody"], "unknown proposer"), ([*ECHO, "--quant", "int3"], "unknown weight format"),
    ([*ECHO, "--agree", "0.5"], "--agree says"), ([*ECHO, *DRAFTER, "--agree", "1.5"], "at most 1, not 1.5"),
    ([*ECHO, *DRAFTER[:2]], "name one of them with --propose"), ([*TEXT, *DRAFTER], "--folder and --drafter are for what --echo makes")])
def test_what_cannot_be_is_refused_before_anything_is_made(text, tmp_path, monkeypatch, capsys, words, why) -> None:
    monkeypatch.setattr(sys, "argv", ["speculation.py", *(word.format(tmp=tmp_path) for word in words)])
    monkeypatch.delattr(speculation, "build")
    with pytest.raises(SystemExit) as ended:
        speculation.main()
    said = capsys.readouterr()
    assert ended.value.code == 2 and not said.out and not (tmp_path / "made").exists()
    assert said.err.startswith("speculation.py: error: ") and said.err.count("\n") == 1 and why in said.err


def chosen(*words: str):
    args = speculation.make_parser().parse_args(words)
    speculation.check(args)
    return args


def test_the_backend_is_that_which_penstock_chooses_unless_one_is_named(text) -> None:
    for words, backend in (((), EngineConfig().backend), (("--backend", "reference"), "reference")):
        args = chosen("--text", str(text), "--concurrency", "1", *words)
        assert args.backend == speculation.config_of("brook", "", 2, args).backend == backend


def test_a_record_is_named_by_what_is_not_as_usual(text) -> None:
    for words, name in (([], ""), (["--rounds", "3", "--new", "64"], "-new-64-rounds-3"), (["--restarts", "2"], "-restarts-2")):
        assert speculation.of(chosen("--text", str(text), "--concurrency", "1", *words)) == f"brook-none{name}"


def test_prompts_that_were_looked_at_come_again(text) -> None:
    args = chosen("--text", str(text), "--concurrency", "1", "3", "--propose", "ngram", "plain", "--workloads", "copy", "story")
    model, asked = speculation.ready(args)
    assert (model, args.model, [*asked]) == ("brook", "brook", ["copy", "story"])
    _, fresh = speculation.telling(args)
    assert [asked[name](3) for name in asked] == [fresh[name](3) for name in asked]


def test_what_was_measured_stays_where_more_fails_later(text, tmp_path, monkeypatch) -> None:
    def measure(model, workloads, concurrency, args):
        if concurrency == 4:
            raise SystemExit("story: 16 paragraphs are asked for at once, and the text has 10")
        return [speculation.Row("story", "ngram", concurrency, 1.5, *[None] * 7, 0, 0)]

    for name, fake in (("measure", measure), ("ready", lambda args: ("brook", {})), ("RESULTS", tmp_path / "kept")):
        monkeypatch.setattr(speculation, name, fake)
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(sys, "argv", ["speculation.py", "--text", str(text), "--concurrency", "1", "2", "4", "--record"])
    with pytest.raises(SystemExit, match="paragraphs"):
        speculation.main()
    (path,) = (tmp_path / "kept").iterdir()
    told = json.loads(path.read_text(encoding="utf-8"))
    assert [row["concurrency"] for row in told["rows"]] == [1, 2] and path.name.endswith("-speculation-brook-none.json")
    assert told["texts"] == [f"text {hashlib.sha256(text.read_bytes()).hexdigest()[:8]}"]


def test_what_is_made_is_ready(tmp_path, monkeypatch) -> None:
    tiny = {**echo.SHAPES["qwen3-0.6b"], "vocab_size": 4096, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    monkeypatch.setitem(echo.SHAPES, "tiny", tiny)
    words = ["--echo", "tiny", "--folder", str(tmp_path), "--drafter", "tiny", "--propose", "draft_model:k=2", "--concurrency", "2"]
    args = chosen(*words)
    model, asked = speculation.ready(args)
    assert model == str(tmp_path / "tiny") and [*asked] == ["quote", "edit"] and args.agree == 0.8
    assert args.given == {"draft_model:k=2": f",model={tmp_path / 'tiny-right-0.8'}"}
    assert speculation.config_of(model, "draft_model:k=2", 2, args).propose == f"draft_model:k=2,model={tmp_path / 'tiny-right-0.8'}"
