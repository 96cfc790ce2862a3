"""What is made of a case: levers in their order, what is said of them, and that it is of the time that is explained."""
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from penstock.serve.engine.state import with_begin
from penstock.study.explain.case import Change
from penstock.study.explain.explanation import Explanation, Moved, explain, needed, ranked
from penstock.study.explain.source import Evidence, case_of
from penstock.study.explain.text import lines
from penstock.study.explain.words import short
from penstock.study.measure.counters import growth, values_of
from tests.study.explain.planted import Load, Planted, served
from tests.study.explain.test_planted import PLANTED, explained


@pytest.mark.parametrize("load", [
    Load(rate=3, prompt=64, output=64), Load(users=6, prompt=128, output=128), Load(rate=1, prompt=1500, output=16),
], ids=["one at a time", "six", "long prompts"])
def test_what_a_server_did_before_does_not_blur_what_it_does(model: Path, load: Load) -> None:
    """Large batches first, beside other programs that made everything twice as slow."""
    planted = Planted(model)
    planted.machine.times = 2.0
    planted.run(Load(users=48, prompt=200, output=100, seconds=20.0))
    planted.finish()
    planted.machine.times = 1.0
    first, began = values_of(planted.scrape()), planted.state()
    planted.run(replace(load, seconds=60.0))
    case = case_of(Evidence(growth(first, values_of(planted.scrape())), first, with_begin(planted.state(), began), "planted"), {}, [])
    found = explain(case, {})
    assert not found.trust.doubts and all(abs(off) < 0.1 for off in found.trust.errors.values())


def moved(option: str, gain: float, drift: float, present: Explanation) -> Moved:
    return Moved("a-lever", Change(option, present.case.way, drift=drift), gain, present.present, ())


def test_what_changes_answers_least_comes_first_where_it_gains_about_as_much(model: Path) -> None:
    _, found = explained(model, PLANTED["queueing"][0], only="larger-batch", **PLANTED["queueing"][1])
    exact, lossy, more = moved("--exact", 0.4, 0.0, found), moved("--lossy", 0.5, 0.02, found), moved("--much", 1.5, inf, found)
    mild = moved("--mild", 0.45, 0.001, found)
    assert ranked([lossy, mild, exact]) == [exact, mild, lossy] and ranked([exact, lossy, more]) == [more, lossy, exact]
    assert not ranked([])
    told = replace(found, recommended=ranked([exact, more]))
    assert told.verdict == ("--much (lossy) would give 2.5 times the output tokens/s; without any loss --exact would give 40% more output "
                            "tokens/s")
    assert "  2.5 times  --much (lossy)  (a-lever)" in lines(told) and [each["lossy"] for each in told.as_json()["levers"]] == [True, False]
    idle = [moved("--idle", 0.01, 0.0, found), moved("--same", 0.0, 0.0, found), moved("--worse", -0.2, 0.0, found)]
    assert "no gain    --idle (+1%), --same (0%), --worse (-20%)" in lines(replace(told, tried=[exact, more, *idle]))


def test_an_objective_that_no_lever_keeps_is_no_limit_of_the_machine(model: Path) -> None:
    _, found = explained(model, PLANTED["queueing"][0], only="larger-batch", slo="ttft=1us,itl=1us", **PLANTED["queueing"][1])
    _, best = explained(model, PLANTED["queueing"][0], only="larger-batch", **PLANTED["queueing"][1])
    assert not found.recommended and found.least_s == {"ttft_s": best.recommended[0].figures.ttft_s}
    assert found.verdict == ("nothing that was tried here lets a request keep ttft=0.001ms,itl=0.001ms: the least mean TTFT is "
                             f"{short(found.least_s['ttft_s'] * 1e3)} ms")
    _, found = explained(model, PLANTED["arrival_limited"][0], only="larger-batch", slo="itl=1us", **PLANTED["arrival_limited"][1])
    assert found.verdict == "nothing that was tried here lets a request keep itl=0.001ms"


def test_an_option_that_adds_nothing_to_another_is_not_recommended_with_it(model: Path) -> None:
    """More seats bring a larger budget of a step with them: what that gains alone is not theirs."""
    _, found = explained(model, PLANTED["queueing"][0], only="larger-batch", **PLANTED["queueing"][1])
    both, one, much = moved("--seats 256 --tokens 256", 0.2, 0.0, found), moved("--tokens 128", 0.195, 0.0, found), moved(
        "--seats 256 --tokens 256", 0.4, 0.0, found)
    assert needed([both, one]) == [one] and needed([much, one]) == [much, one] and needed([both]) == [both]


def test_formats_are_lossy(model: Path) -> None:
    _, found = explained(model, PLANTED["weight_bandwidth"][0], only="quantize-weights", **PLANTED["weight_bandwidth"][1])
    assert all(each.change.lossy and each.change.called.endswith(" (lossy)") for each in found.tried)
    _, found = explained(model, PLANTED["kv_capacity"][0], only="quantize-kv", **PLANTED["kv_capacity"][1])
    assert found.tried and all(each.change.lossy for each in found.tried)


def test_limits_that_are_in_doubt_are_told(model: Path) -> None:
    planted = served(model, PLANTED["queueing"][0], **PLANTED["queueing"][1])
    state = planted.state()
    case = case_of(Evidence(values_of(planted.scrape()), None, state, "planted"), {}, [])
    assert case.doubts == ()
    state["limits"]["doubts"] = ["fp32 with 1 thread: the best of 2 measurements is 9 Gop/s, the second 4"]
    case = case_of(Evidence(values_of(planted.scrape()), None, state, "planted"), {}, [])
    found = explain(case, {})
    [doubt] = found.trust.doubts
    assert doubt.startswith("the limits of the engine's machine are in doubt, and with them what binds, what formats gain, and what steps "
                            "of sizes that it did not make take, as of larger batches and other chunks: fp32 with 1 thread: the best")
    assert f"doubtful   {doubt}" in lines(found) and f"verdict    doubtful, see above: {found.verdict}" in lines(found)
