"""What a reader sees of a plan, in terminals of several widths; and that it is what the JSON says."""
import re
from dataclasses import replace

import pytest

from penstock.compute.backends import TABLE
from penstock.study.plan.configuration import Configuration
from penstock.study.plan.evaluate import ms
from penstock.study.plan.model import DEVICES
from penstock.study.plan.request import Plan, Request, plan
from penstock.study.plan.text import FEW, LEAVE_OUT, NOT_GIVEN, cells, empty_left_out, lines, listed, notes, parts, shown, spans


def headings(said: list[str]) -> str:
    """Behind the first empty line, which ends what is told of all rows."""
    return said[said.index("") + 1]


@pytest.fixture(scope="module")
def found() -> Plan:
    return plan(Request(model="llama-3-70b", hardware="h100-sxm,l4", max_devices=4, slo="tpot=40ms"))


def test_a_table_fits_the_terminal_and_says_what_it_leaves_out(found: Plan) -> None:
    whole, narrow, tiny = ("\n".join(lines(found, 20, width)) for width in (None, 100, 20))
    assert "kWh/year" in whole and "not shown" not in whole and max(map(len, whole.splitlines())) > 110
    assert max(map(len, narrow.splitlines())) <= 100 and "not shown in this width: kWh/year, W; a wider terminal or --json" in narrow
    heading = headings(narrow.splitlines())
    assert "kWh/year" not in heading and "TPOT" in heading and ", ".join(LEAVE_OUT) in " ".join(tiny.split())


@pytest.mark.parametrize("width", [None, 100, 160])
def test_every_reason_is_there(found: Plan, width: int | None) -> None:
    said = " ".join(" ".join(lines(found, 20, width)).split())
    numbers = {row.called: at for at, row in enumerate(found.configurations, 1)}
    for row in found.configurations:
        assert all(" ".join(part.split()) in said for part in parts(row, numbers))
    assert re.search(r"beaten by row 1: \d\.\d\d times the goodput per dollar", said) and "GB more than l4's usable 21.7" in said


def test_the_table_and_the_json_say_the_same(found: Plan) -> None:
    for at, (row, told) in enumerate(zip(found.configurations, found.as_json()["configurations"], strict=True), 1):
        shown = cells(at, row)
        assert (shown["hardware"], shown["weights/KV"]) == (told["hardware"], f"{told['quant']}/{told['kv_dtype']}")
        if told["fits"]:
            assert shown["TPOT"] == f"{told['tpot_s'] * 1e3:,.1f} ms" and shown["batch"] == f"{told['batch']:,}"
            assert shown["$/M out"] == f"{told['usd_per_million_output_tokens']:.3g}" and shown["bound"] == told["bound"]
        else:
            assert shown["TPOT"] == "-" and shown["bound"] == "does not fit"
    beaten = found.configurations[1]
    assert beaten.reason.startswith(f"beaten by {beaten.beside}: ") and beaten.beside == found.configurations[0].called


def test_the_heading_says_that_figures_were_changed(found: Plan) -> None:
    asked = Request(model="llama-2-7b", hardware="h100-sxm", max_devices=1, batch=1)
    wide = plan(replace(asked, what_if="memory_bandwidth=8e12"))
    assert "what if memory_bandwidth=8e12" in lines(wide, 20, None)[0] and wide.as_json()["what_if"] == "memory_bandwidth=8e12"
    assert "what if" not in lines(found, 20, None)[0]


def test_rows_say_what_they_rest_on(found: Plan) -> None:
    row = Configuration("here", 1, 1, 1, "none", "auto", True, steps="measured", predicted_by="twin",
                        times_roofline={"ttft": 2.0, "tpot": 1.5}, meets_slo=True,
                        ttft_s=0.1, tpot_s=0.01, batch=1, chunk=8, output_tokens_per_s=9.0)
    other = replace(row, quant="int8", steps="roofline", unmeasured=True, times_roofline={})
    mixed = replace(found, configurations=[row, other], calibrate="penstock plan brook --calibrate --quant int8")
    said = lines(mixed, 20, None)
    assert "steps" in headings(said) and "  measured  " in said[4] and "  roofline  " in said[5]
    text = "\n".join(said)
    assert "measured: a prompt takes 2, a token 1.5 times as long as the roofline says" in text
    assert "measured: steps were timed here by --calibrate" in text and "rows of `here` are not compared with measured ones" in text
    assert "some minutes a format: penstock plan brook --calibrate --quant int8" in text
    alike = lines(replace(found, configurations=[other]), 20, None)
    assert "steps" not in headings(alike) and "roofline: steps are predicted from this machine's measured limits" in alike
    assert "roofline: steps are predicted from the makers' figures and known shares of them" in lines(found, 20, None)


def test_an_objective_that_nothing_keeps_is_told_with_the_nearest() -> None:
    asked = Request(model="llama-3-70b", hardware="h100-sxm,l4", max_devices=4, slo="tpot=1ms,ttft=10s", batch=1)
    missed = plan(asked)
    best = min((row for row in missed.configurations if row.fits), key=lambda row: row.tpot_s or 1.0)
    said = [line for line in lines(missed, None, None) if line.startswith("nothing that was tried")]
    assert said == [f"nothing that was tried keeps the SLO: the least mean tpot is {ms(best.tpot_s or 0)}, of {best.called}, "
                    "and 1 ms is asked for"]
    assert not any(line.startswith("nothing that was") for line in lines(plan(replace(asked, slo="tpot=1s")), None, None))


def test_formats_that_this_engine_has_not_are_marked() -> None:
    rows = plan(Request(model="llama-2-7b", hardware="h100-sxm", max_devices=1, batch=1, quant=("fp8", "int8"), kv_dtype=("auto", "int8")))
    shown = {cells(1, row)["weights/KV"] for row in rows.configurations}
    assert shown == {"fp8/auto !", "fp8/int8 !", "int8/auto", "int8/int8 !"}
    assert "! for engines that have " in "\n".join(lines(rows, 20, None))


def test_only_rows_that_matter_are_shown_unless_more_are_asked_for(found: Plan) -> None:
    rows = found.configurations
    few = shown(rows, None)
    assert len(rows) > FEW and list(shown(rows[:FEW], None)) == list(range(1, FEW + 1))
    assert list(shown(rows, 3)) == [1, 2, 3] and shown(rows, len(rows)) == dict(enumerate(rows, 1))
    assert 1 in few and len(few) < len(rows) and {row.hardware for row in few.values()} == {"h100-sxm", "l4"}
    assert all(row.pareto or row.hardware not in {other.hardware for other in rows[: at - 1]} for at, row in few.items())
    assert all(few.get(at) is row for at, row in enumerate(rows, 1) if row.pareto)
    text = "\n".join(lines(found, None, None))
    assert f"... and {len(rows) - len(few)} more, which something beats or which do not do what is asked: --top N" in text
    assert "more, which" not in "\n".join(lines(found, 1, None)) and "... and" not in "\n".join(lines(found, len(rows), None))


def test_what_penstock_does_not_run_on_is_told(found: Plan) -> None:
    """No backend computes there; where one does, layers cannot be divided yet."""
    assert all(row.unserved[0] == "a backend for cuda" for row in found.configurations)
    gpus = lines(found, None, None)
    assert gpus[1] == "rows of h100-sxm and l4 that need a backend for cuda are for other engines: nothing in Penstock serves them yet"
    here = plan(Request(model="llama-2-7b", hardware="xeon-8480", batch=1))
    assert {row.tensor_parallel * row.pipeline_parallel > 1 for row in here.configurations if row.unserved} == {True}
    assert any(not row.unserved for row in here.configurations)
    told = "\n".join(lines(here, len(here.configurations), None))
    assert "rows of xeon-8480 that need tensor parallelism are for other engines" in told and "backend for" not in told


def test_a_model_that_is_planned_with_alone_is_told_in_every_row() -> None:
    found = plan(Request(model="deepseek-v3", hardware="h200-sxm,xeon-8480", rate=0.5, quant=("none", "int4"), simulate=False))
    assert {row.quant for row in found.configurations} == {"stored", "int4"}
    assert all("latent attention" in row.unserved for row in found.configurations) and found.configurations[0].meets_slo
    told = "\n".join(lines(found, len(found.configurations), None))
    assert "rows of xeon-8480 and h200-sxm that need latent attention are for other engines: nothing in Penstock serves them yet" in told


def test_columns_that_nobody_gave_a_figure_for_are_left_out() -> None:
    row = Configuration("here", 1, 1, 1, "none", "auto", True, ttft_s=0.1, tpot_s=0.01, batch=1, chunk=8, output_tokens_per_s=9.0)
    told = empty_left_out([cells(1, row), cells(2, replace(row, hardware="l4", usd_per_million_output_tokens=1.0))])
    assert "W" not in told[0] and "kWh/year" not in told[0] and [each["$/M out"] for each in told] == [NOT_GIVEN, "1"]
    none = empty_left_out([cells(1, replace(row, ttft_s=None, tpot_s=None, fits=False))])
    assert none[0]["W"] == "-"


def test_words_are_listed_with_commas() -> None:
    assert [listed(words) for words in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]


def test_steps_that_nothing_plays_are_told_where_they_count(found: Plan) -> None:
    told = replace(found, calibrate="penstock plan brook --calibrate --quant none", timed_where_played=True)
    said = lines(told, None, None)
    at = said.index("steps that `--calibrate` times here count only where the twin plays: give --rate or --traffic")
    assert said[at + 1].endswith(told.calibrate) and said[at] not in lines(found, None, None)


def test_devices_are_those_that_backends_compute_on() -> None:
    assert set(DEVICES) == {device for name in TABLE for device in TABLE.load(name)().caps.devices}


def test_what_is_told_of_many_rows_is_told_once() -> None:
    row = Configuration("l4", 1, 1, 1, "none", "auto", True, reason="as it is", batch_told="hardly ever are more there")
    rows = [replace(row, hardware=f"l{at}", reason=f"reason {at}", batch_told="" if at == 3 else row.batch_told) for at in range(5)]
    told = notes(dict(enumerate(rows, 1)))
    assert told[:5] == [f"{at + 1:4}  reason {at}" for at in range(5)] and told[5:] == ["1-3, 5  batch: hardly ever are more there"]
    few = notes({1: rows[0], 7: rows[1]})
    assert len(few) == 2 and "batch: hardly" in few[0] and few[1].startswith("   7  reason 1")
    assert spans([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"


def test_a_row_that_is_not_seen_is_called_by_its_name() -> None:
    row = Configuration("l4", 1, 1, 1, "none", "auto", True, reason="beaten by a100 TP1 none/auto: as is", beside="a100 TP1 none/auto")
    assert parts(row, {}) == [row.reason] and parts(row, {"a100 TP1 none/auto": 7}) == ["beaten by row 7: as is"]
    assert cells(1, replace(row, ttft_s=0.1, tpot_s=0.01, batch=1, chunk=8, output_tokens_per_s=9.0))["W"] == NOT_GIVEN
