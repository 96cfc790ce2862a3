"""From a server over HTTP, and from the report of a bench, to a case: nothing else is known of the engine."""
import json
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from penstock.core.catalogue.read import Catalogue
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError, UsageError
from penstock.core.hardware import Hardware
from penstock.core.slo import Objectives
from penstock.serve.engine.state import FORMAT, limits_told
from penstock.study.explain import case, source, trust
from penstock.study.explain.explanation import explain
from penstock.study.explain.levers import TABLE
from penstock.study.explain.observed import observed
from penstock.study.explain.roof import Roof
from penstock.study.explain.traffic import traffic_of
from penstock.study.measure.arrivals.closed import Closed, ClosedOptions
from penstock.study.measure.client.connections import address_of
from penstock.study.measure.client.drive import Extent
from penstock.study.measure.client.server import Access
from penstock.study.measure.datasets.synthetic import Synthetic, SyntheticOptions
from penstock.study.measure.job import Asking, Job, Watchers, run
from penstock.study.measure.metrics import Warmup
from tests.serve.api.fakes import serve as serve_fake
from tests.spoiled import GONE, put
from tests.tiny import write_model


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    model = str(write_model(tmp_path_factory.mktemp("model"), vocab_size=300))
    engine = EngineConfig(model=model, backend="reference", kv_tokens=2048, threads=1, max_num_seqs=2)
    job = Job(engine, None, Asking(), Closed(ClosedOptions(4)), lambda writer, seed: Synthetic(
        SyntheticOptions(input=24, output=8), writer, seed), Extent(30), Warmup(share=0.1), "1")
    return run(job, Watchers(lambda line: None)).as_json()


def saved(folder: Path, told: Any) -> Path:
    (folder / "report.json").write_text(json.dumps(told))
    return folder / "report.json"


def test_a_report_holds_all_that_a_case_takes(report: dict[str, Any], tmp_path: Path) -> None:
    notes: list[str] = []
    case = source.case_of(source.read_report(saved(tmp_path, report)), {}, notes)
    assert case.config.max_num_seqs == 2 and case.traffic.users == 4 and case.traffic.prompt.mean == 24 and case.traffic.output.mean == 8
    assert case.seen.tally.waiting_s["seqs"] > 0 and case.seen.tally.num_requests >= 25
    assert case.form is not None and case.weight_bytes == case.form.weight_bytes and case.limit.sentence
    assert any(note.startswith("step times: learned from") for note in notes)
    assert any("rows were not seen; without the machine's limits" in note for note in notes) is (case.form.roof is None)


def test_of_users_who_take_turns_only_the_time_counts_in_which_all_are_there(report: dict[str, Any], tmp_path: Path) -> None:
    server, name = report["server"], 'penstock_requests_total{finish_reason="length"}'
    assert server["counters_while_sent"].keys() <= server["counters"].keys()
    for others, used in (({name: 8.0}, True), ({name: 7.0}, False), (None, False)):
        told = report | {"server": server | {"counters_while_sent": others}, "load": {"arrivals": "closed:users=4"}}
        assert (source.read_report(saved(tmp_path, told)).grown == others) is used
        assert source.read_report(saved(tmp_path, told | {"load": {"arrivals": "poisson:rate=3"}})).grown == server["counters"]


@pytest.mark.parametrize(("change", "message"), [
    (lambda told: "text", "is not JSON|is not a report"), (lambda told: told | {"format": 0}, "is not a report"),
    (lambda told: told | {"server": None}, "is not a report"),
    (lambda told: told | {"server": {}}, "a counter in it is not a number"),
    (lambda told: told | {"server": told["server"] | {"counters_while_sent": {"a": "b"}}}, "a counter in it is not a number"),
    (lambda told: told | {"server": {"counters": {"penstock_engine_seconds_total": -3.0}}}, "a counter in it is not a number"),
    (lambda told: told | {"goodput": {"slo": {}}}, "its goodput has no objectives"),
    (lambda told: told | {"goodput": {"slo": {"ttft_s": "soon"}, "kept_share": {"value": 1.0}}}, "its goodput has no objectives"),
    (lambda told: told | {"goodput": {"slo": {"ttft_s": 1.0}, "kept_share": {"value": float("nan")}}}, "its goodput has no objectives"),
    (lambda told: told | {"goodput": {"slo": {"a": 1}, "kept_share": {"value": 1.0}}}, "its goodput has no objectives"),
    (lambda told: told | {"goodput": {"slo": {"ttft_s": 1.0}, "kept_share": {"value": 1.0}}, "requests": {"measured": "all"}},
     "its goodput has no objectives"),
    (lambda told: told | {"cut_short": {"by": "Ctrl-C", "warmup_s": 20.0}}, "cut short within its warm-up, so that nothing was measured"),
    (lambda told: told | {"came_per_s": "many"}, "its came_per_s is not a number"),
    (lambda told: told | {"engine": None}, "none of|not of a Penstock"),
])
def test_what_is_no_report_is_refused(report: dict[str, Any], tmp_path: Path, change: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        source.read_report(saved(tmp_path, change(report)))
    with pytest.raises(UsageError, match="cannot read .*explain takes the URL of a running server, as http://127.0.0.1:8000, or a report"):
        source.read_report(tmp_path / "nothing.json")


@pytest.mark.parametrize(("content", "message"), [
    (b"", "r.json is empty: give"), (b'{"format": 1, "server": {', "is JSON that is cut off or broken"), (b"\xff\xfe", "is no text"),
    (b"<!doctype html>", "is a page, as --report writes it"), (b"ttft 5 ms", "is not JSON: give what `penstock bench --save FILE` writes")])
def test_a_report_that_cannot_be_read_says_why(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "r.json").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        source.read_report(tmp_path / "r.json")


def test_a_state_of_another_version_is_refused(report: dict[str, Any]) -> None:
    told = source.Evidence(report["server"]["counters"], None, {"config": {}}, "server")
    config = report["engine"]["config"] | {"max_num_seqs": "many"}
    for state in (told.state, report["engine"] | {"format": 0}, report["engine"] | {"free_memory_bytes": None},
                  report["engine"] | {"config": config}):
        with pytest.raises(PenstockError, match="another version"):
            source.case_of(replace(told, state=state), {}, [])


@pytest.mark.parametrize(("path", "value"), [
    (("config", "device"), 1e-300), (("config", "revision"), []), (("config", "max_model_len"), "x"), (("config", "max_model_len"), [None]),
    (("config", "kv_tokens"), 1.5), (("config", "kv_tokens"), float("inf")), (("config", "kv_tokens"), 10**400),
    (("config", "kv_tokens"), True), (("config", "block_size"), 0), (("config", "max_num_batched_tokens"), 10**400),
    (("config", "max_num_seqs"), 10**400), (("config", "dtype"), GONE), (("config",), {}), (("model", "weight_bytes"), float("inf")),
    (("model", "windows"), []), (("model", "windows", 0, 1), float("inf")), (("model", "windows", 0, 0), -1),
    (("free_memory_bytes",), 10**400),
    (("steps", 0, 0), 10**400), (("steps", 0, 0), -1), (("steps", 0, 1), 1e308), (("steps", 0, 4), float("nan")),
    (("steps_at_begin",), 10**400)])
def test_a_state_that_cannot_be_is_refused(report: dict[str, Any], path: Sequence[Any], value: Any) -> None:
    told = source.Evidence(report["server"]["counters"], None, put(report["engine"], path, value), "x")
    with pytest.raises(PenstockError, match="x describes itself in a way that cannot be read"):
        source.case_of(told, {}, [])


@pytest.mark.parametrize(("counter", "value", "message"), [
    ('penstock_requests_total{finish_reason="length"}', 1e-300, "no request ended"),
    ("penstock_requests_found_total", 1e17, "were in the engine at once"),
    ('penstock_request_seconds_total{state="waiting"}', 1e17, "were in the engine at once")])
def test_counters_that_cannot_be_are_refused(report: dict[str, Any], counter: str, value: float, message: str) -> None:
    counters = dict(report["server"]["counters"])
    assert counter in counters
    with pytest.raises(PenstockError, match=message):
        source.case_of(source.Evidence(counters | {counter: value}, None, report["engine"], "x"), {}, [])


def test_lengths_of_hardly_a_token_are_none(report: dict[str, Any]) -> None:
    for name in ("penstock_prompt_tokens_total", "penstock_generation_tokens_total"):
        assert observed(report["server"]["counters"] | {name: 1e-300}).tally.num_requests >= 25


def test_a_model_that_is_not_here_is_no_reason_to_stop(report: dict[str, Any]) -> None:
    engine = report["engine"]
    notes: list[str] = []
    state = engine | {"config": engine["config"] | {"model": "/nowhere/at-all"}}
    told = source.Evidence(report["server"]["counters"], None, state, "server")
    case = source.case_of(told, {}, notes)
    assert case.forms is None and any("not known here" in note for note in notes)


def test_limits_that_lack_a_format_leave_out_what_needs_it_alone(report: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Other hardware, seats and chunks are judged as before: here however busy the machine was in that run."""
    monkeypatch.setattr(trust, "LOST", inf)
    limits = limits_told(Hardware("box", {1: 2e10}, {"fp32": 1e11, "bf16": 1e11}, products={"fp32": {256: {256: 1e11}}}))
    engine, notes = report["engine"], list[str]()
    state = engine | {"config": engine["config"] | {"quant": "int8"}, "limits": limits}
    case = source.case_of(source.Evidence(report["server"]["counters"], None, state, "server"), {"l4": Catalogue().part("l4")}, notes)
    assert any("lack the rates of products in int8, so formats are not judged: measure them there with `penstock limits --fresh`" in note
               for note in notes)
    found = explain(case, {name: TABLE.load(name)() for name in ("quantize-weights", "other-hardware", "larger-batch")})
    assert {moved.lever for moved in found.tried} == {"other-hardware", "larger-batch"} and list(found.unknown) == ["quantize-weights"]
    assert "lack the rates of products in int8" in found.unknown["quantize-weights"]


def test_without_steps_and_without_limits_nothing_can_be_said(report: dict[str, Any]) -> None:
    told = source.Evidence(report["server"]["counters"], None, report["engine"] | {"steps": [], "limits": None}, "server")
    with pytest.raises(PenstockError, match="penstock limits"):
        source.case_of(told, {}, [])


def test_a_server_is_asked_over_http(report: dict[str, Any]) -> None:
    """Its state needs the key that /v1 needs."""
    running = serve_fake()
    try:
        answer = running.client.get("/v1/penstock/state")
        assert answer.status_code == 404  # this fake tells nothing of itself
        with pytest.raises(PenstockError, match="not a Penstock server"):
            source.ask(Access(address_of(str(running.client.base_url))), 0.0, lambda line: None)
    finally:
        running.stop()
    with pytest.raises(PenstockError, match="cannot be reached"):
        source.ask(Access(address_of("http://127.0.0.1:9")), 0.0, lambda line: None)
    assert report["engine"]["format"] == FORMAT


def test_a_server_that_wants_a_key_is_not_told_to_have_refused_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source.Server, "fetch", AsyncMock(return_value=(401, b"{}")))
    with pytest.raises(PenstockError, match=r"answers only to a valid key \(status 401\): give one with --api-key"):
        source.ask(Access(address_of("http://127.0.0.1:9")), 0.0, lambda line: None)


def test_a_server_that_was_started_anew_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([30.0, 2.0])

    async def scrape(server: Any, name: str) -> dict[str, float]:
        return {"penstock_engine_seconds_total": next(seconds)}

    async def state(server: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(source, "_scrape", scrape)
    monkeypatch.setattr(source.Server, "state", state)
    with pytest.raises(PenstockError, match="was restarted while it was watched"):
        source.ask(Access(address_of("http://127.0.0.1:9")), 0.01, lambda line: None)


def test_another_server_is_refused_before_it_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scrape(server: Any, name: str) -> dict[str, float]:
        return {}

    async def state(server: Any) -> None:
        return None

    said: list[str] = []
    monkeypatch.setattr(source, "_scrape", scrape)
    monkeypatch.setattr(source.Server, "state", state)
    with pytest.raises(PenstockError, match="it is not a Penstock server"):
        source.ask(Access(address_of("http://127.0.0.1:9")), 60, said.append)
    assert not said


def test_counters_of_others_are_refused() -> None:
    with pytest.raises(PenstockError, match="of another server or an older Penstock"):
        observed({"vllm:request_success_total": 5.0})
    with pytest.raises(PenstockError, match="no request ended"):
        observed({"penstock_engine_seconds_total": 3.0})


def test_where_nothing_is_served_now_there_is_nothing_to_judge_by() -> None:
    ever = counters(30.0, 90.0)
    with pytest.raises(PenstockError, match=r"no token was generated in 3 s, so there is no traffic to judge by: .*--duration 0"):
        observed({"penstock_engine_seconds_total": 3.0}, ever)
    slow = observed({"penstock_engine_seconds_total": 3.0, 'penstock_step_tokens_total{kind="decode"}': 30.0}, ever)
    assert slow.output_tokens_per_s == pytest.approx(10.0) and slow.output.mean == 20  # none of them has ended


def test_a_report_brings_its_objectives(report: dict[str, Any], tmp_path: Path) -> None:
    assert source.case_of(source.read_report(saved(tmp_path, report)), {}, []).slo is None
    goodput = {"slo": {"ttft_s": 0.2, "tpot_s": 0.01}, "kept_share": {"value": 0.75, "low": 0.6, "high": 0.85}}
    case = source.case_of(source.read_report(saved(tmp_path, report | {"goodput": goodput})), {}, [])
    assert str(case.slo) == "ttft=200ms,tpot=10ms" and case.seen.kept_share == 0.75


def test_refused_requests_do_not_count_against_objectives(report: dict[str, Any], tmp_path: Path) -> None:
    """As they do not in the twin, nor in the counters of tokens."""
    goodput = {"slo": {"ttft_s": 0.2}, "kept_share": {"value": 0.52, "low": 0.4, "high": 0.6}}
    requests = report["requests"] | {"measured": 200, "refused": 90, "failed": 4}
    case = source.case_of(source.read_report(saved(tmp_path, report | {"goodput": goodput, "requests": requests})), {}, [])
    assert case.seen.kept_share == pytest.approx(0.52 * 200 / 110)
    assert case.seen.good_tokens_per_s == pytest.approx(0.52 * 200 / 110 * case.seen.output_tokens_per_s)
    none = report | {"goodput": goodput, "requests": requests | {"refused": 200}}
    assert source.read_report(saved(tmp_path, none)).kept_share is None


@pytest.mark.parametrize(("load", "sent"), [
    ({"send_slo": True}, Objectives(0.2, 0.01)), ({"send_slo": False}, None), ({"send_slo": "yes"}, None), ({}, None)])
def test_a_report_says_whether_its_objectives_were_sent(
    report: dict[str, Any], tmp_path: Path, load: dict[str, Any], sent: Objectives | None) -> None:
    goodput = {"slo": {"ttft_s": 0.2, "tpot_s": 0.01, "itl_s": 1.0}, "kept_share": {"value": 0.75}}
    assert source.read_report(saved(tmp_path, report | {"goodput": goodput, "load": load})).sent == sent


def test_a_report_says_how_many_came(report: dict[str, Any], tmp_path: Path) -> None:
    assert report["came_per_s"] > 0 and source.read_report(saved(tmp_path, report)).came_per_s == report["came_per_s"]
    cut = report | {"cut_short": {"by": "Ctrl-C", "at_s": 1.0, "num_in_flight": 3}}
    assert source.read_report(saved(tmp_path, cut)).came_per_s is None, "it ended while they still came"


def counters(found: float, squared: float, **more: float) -> dict[str, float]:
    given = {"engine_seconds_total": 10.0, "requests_arrived_total": 10.0, "requests_found_total": found,
             "requests_found_squared_total": squared, 'requests_total{finish_reason="length"}': 10.0, "prompt_tokens_total": 100.0,
             "prompt_tokens_squared_total": 1250.0, "generation_tokens_total": 200.0, "generation_tokens_squared_total": 4000.0,
             'step_tokens_total{kind="decode"}': 190.0, 'request_seconds_total{state="running"}': 20.0,
             'step_bound_seconds_total{bound="weights"}': 9.0, **more}
    return {f"penstock_{name}": value for name, value in given.items()}


def test_users_and_arrivals_are_told_apart() -> None:
    closed, opened = (traffic_of(observed(counters(*found))) for found in ((30.0, 90.0), (30.0, 130.0)))
    assert closed.users == 3 and closed.rate is None and closed.think_s == pytest.approx(1.0)  # 2 of 3 are in the engine, 1 a second
    assert opened.users is None and opened.rate == pytest.approx(1.0)
    assert opened.prompt.scv == pytest.approx(0.25) and opened.output.scv == 0
    alone, sparse = observed(counters(10.0, 10.0)), observed(counters(10.0, 10.0, **{'step_bound_seconds_total{bound="weights"}': 1.0}))
    assert traffic_of(alone).users == 1 and traffic_of(sparse).users is None
    busy = {'request_seconds_total{state="waiting"}': 400.0, 'step_bound_seconds_total{bound="weights"}': 10.0}
    flooded = counters(300.0, 12000.0, **busy)
    refused = observed(flooded | {'penstock_requests_total{finish_reason="refused"}': 1.0})
    assert traffic_of(refused).users == 42, "as soon as some are refused, there are always others"


def moments(since: tuple[float, float], gap: tuple[float, float], place: float = 0.1, peak: float = 3.0) -> dict[str, float]:
    """(mean, standard deviation) of ten arrivals' times since an ending, and since the arrival before."""
    sums = {name: (10 * mean, 10 * (mean**2 + deviation**2)) for name, (mean, deviation) in (("since", since), ("gap", gap))}
    return {
        "requests_placed_total": 10.0, "requests_after_seconds_total": 10 * place, "requests_between_seconds_total": 10.0,
        "requests_followed_total": 10.0, "requests_peaks_total": 4.0, "requests_peaks_inverse_total": 4 / peak,
        **{f"requests_{name}_seconds_total": total for name, (total, _) in sums.items()},
        **{f"requests_{name}_squared_seconds_total": squares for name, (_, squares) in sums.items()}}


BACK = moments((0.01, 0.001), (0.2, 0.3))


@pytest.mark.parametrize(("more", "users"), [
    (BACK, 3),  # who find now more, now fewer, since they end and come back together
    (moments((0.01, 0.001), (0.2, 0.3), place=0.5), None), (moments((0.2, 0.3), (0.2, 0.3)), None),
    (moments((0.2, 0.3), (0.2, 0.02)), None),
    (BACK | {'request_seconds_total{state="running"}': 2.0}, None),  # three at times, while most of the time nobody is there
])
def test_users_who_end_together_are_no_arrivals(more: dict[str, float], users: int | None) -> None:
    assert traffic_of(observed(counters(22.0, 60.0, **more))).users == users


def test_a_constant_rate_is_no_user_though_each_finds_as_many() -> None:
    even = moments((0.2, 0.05), (0.2, 0.01), place=0.5)
    assert traffic_of(observed(counters(30.0, 90.0, **even))).users is None
    alone = {"requests_found_total": 10.0, "requests_found_squared_total": 10.0}
    assert traffic_of(observed(counters(10.0, 10.0, **even | alone))).users is None


@pytest.mark.parametrize(("load", "users"), [
    ("closed:users=6", 6), ("closed", 1), ("closed:users=600", 10), ("poisson:rate=4", None), ("constant:rate=4", None), ("replay", None),
    (None, 3), ("closed:users=x", 3)])
def test_a_report_names_its_arrivals(load: str | None, users: int | None) -> None:
    assert traffic_of(observed(counters(30.0, 90.0)), load=load).users == users


def test_the_arrivals_of_a_report_are_read(report: dict[str, Any], tmp_path: Path) -> None:
    for said, users in ((report["load"], 4), ({"arrivals": "closed:users=5"}, 5), ({"arrivals": "poisson:rate=9"}, None), (None, 4)):
        case = source.case_of(source.read_report(saved(tmp_path, report | {"load": said})), {}, [])
        assert case.traffic.users == users
    with pytest.raises(UsageError, match="its arrivals are not named"):
        source.read_report(saved(tmp_path, report | {"load": {"arrivals": 5}}))


def test_a_queue_is_played_as_it_was_seen() -> None:
    busy = {'request_seconds_total{state="waiting"}': 400.0, 'step_bound_seconds_total{bound="weights"}': 10.0}
    found = {come: traffic_of(observed(counters(300.0, 12000.0, **busy, requests_arrived_total=come))) for come in (8.0, 10.0, 30.0)}
    # one request a second is answered in these 10 s, and 40 wait on average: 30 at the begin, where two more come than are answered
    assert {come: traffic.crowd.waiting for come, traffic in found.items()} == {8.0: round(41 / 0.8), 10.0: 40, 30.0: 10}
    assert all(traffic.crowd.end_s - traffic.crowd.begin_s == pytest.approx(10.0) for traffic in found.values())
    assert {come: traffic.rate for come, traffic in found.items()} == pytest.approx({8.0: 0.8, 10.0: 1.0, 30.0: 3.0}, rel=0.02)
    assert "3 requests a second, of which 1 are answered" in found[30.0].told() and "answered" not in found[10.0].told()
    given_up = counters(300.0, 12000.0, **busy, requests_arrived_total=30.0) | {'penstock_requests_total{finish_reason="abort"}': 20.0}
    assert traffic_of(observed(given_up)).crowd == found[10.0].crowd
    came = traffic_of(observed(counters(300.0, 12000.0, **busy)), came_per_s=9.0).crowd  # and nobody any more when they were answered
    assert (came.waiting, came.begin_s, came.end_s, came.count, came.answered) == (0, 0.0, 10.0, 90, pytest.approx(1.0))


def test_of_refused_requests_only_the_share_is_told(report: dict[str, Any], tmp_path: Path) -> None:
    counters = report["server"]["counters"]
    count = sum(value for name, value in counters.items() if name.startswith("penstock_requests_total"))
    many = {**counters, 'penstock_requests_total{finish_reason="refused"}': 3 * count}
    notes: list[str] = []
    told = report | {"server": report["server"] | {"counters": many}}
    case = source.case_of(source.read_report(saved(tmp_path, told)), {}, notes)
    assert (case.traffic.prompt.mean, case.traffic.output.mean) == (24, 8) and case.seen.refused_share == pytest.approx(0.75)
    assert any(note.startswith("75% of the requests were refused") for note in notes)


@pytest.mark.parametrize(("measured", "at", "age"), [
    ("2026-01-02T03:00:00Z", "2026-01-02T03:59:00Z", None), ("2026-01-02T03:00:00Z", "2026-01-02T08:10:00Z", "5 hours"),
    ("2026-01-02T03:00:00Z", "2026-02-02T03:00:00Z", "31 days"), ("2026-01-02T03:00:00Z", "2026-01-02T02:00:00Z", None),
    ("", "2026-01-02T08:00:00Z", None), ("2026-01-02T03:00:00Z", None, None)])
def test_limits_of_another_hour_are_told(report: dict[str, Any], tmp_path: Path, measured: str, at: str | None, age: str | None) -> None:
    limits = limits_told(Hardware("box", {1: 2e10}, {"fp32": 1e11}, measured=measured))
    state = {name: value for name, value in report["engine"].items() if name != "at"} | {"limits": limits}
    notes: list[str] = []
    told = report | {"engine": state if at is None else state | {"at": at}}
    source.case_of(source.read_report(saved(tmp_path, told)), {}, notes)
    old = [note for note in notes if "before this was observed" in note]
    assert len(old) == (age is not None) and all(f"measured {age} before" in note and "limits --fresh" in note for note in old)


def test_an_engine_says_when_it_was_asked_and_limits_when_they_were_measured(report: dict[str, Any], tmp_path: Path) -> None:
    apart_s = source.apart_s(report["began"], report["engine"]["at"])
    assert apart_s is not None and abs(apart_s) < 600  # the engine is asked just before the run begins
    limits = limits_told(Hardware("box", {1: 2e10}, {"fp32": 1e11}))
    for name, wrong in (("measured", "yesterday"), ("at", "now"), ("at", 5)):
        state = report["engine"] | {"limits": limits | {"measured": "2026-01-02T03:00:00Z"}, "at": "2026-01-02T03:00:00Z"}
        put = {"limits": state["limits"] | {name: wrong}} if name == "measured" else {name: wrong}
        with pytest.raises(PenstockError, match="cannot be read"):
            source.case_of(source.read_report(saved(tmp_path, report | {"engine": state | put})), {}, [])


def test_keys_and_values_of_a_step_and_the_host_share_the_caches(
    report: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = limits_told(Hardware("box", {1: 2e10}, {"fp32": 1e11, "bf16": 1e11}))
    beside: list[float] = []
    monkeypatch.setattr(case, "Roof", lambda *of: beside.append(of[-1]) or Roof(*of))
    source.case_of(source.read_report(saved(tmp_path, report | {"engine": report["engine"] | {"limits": limits}})), {}, [])
    counters = report["server"]["counters"]
    steps = sum(count for name, count in counters.items() if name.startswith("penstock_steps_total"))
    moved = counters['penstock_step_bytes_total{kind="kv"}'] / steps
    assert moved > 0 and beside == [pytest.approx(source.HOST_BYTES + moved)]
