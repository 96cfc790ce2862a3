import json
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError, UsageError
from penstock.serve.engine.loop import Loop
from penstock.study.measure import interrupt
from penstock.study.measure.arrivals.closed import Closed, ClosedOptions
from penstock.study.measure.arrivals.renewal import Poisson, RateOptions
from penstock.study.measure.arrivals.replay import Replay, ReplayOptions
from penstock.study.measure.bench import lengths_told
from penstock.study.measure.client.drive import Extent
from penstock.study.measure.client.openai import Wish
from penstock.study.measure.datasets.jsonl import Jsonl, JsonlOptions
from penstock.study.measure.datasets.mooncake import Mooncake
from penstock.study.measure.datasets.synthetic import Synthetic, SyntheticOptions
from penstock.study.measure.datasets.traces import TraceOptions
from penstock.study.measure.job import AsChat, Asking, Job, Search, Watchers, check_recording, is_here, run, writer_for
from penstock.study.measure.load import Arrivals, Dataset, Session, Turn, Writer
from penstock.study.measure.metrics import Warmup
from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import parse_slo
from tests.tiny import write_model

PLAIN, CHAT = Asking(), Asking(chat=True)
PAGE = (Path(__file__).parents[3] / "docs" / "bench.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_model(tmp_path_factory.mktemp("model"), vocab_size=300))


def job(model: str, arrivals: Arrivals, asking: Asking = PLAIN, dataset: Any = None, num: int = 12, **more: Any) -> Job:
    def synthetic(writer: Writer, seed: str) -> Dataset:
        return Synthetic(SyntheticOptions(input=24, output=5, prefix=16), writer, seed)

    engine = EngineConfig(model=model, backend="reference", kv_tokens=2048, threads=1)
    return Job(engine, None, asking, arrivals, dataset or synthetic, Extent(num), Warmup(), "1", **more)


def test_an_engine_in_this_process(model: str) -> None:
    report = run(job(model, Closed(ClosedOptions(3)), slo=parse_slo("e2e=1min"), usd_per_hour=1.0), Watchers(lambda line: None))
    told = report.as_json()
    assert told["requests"]["completed"] == 12 and told["goodput"]["kept_share"]["value"] == 1.0 and told["target"]["in_process"]
    assert {(sample.num_prompt, sample.num_output, len(sample.chunk_s)) for sample in report.result.samples} == {(24, 5, 5)}
    assert told["server"]["queue_s"]["count"] == 12 and told["cached_share"] > 0.3
    assert report.compute_type == "fp32", "what the engine tells, as a server does"
    assert told["server"]["counters"]["penstock_generation_tokens_total"] == 60
    (listed,) = re.findall(r"^\*\*The JSON\*\* .*?^$", PAGE, re.MULTILINE | re.DOTALL)
    assert set(told) <= set(re.findall(r"[a-z0-9_]+", listed)) and set(told["ttft_s"]["p50"]) == {"value", "low", "high"}


def told_of(slo: str, model: str, order: str) -> Job:
    found = parse_slo(slo)
    asked = job(model, Closed(ClosedOptions(2)), Asking(wish=Wish(objectives=found.objectives)), num=4, slo=found)
    return replace(asked, engine=replace(asked.engine, order=order))


@pytest.mark.parametrize(("order", "served"), [("deadline", True), ("fcfs", False)])
def test_an_engine_in_this_process_is_told_what_is_asked_for(model: str, order: str, served: bool) -> None:
    told = run(told_of("ttft=1min", model, order), Watchers(lambda line: None)).as_json()
    assert told["server"]["counters"]['penstock_slo_requests_total{kept="true"}'] == 4
    assert any("without --order deadline" in note for note in told["notes"]) is not served


def test_what_no_engine_could_keep_is_refused(model: str) -> None:
    with pytest.raises(PenstockError, match="none of 4.*a first token within"):
        run(told_of("ttft=0.001us", model, "deadline"), Watchers(lambda line: None))
    unbounded = told_of("e2e=1s", model, "fcfs")
    with pytest.raises(PenstockError, match="e2e needs max_tokens"):
        run(replace(unbounded, dataset=lambda writer, seed: Ids()), Watchers(lambda line: None))


def test_an_echo_of_the_key_that_comes_while_the_engine_stops_takes_nothing(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "SAME_S", 60.0)
    stop = Loop.stop

    def stopped(self: Loop) -> None:
        signal.raise_signal(signal.SIGINT)
        stop(self)

    class Impatient:
        def draw(self, driver: Any, extent: Extent, now_s: float) -> None:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Loop, "stop", stopped)
    report = run(job(model, Closed(ClosedOptions(1)), num=100_000), Watchers(lambda line: None, Impatient()))
    assert report.exit_status == 130 and report.result.cut is not None and report.result.cut.by == "Ctrl-C"


def test_chats_have_text_of_exact_lengths(model: str) -> None:
    report = run(job(model, Closed(ClosedOptions(2)), CHAT), Watchers(lambda line: None))
    lengths = {sample.num_prompt for sample in report.result.samples}
    assert len(lengths) == 1 and min(length or 0 for length in lengths) > 24  # the template's own tokens come on top


def test_conversations_in_process(model: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps({"turns": ["a", "b", "c"], "max_tokens": 3}))
    given = job(model, Closed(ClosedOptions(1)), dataset=lambda writer, seed: Jsonl(JsonlOptions(str(tmp_path / "t.jsonl")), writer, seed))
    prompts = [sample.num_prompt or 0 for sample in run(given, Watchers(lambda line: None)).result.samples]
    assert len(prompts) == 3 and prompts == sorted(prompts) and prompts[2] > prompts[0] + 6


def test_a_conversation_that_outgrows_the_context_fails_alone(model: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps({"turns": ["a", "b " * 300, "c"], "max_tokens": 3}))
    given = job(model, Closed(ClosedOptions(1)), dataset=lambda writer, seed: Jsonl(JsonlOptions(str(tmp_path / "t.jsonl")), writer, seed))
    first, second = run(given, Watchers(lambda line: None)).result.samples
    assert first.ok and not second.ok and "256" in (second.error or "")


@pytest.mark.parametrize(("num", "cut"), [(2, True), (3, False)])
def test_a_recording_that_is_cut_short_is_told(model: str, tmp_path: Path, num: int, cut: bool) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(
        json.dumps({"timestamp": 10 * at, "input_length": 8, "output_length": 2, "hash_ids": [at]}) + "\n" for at in range(3)))
    given = job(model, Replay(ReplayOptions()), num=num, dataset=lambda writer, seed: Mooncake(TraceOptions(str(trace)), writer, seed))
    result = run(given, Watchers(lambda line: None)).result
    assert len(result.samples) == num and any("--requests" in note for note in result.notes) is cut


@pytest.mark.parametrize(("extent", "told"), [
    (Extent(9), "ended after 3 requests or conversations, and up to 9 were asked for"), (Extent(3), None),
    (Extent(seconds=60.0), "s, and --duration was 60 s"), (Extent(9, 60.0), "s, and --duration was 60 s")])
def test_a_dataset_that_ends_too_soon_is_told(model: str, tmp_path: Path, extent: Extent, told: str | None) -> None:
    path = tmp_path / "asked.jsonl"
    path.write_text(3 * (json.dumps({"prompt": [5, 6, 7], "max_tokens": 2}) + "\n"))
    asked = job(model, Closed(ClosedOptions(2)), dataset=lambda writer, seed: Jsonl(JsonlOptions(str(path)), writer, seed))
    notes = [note for note in run(replace(asked, extent=extent), Watchers(lambda line: None)).result.notes if "the dataset ended" in note]
    assert len(notes) == (told is not None) and all(str(told) in note for note in notes)


def test_a_trace_that_does_not_fit_says_how_it_would(model: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(json.dumps({"timestamp": 0, "input_length": 999, "output_length": 2, "hash_ids": [0, 1]}))

    def asked(**options: Any) -> Job:
        return job(model, Replay(ReplayOptions()), dataset=lambda writer, seed: Mooncake(TraceOptions(str(trace), **options), writer, seed))

    with pytest.raises(PenstockError, match="256.*scale=0.25 in --dataset.*max_input=TOKENS"):
        run(asked(), Watchers(lambda line: None))
    with pytest.raises(PenstockError, match="scale=0.25 in --dataset"):  # of what is recorded, not of what is half of it
        run(asked(scale=0.5), Watchers(lambda line: None))
    assert run(asked(scale=0.25), Watchers(lambda line: None)).result.samples[0].num_prompt == 250


def test_a_trace_that_does_not_fit_further_down_is_refused_before_anything_is_sent(
        model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.study.measure.client.drive.DEPTH", 1)
    monkeypatch.setattr("penstock.study.measure.client.inside.Inside.send", lambda *_: pytest.fail("it was sent"))
    rows = ((8, [0]), (8, [1]), (500, [2]), (300, [3]))
    (tmp_path / "trace").write_text("".join(
        json.dumps({"timestamp": 10 * at, "input_length": length, "output_length": 2, "hash_ids": ids}) + "\n"
        for at, (length, ids) in enumerate(rows)))
    options = TraceOptions(str(tmp_path / "trace"))
    given = job(model, Replay(ReplayOptions()), num=4, dataset=lambda writer, seed: Mooncake(options, writer, seed))
    with pytest.raises(UsageError, match="the longest request of the trace has a prompt of 500 tokens.*; the context holds 256.*scale=0.5"):
        run(given, Watchers(lambda line: None))
    users = replace(given, arrivals=Closed(ClosedOptions(1)), extent=Extent(seconds=1.0))
    check_recording(users, 256)  # who may never come so far
    with pytest.raises(UsageError, match="the longest request"):
        check_recording(replace(users, extent=Extent(4)), 256)
    chat, plain = (replace(given, asking=replace(asking, wish=Wish(more={"max_completion_tokens": 1}))) for asking in (CHAT, PLAIN))
    check_recording(chat, 501)
    with pytest.raises(UsageError, match="an answer of 2, which are 502; the context holds 501"):
        check_recording(plain, 501)  # completions have no such field


def test_no_recording_is_read_where_nobody_knows_what_fits(model: str) -> None:
    check_recording(job(model, Replay(ReplayOptions()), dataset=lambda writer, seed: pytest.fail("it was read")), None)


def test_a_search_asks_each_line_of_a_file_once(model: str, tmp_path: Path) -> None:
    """Which a prefix cache would know the second time."""
    lines = [{"prompt": [number // 16 + 5, number % 16 + 5] * 16, "max_tokens": 2} for number in range(100)]

    def search(count: int) -> Any:
        (tmp_path / "asked").write_text("".join(json.dumps(line) + "\n" for line in lines[:count]))
        given = job(model, Poisson(RateOptions(1)), num=4, slo=parse_slo("e2e=1us"), search=Search(start_rate=500.0),
                    dataset=lambda writer, seed: Jsonl(JsonlOptions(str(tmp_path / "asked")), writer, seed))
        return run(given, Watchers(lambda line: None))

    long, short = search(100), search(6)
    assert len(long.search) > 4 and not any(probe.result.figures.rates.cached_share for probe in long.search)
    assert any(probe.result.figures.rates.cached_share for probe in short.search)
    assert [any("was used up" in note for note in report.result.notes) for report in (long, short)] == [False, True]


def test_a_search_in_process(model: str) -> None:
    said: list[str] = []
    given = job(model, Poisson(RateOptions(1)), num=4, slo=parse_slo("e2e=1us"), search=Search(start_rate=500.0))
    report = run(given, Watchers(said.append))
    assert report.goodput_rate is None and any("keeps the SLO" in note for note in report.result.notes) and "trying 500 requests/s" in said
    few = run(replace(given, slo=parse_slo("e2e=60min")), Watchers(said.append))
    assert "the rate is in doubt: at " in few.result.notes[-1] and "4 measured requests are too few" in few.result.notes[-1]
    assert any("came, 100.0% kept the SLO; 4 measured requests are too few" in line for line in said)


def test_a_prompt_that_does_not_fit_is_told_before_anything_is_sent(model: str) -> None:
    given = job(model, Closed(ClosedOptions(1)), dataset=lambda writer, seed: Synthetic(SyntheticOptions(input=999), writer, seed))
    with pytest.raises(PenstockError, match="256"):
        run(given, Watchers(lambda line: None))


def test_what_does_not_go_together(model: str) -> None:
    with pytest.raises(UsageError, match="no field 'top_z'"):
        run(job(model, Closed(ClosedOptions(1)), Asking(wish=Wish(more={"top_z": 1}))), Watchers(lambda line: None))
    with pytest.raises(UsageError, match="--no-stream"):
        run(job(model, Closed(ClosedOptions(1)), Asking(wish=Wish(stream=False))), Watchers(lambda line: None))
    for asking, word in ((Asking(form="runes"), "ids or text"), (Asking(chat=True, form="ids"), "takes text")):
        with pytest.raises(UsageError, match=word):
            writer_for(asking, None)
    with pytest.raises(UsageError, match="--tokenizer"):
        writer_for(CHAT, None).write([])


class Ids:
    has_times = False

    def sessions(self) -> Any:
        return iter([Session((Turn((1, 2)),))])

    def notes(self) -> list[str]:
        return []


def test_ids_do_not_go_into_a_chat() -> None:
    with pytest.raises(UsageError, match="token ids"):
        list(AsChat(Ids()).sessions())


def test_lengths_that_nobody_told_or_asked_for_are_doubted() -> None:
    asked = {"end_s": 1.0, "wanted_output": 4}
    fine, short, pieces = (Sample(0, 0.0, num_output=count, uncounted=count == 2, **asked) for count in (4, 1, 2))
    assert not lengths_told([fine, replace(short, error="lost")])
    assert lengths_told([fine, fine, short]) == ["1 of 3 answers differ in length from what was asked for: 9 tokens in all, not 12"]
    told, = lengths_told([fine, pieces])
    assert told.startswith("the server gave no token count for 1 of 2 answers: each event counts as one")
    whole = replace(fine, num_output=None, uncounted=True, unstreamed=True)
    assert lengths_told([fine, whole]) == [
        "the server gave no token count for 1 of 2 answers, which were not streamed: output tokens leave them out"]


def test_a_warm_up_that_takes_all_is_told(model: str) -> None:
    with pytest.raises(PenstockError, match="none of 3 requests was due after the warm-up"):
        run(replace(job(model, Closed(ClosedOptions(1)), num=3), warmup=Warmup(60.0)), Watchers([].append))


def test_an_empty_dataset_is_told(model: str) -> None:
    class Nothing(Ids):
        def sessions(self) -> Any:
            return iter([])

    with pytest.raises(PenstockError, match="no request was sent; the dataset is empty"):
        run(job(model, Closed(ClosedOptions(1)), dataset=lambda writer, seed: Nothing()), Watchers(lambda line: None))


def test_a_time_too_short_for_a_request_is_told(model: str) -> None:
    short = replace(job(model, Poisson(RateOptions(0.01))), extent=Extent(seconds=0.5))
    with pytest.raises(PenstockError, match=r"no request was sent; the first comes at [0-9.]+ s, and --duration is 0.5 s"):
        run(short, Watchers(lambda line: None))


def test_a_search_that_begins_with_nothing_goes_on(model: str) -> None:
    said: list[str] = []
    given = job(model, Poisson(RateOptions(1)), slo=parse_slo("e2e=1us"), search=Search(start_rate=0.5))
    given = replace(given, extent=Extent(seconds=0.4))
    report = run(given, Watchers(said.append))
    assert said[:2] == ["trying 0.5 requests/s", "  no request came"] and report.goodput_rate is None
    assert report.search and all(probe.result.figures.counts.measured for probe in report.search)
    with pytest.raises(PenstockError, match="none of [0-9]+ requests was due after the warm-up"):
        run(replace(given, warmup=Warmup(60.0)), Watchers(said.append))


def test_who_is_here() -> None:
    assert all(map(is_here, ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::"))) and not any(map(is_here, ("10.0.0.1", "example.org")))
