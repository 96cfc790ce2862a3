"""`penstock plan`: options become a Request, and its answer a table or one JSON object."""
import dataclasses
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli import progress
from penstock.cli.plan import QUANTS, PlanOptions, calibrate
from penstock.compute.fitted import Fitted
from penstock.core.hardware import Hardware
from penstock.study.plan import here, request, sweep
from penstock.study.plan.calibrate import Calibration
from penstock.study.plan.request import Request


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def test_the_options_are_the_fields_of_a_request() -> None:
    assert PlanOptions() == PlanOptions(**dataclasses.asdict(Request()) | {"model": None})


def test_help_lists_the_weight_formats_of_plans_and_not_those_of_engines(penstock: Any) -> None:
    shown = " ".join(penstock(["plan", "--help"])[1].split())
    assert QUANTS == request.QUANTS and "repeatable; or all: none, fp8, int8, int4. --kv-dtype" in shown


def test_without_a_model_the_plan_is_for_the_bundled_one(penstock: Any) -> None:
    assert json.loads(penstock("plan --hardware l4 --batch 1 --max-devices 1 --json".split())[1])["model"] == "brook"


def test_the_page_names_every_field_of_the_object(penstock: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "plan.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^`--json` has everything: .*?^$", page, re.MULTILINE | re.DOTALL)
    told = json.loads(penstock("plan --hardware l4 --batch 1 --max-devices 1 --json".split())[1])
    assert {*told, *told["configurations"][0]} <= {*re.findall(r"[a-z0-9_]+", listed)}


def test_json_is_one_object_on_the_last_line(penstock: Any) -> None:
    status, out, err = penstock("plan llama-2-7b --hardware l4,h100-sxm --max-devices 1 --batch 2 --input 64 --output 32 --json".split())
    told = json.loads(out.strip().splitlines()[-1])
    assert (status, err) == (0, "") and told["parameters"] == 6_738_415_616 and told["load"]["batch"] == 2
    wanted = ("hardware devices tensor_parallel pipeline_parallel quant kv_dtype fits ttft_s tpot_s output_tokens_per_s bound"
              " usd_per_million_output_tokens kwh_per_year reason").split()
    assert all(name in row for row in told["configurations"] for name in wanted)


def test_json_has_no_number_that_json_does_not_have(penstock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "plan", lambda asked, watch: SimpleNamespace(as_json=lambda: {"configurations": [math.inf]}))
    status, out, err = penstock("plan --hardware l4 --json".split())
    assert (status, out) == (1, "") and "not JSON compliant" in err


def test_the_table_tells_what_fits_and_why_not(penstock: Any) -> None:
    status, out, _ = penstock("plan llama-3-70b --hardware h100-sxm --batch 1 --quant none --quant int4 --max-devices 2".split())
    assert status == 0 and "does not fit" in out and "GB more than" in out and "int4" in out and "70,553,706,496" in out


def test_the_table_is_as_wide_as_the_terminal(penstock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "plan llama-2-7b --hardware l4,h100-sxm --max-devices 1 --batch 2".split()
    said = penstock(asked)[1].splitlines()
    assert "kWh/year" in said[said.index("") + 1]
    monkeypatch.setenv("COLUMNS", "90")
    out = penstock(asked)[1]
    assert max(map(len, out.splitlines())) <= 90 and "not shown in this width: kWh/year" in out


def test_figures_can_be_asked_what_if(penstock: Any) -> None:
    usual, wide = (json.loads(penstock(["plan", "llama-2-7b", "--hardware", "h100-sxm", "--batch", "1", "--json", *more])[1])
                   for more in ([], ["--what-if", "memory_bandwidth=8e12"]))
    assert wide["configurations"][0]["tpot_s"] < 0.6 * usual["configurations"][0]["tpot_s"]


def test_wrong_usage_is_one_sentence(penstock: Any) -> None:
    for words, said in (("plan llama-2-7b --hardware abacus", "h100-sxm"), ("plan llama-2-7b", "--hardware"),
                        ("plan llama-2-7b --hardware l4 --top 0", "--top"), ("plan llama-2-7b --hardware l4 --quant int3", "int4"),
                        ("plan llama-2-7b --hardware l4 --what-if node=1,node=2", "--what-if: node is given twice, as '1' and as '2'"),
                        ("plan llama-2-7b --calibrate", "a GGUF file with its weights, or its name on the hub, meta-llama/Llama-2-7b")):
        status, out, err = penstock(words.split())
        assert (status, out) == (2, "") and said in err and len(err.splitlines()) == 1


def test_a_fleet_is_told_model_by_model(penstock: Any, tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("[devices]\nl4 = 1\n[[models]]\nmodel = 'llama-3-8b'\nrate = 0.1\nquant = 'int8'\n"
                    "[[models]]\nmodel = 'llama-3-70b'\nrate = 1\nquant = 'none'\n")
    status, out, _ = penstock(["plan", "--fleet", str(file)])
    assert status == 0 and "llama-3-8b: l4 TP1 int8/" in out and "llama-3-70b: not placed" in out and "dollars an hour" in out
    assert json.loads(penstock(["plan", "--fleet", str(file), "--json"])[1])["devices"] == ["l4"]
    file.write_text("[devices]\nl4 = 4\n[[models]]\nmodel = 'qwen2.5-1.5b'\nrate = 0.1\nquant = ['int8', 'int4:group=128']\n")
    *_, told, total = penstock(["plan", "--fleet", str(file)])[1].splitlines()
    assert told.startswith("qwen2.5-1.5b: TP4 is left out in int4:group=128: it would leave 2,240 of the 8,960 columns of")
    assert total.startswith("total: ")


def test_what_says_nothing_beside_a_fleet_is_refused(penstock: Any, tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("[[models]]\nmodel = 'llama-3-8b'\nhardware = 'l4'\nrate = 0.1\n")
    for more, said in ((["brook"], f"--fleet {file} names the models, so brook is one too many"), (["--top", "3"], "--top is for a plan"),
                       (["--all"], "--all is for"), (["--calibrate"], "--calibrate is for")):
        status, out, err = penstock(["plan", *more, "--fleet", str(file)])
        assert (status, out) == (2, "") and said in err and len(err.splitlines()) == 1


def test_a_fleet_says_what_nobody_serves(penstock: Any, tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("[[models]]\nmodel = 'llama-3-8b'\nhardware = 'h100-sxm'\nrate = 0.1\nquant = 'fp8'\n")
    status, out, _ = penstock(["plan", "--fleet", str(file)])
    marks, gpus, placed, _ = out.splitlines()
    assert status == 0 and marks.startswith("! for engines that have fp8 weights") and " ! on h100-sxm 0; adds " in placed
    assert gpus == "rows of h100-sxm that need a backend for cuda are for other engines: nothing in Penstock serves them yet"


@pytest.mark.parametrize(("more", "said"), [
    ("--hardware h100-sxm", "--calibrate measures this machine, but a plan for --hardware h100-sxm does not use that: add here there"),
    ("--hardware all", "a plan for --hardware all does not use that"), ("--hardware abacus", "h100-sxm"),
    ("--hardware l4 --slo ttft=soon", "ttft"), ("--hardware l4 --what-if speed=2", "what-if speed"),
    ("--hardware here --tensor-parallel 3", "--tensor-parallel 3 does not divide the model's 4 heads, 2 of keys and values, evenly"),
    ("--hardware here --tensor-parallel 2", "there is 1 of here, and 2 are asked for: give --max-devices 2"),
    ("--hardware here --pipeline-parallel 9", "--pipeline-parallel 9 is more than the model's 8 layers"),
    ("--hardware here --traffic nothing.csv", "there is no trace 'nothing.csv'"), ("--hardware here --rate 0", "--rate must be"),
    ("--hardware here --kv-dtype int3", "unknown KV format 'int3'"), ("--hardware here --routing prefix", "--routing prefix is for what"),
    ("--hardware here --chunk 0", "--chunk must be numbers from 1 on"), ("--hardware here --max-devices 0", "--max-devices must be at"),
    ("--hardware here --quant fp8", "nothing is left to try; here is left out with fp8 weights"),
    ("--hardware here --quant int8 --quant fp8", "which serves no fp8 weights, but none, int8, int4: leave --quant fp8 out"),
    ("--quant int8 --quant fp8", "which serves no fp8 weights, but none, int8, int4: leave --quant fp8 out"),
    ("--quant int8 --quant int4:group=7", "group"),
])
def test_nothing_is_calibrated_for_a_plan_that_is_refused_or_is_of_other_machines(
        penstock: Any, monkeypatch: pytest.MonkeyPatch, more: str, said: str) -> None:
    timed: list[str] = []
    monkeypatch.setattr(sweep, "run", lambda config, say, progress: timed.append(config.quant))
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: Hardware("a machine", {1 << 30: 3e10}, {"fp32": 2e11}))
    status, out, err = penstock(["plan", "brook", "--calibrate", *more.split()])
    assert (status, out, timed) == (2, "", []) and said in err and len(err.splitlines()) == 1


def test_all_formats_are_calibrated_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[str] = []
    calibrated(monkeypatch, timed)
    assert list(calibrate(Request(quant=("int8", "all")))) == ["int8", "none", "int4"] == timed
    calibrate(Request())
    assert timed[3:] == ["none"]


def calibrated(monkeypatch: pytest.MonkeyPatch, timed: list[str]) -> None:
    """Nothing is measured, but noted."""
    found = Calibration(Fitted((1, 64), (0.01, 0.01), 0.0, 0.0, 0.0, 0.0), 0.0, 100, 0.25, 0.0)
    monkeypatch.setattr(sweep, "run", lambda config, say, progress: (timed.append(config.quant), found)[1])
    monkeypatch.setattr(sweep, "lines", lambda config, found: iter(()))


@pytest.mark.parametrize(("more", "name"), [
    ("--rate 3", "rate"), ("--slo ttft=1s", "slo"), ("--kv-dtype fp8", "kv-dtype"), ("--no-simulate", "simulate"), ("--top 3", "top"),
    ("--all", "all"), ("--traffic trace.csv", "traffic")])
def test_what_only_a_plan_takes_is_refused_before_anything_is_calibrated_alone(
        penstock: Any, monkeypatch: pytest.MonkeyPatch, more: str, name: str) -> None:
    timed: list[str] = []
    calibrated(monkeypatch, timed)
    status, out, err = penstock(["plan", "brook", "--calibrate", *more.split()])
    assert (status, out, timed) == (2, "", []) and f"--{name} is for a plan" in err and "add --hardware here" in err


def test_what_was_calibrated_is_told_as_one_object(penstock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated(monkeypatch, [])
    status, out, _ = penstock("plan brook --calibrate --quant int8 --dtype float32 --json".split())
    told = json.loads(out.splitlines()[-1])
    assert status == 0 and told["model"] == "brook" and told["calibrations"]["int8"]["error"] == 0.25
    assert penstock("plan brook --calibrate".split())[:2] == (0, "")


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_terminal_is_told_how_far_a_plan_is(penstock: Any, monkeypatch: pytest.MonkeyPatch, more: list[str]) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", -1.0)
    monkeypatch.setattr(progress, "PAUSE_S", 0.0)
    asked = [*"plan llama-2-7b --hardware l4 --rate 0.1 --max-devices 1 --quant int8 --kv-dtype auto".split(), *more]
    assert penstock(asked)[2] == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    status, out, err = penstock(asked)
    assert status == 0 and "0 of 1 ways to run it" in err and "the twin plays 1 of 1 at most: l4 TP1 int8/auto" in err
    assert err.endswith(progress.CLEAR) and "\x1b" not in out and "ways to run it" not in out


def test_what_this_machine_costs_is_not_made_up(penstock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Hardware("a machine", {1 << 30: 3e10}, {"fp32": 2e11, "bf16": 4e11})
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: machine)
    asked = "plan llama-3.2-1b --hardware here --batch 1".split()
    out = penstock(asked)[1]
    assert "$/M out" not in out and "kWh" not in out and "not given: --price and --watts of here; rows without" in out
    assert "   1  it fits; " in out
    row = json.loads(penstock([*asked, "--json"])[1])["configurations"][0]
    assert row["usd_per_hour"] is row["usd_per_million_output_tokens"] is row["watts"] is row["kwh_per_year"] is None
    told = json.loads(penstock([*asked, "--price", "0.5", "--watts", "here=100", "--json"])[1])["configurations"][0]
    assert (told["usd_per_hour"], told["watts"]) == (0.5, 100) and told["kwh_per_year"] == pytest.approx(876.6)
