"""Every benchmark tells what its options are, and refuses what they cannot be in one sentence, with status 2."""
import importlib
import json
import sys
from pathlib import Path

import pytest
from versus import arguments
from versus.processes import BENCH

SCRIPTS = sorted(path.stem for path in BENCH.glob("*.py"))
SIGNED = ("--seed",)


def numbers(value: object) -> list[float]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, int | float)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_option_says_what_it_is(name: str) -> None:
    parser = importlib.import_module(name).make_parser()
    assert [action.option_strings for action in parser._actions if not (action.help or "").strip()] == []
    told = parser.format_help()
    assert all(action.option_strings[-1] in told for action in parser._actions) and "None" not in told


@pytest.mark.parametrize("name", SCRIPTS)
def test_numbers_are_checked_and_so_is_what_is_there(name: str, tmp_path: Path) -> None:
    for action in importlib.import_module(name).make_parser()._actions:
        for wrong in ("-7", "nan", str(tmp_path / "missing" / "file")):
            try:
                value = action.type(wrong) if action.type is not None else None
            except (arguments.Refused, ValueError):
                continue
            assert not numbers(value) or action.option_strings[0] in SIGNED, f"{action.option_strings[0]} {wrong}"


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_unknown_option_is_one_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(name).make_parser().parse_args(["--nonsense=1"])
    assert ended.value.code == 2 and len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(("name", "words", "why"), [
    ("client_overhead", ["--rate", "0"], "above 0"), ("client_overhead", ["--tokens", "1"], "at least 2"),
    ("clients", ["--load", "clock,nothing"], "there is no 'nothing'; there are: clock"), ("clients", ["--vllm", "{tmp}/none"], "no file"),
    ("clock", ["--port", "65536"], "at most 65,535"), ("compared", ["docs"], "unrecognized"),
    ("cpu_decode", ["--depths", "0,-1"], "at least 0"), ("cpu_decode", ["--model", "nobody"], "no folder 'nobody'"),
    ("cpu_decode", ["--ours", "quant=int4"], "--formats says it"), ("cpu_prefill", ["--lengths", "0"], "at least 1"),
    ("cpu_prefill", ["--models", "{tmp}/none"], "no folder"), ("cpu_serving", ["--streams", "", "--mixed", ""], "nothing to measure"),
    ("cpu_serving", ["--ours", "evict=nothing"], "unknown eviction policy"), ("explain_gains", ["--case", ","], "names nothing"),
    ("explain_gains", ["--model", "nobody"], "no folder 'nobody'"), ("goodput", ["--orders", "fcfs+what"], "+slo"),
    ("goodput", ["--orders", "nobody"], "unknown order"), ("goodput", ["--kv-tokens", "16"], "at least 944"),
    ("gpu_limits", ["--part", "h100"], "there is no 'h100'"), ("gpu_limits", ["--part", "l4", "--layers", "bert"], "there is no 'bert'"),
    ("grammar_mask", ["--schemas", "{tmp}/none"], "there is no"), ("grammar_mask", ["--schemas", "{tmp}/text"], "no JSON schema"),
    ("host_overhead", ["--seqs", "65"], "at most 64"), ("host_overhead", ["--steps", "1001"], "at most 1,000"),
    ("kv_waste", ["--kv-tokens", "2047"], "at least 2,048"), ("kv_waste", ["--context", "1031"], "at least 1,032"),
    ("products", ["--shapes", "none"], "there are: qwen3-0.6b"), ("quant_drift", ["--text", "{tmp}/text", "--quant", "int3"], "int3"),
    ("quant_drift", ["--text", "{tmp}/text", "--length", "1025"], "at most 1,024"), ("quant_drift", ["--text", "{tmp}"], "a folder"),
    ("regress", ["--against", "{tmp}/text"], "no record"), ("regress", ["--tolerance", "2"], "at most 1"),
    ("twin_error", ["--trace", "{tmp}/none"], "no trace"), ("twin_error", ["--trace", "{tmp}/trace"], "leaves 1 requests"),
    ("twin_error", ["--trace", "{tmp}/trace:scale=x"], "finite"), ("twin_error", ["--trace", "{tmp}/trace", "--slo", "ttft=3"], "unit"),
    ("typical_drift", ["--text", "{tmp}/text"], "0 paragraphs"), ("typical_drift", ["--text", "{tmp}/text", "--new", "1"], "at least 2")])
def test_what_cannot_be_is_refused_before_anything_is_measured(
        name: str, words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text("A short text.", encoding="utf-8")
    (tmp_path / "trace").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,37,10\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *(word.format(tmp=tmp_path) for word in words)])
    script = importlib.import_module(name)
    with pytest.raises(SystemExit) as ended:
        getattr(script, "main", lambda: script.make_parser().parse_args())()
    said = capsys.readouterr()
    assert ended.value.code == 2 and not said.out
    assert said.err.startswith(f"{name}.py: error: ") and said.err.count("\n") == 1 and why in said.err


@pytest.mark.parametrize(("name", "words", "other"), [
    ("explain_gains", [], ["--seconds", "3"]), ("goodput", [], ["--loads", "1"]),
    ("grammar_mask", ["--schemas", "{tmp}/x.json"], ["--rows", "1"]),
    ("mbu", [], ["--steps", "9"]), ("twin_error", ["--trace", "x"], ["--slo", "ttft=1s"])])
def test_a_record_is_named_by_options_of_measuring_that_are_not_the_defaults(
        name: str, words: list[str], other: list[str], tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    script, given = importlib.import_module(name), [word.format(tmp=tmp_path) for word in words]
    parser = script.make_parser()
    assert parser.others(parser.parse_args(given), script.WAY) == {}
    assert [*parser.others(parser.parse_args([*given, *other]), script.WAY)] == [other[0].removeprefix("--")]


def test_mbu_refuses_depths_that_no_model_holds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("penstock._native", reason="it refuses everything without the native module")
    monkeypatch.setattr(sys, "argv", ["mbu.py", "--depths", "1000000", "--model", "brook"])
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module("mbu").main()
    assert "brook holds a context of 958 tokens" in capsys.readouterr().err


def test_values_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps("é"), encoding="utf-8")
    assert arguments.whole(2, 9)("9") == 9 and arguments.amount()("0") == 0.0 and arguments.amount(above=0, most=1)("1e-3") == 0.001
    assert arguments.listed(arguments.whole())(" 1, 2,") == [1, 2] and arguments.listed(arguments.whole(), least=0)("") == []
    assert arguments.file(str(tmp_path / "file")) == arguments.text_file(str(tmp_path / "file")) == tmp_path / "file"
    assert arguments.folder(str(tmp_path)) == arguments.new_folder(str(tmp_path)) == tmp_path
    assert arguments.new_folder(str(tmp_path / "a" / "b")) == tmp_path / "a" / "b" and not (tmp_path / "a").exists()


def test_a_text_is_utf_8(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"\xff\xfe")
    with pytest.raises(arguments.Refused, match="UTF-8"):
        arguments.text_file(str(tmp_path / "text"))
    with pytest.raises(arguments.Refused, match="is a file"):
        arguments.new_folder(str(tmp_path / "text" / "more"))
