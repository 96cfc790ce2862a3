"""What other clients say, in our words; and whether they agree."""
import json
from collections.abc import Iterator
from pathlib import Path

import clients
import pytest
from askers import compare, guidellm, prompts, vllm
from askers.contract import Found, Load
from askers.ours import Ours
from askers.plain import Plain, Seen, summed

from penstock.study.measure.counters import values_of

FOUND = Found(4, 40, 20, 2.0, ttft_mean=0.2, itl_mean=0.02, e2e_mean=0.6, ttft_p50=0.2, tpot_p50=0.02)


def test_guidellm_says_tpot_where_it_says_inter_token_latency() -> None:
    def summary(median: float, mean: float) -> dict[str, object]:
        return {"successful": {"median": median, "mean": mean, "percentiles": {"p99": 2 * median}}, "errored": None}

    metrics = {
        "request_totals": {"successful": 4}, "time_to_first_token_ms": summary(50, 60), "inter_token_latency_ms": summary(9, 10),
        "request_latency": summary(0.5, 0.6), "requests_per_second": summary(1, 2), "prompt_token_count": summary(8, 10),
        "output_token_count": summary(5, 5), "time_per_output_token_ms": summary(70, 80)}
    found = guidellm.read({"benchmarks": [{"metrics": metrics}]})
    assert (found.answered, found.prompt_tokens, found.output_tokens, found.requests_per_s) == (4, 40, 20, 2)
    assert (found.ttft_p50, found.ttft_mean) == pytest.approx((0.05, 0.06))
    assert (found.tpot_p50, found.tpot_mean) == pytest.approx((0.009, 0.01))
    assert (found.ttft_p99, found.tpot_p99) == pytest.approx((0.1, 0.018))
    assert (found.e2e_p50, found.e2e_mean) == (0.5, 0.6) and found.itl_p50 is found.itl_mean is None


def test_vllm_tells_milliseconds_or_its_error() -> None:
    told = {f"{word}_{name}_ms": number for word, number in (("median", 10.0), ("mean", 20.0), ("p99", 30.0))
            for name in ("ttft", "tpot", "itl", "e2el")}
    found = vllm.read({**told, "completed": 4.0, "total_input_tokens": 40.0, "total_output_tokens": 20.0, "request_throughput": 2.0})
    assert found.answered == 4 and found.requests_per_s == 2 and (found.e2e_p50, found.e2e_mean) == pytest.approx((0.01, 0.02))
    assert (found.ttft_p99, found.tpot_p99) == pytest.approx((0.03, 0.03))
    with pytest.raises(RuntimeError, match="ValueError: no"):
        vllm.read({"error": "ValueError: no"})


def test_a_plain_client_sums_up_by_our_definitions() -> None:
    found = summed([Seen(0.0, [1.0, 1.5, 3.0], 7, 3), Seen(1.0, [4.0], 5, 1)])
    assert (found.answered, found.prompt_tokens, found.output_tokens, found.requests_per_s) == (2, 12, 4, 0.5)
    assert (found.ttft_p50, found.ttft_p99) == (2.0, pytest.approx(2.98)) and found.tpot_mean == found.tpot_p99 == 1.0
    assert found.itl_mean == 1.0 and found.e2e_mean == 3.0


def test_prompts_are_the_same_for_everyone_and_other_ones_with_another_seed(tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        prompts.write_prompts(tmp_path / name, 5, (3, 9), 7, seed)
    first = (tmp_path / "a").read_text()
    assert first == (tmp_path / "b").read_text() != (tmp_path / "c").read_text()
    texts = [json.loads(line)["prompt"] for line in first.splitlines()]
    assert len(texts) == 5 and all(3 <= len(text.split()) <= 9 for text in texts)
    prompts.for_guidellm(tmp_path / "a", tmp_path / "guidellm")
    prompts.for_vllm(tmp_path / "a", tmp_path / "vllm")
    prompts.for_penstock(tmp_path / "a", tmp_path / "chat", chat=True)
    assert json.loads((tmp_path / "guidellm").read_text().splitlines()[0]) == {"prompt": texts[0], "output_tokens_count": 7}
    assert [each["conversations"][0]["value"] for each in json.loads((tmp_path / "vllm").read_text())] == texts
    last = json.loads((tmp_path / "chat").read_text().splitlines()[4])
    assert last == {"messages": [{"role": "user", "content": texts[4]}], "max_tokens": 7}


def runs(factor: float, served: float) -> list[compare.Run]:
    """Three rounds: a rival that is served `served` times as slowly, and tells `factor` times what ours would have told."""
    made = []
    for number in range(3):
        alike = {"ttft_mean": 0.1, "itl_mean": 0.02, "e2e_mean": 0.5, "answered": 4.0, "prompt_tokens": 40.0, "output_tokens": 20.0}
        other = alike | {name: alike[name] * served for name in compare.SERVED}
        slow = Found(4, 40, 20, 2.0 / served, ttft_mean=0.2 * served * factor, itl_mean=0.02 * served, e2e_mean=0.6 * served,
                     ttft_p50=0.2 * served * factor)
        made += [compare.Run("users", "ours", number, FOUND, alike), compare.Run("users", "theirs", number, slow, other)]
    return made


def test_who_was_served_otherwise_agrees_and_who_measures_otherwise_does_not() -> None:
    served = compare.over_server(runs(1.0, 3.0))
    assert compare.ratios(runs(1.0, 3.0), "ours")["users"]["theirs"]["ttft_p50"] == pytest.approx(3)
    assert served["users"]["ours"]["ttft_mean"] == pytest.approx(served["users"]["theirs"]["ttft_mean"]) == pytest.approx(2)
    assert compare.apart(compare.agreement(served, "ours"), 0.1) == []
    (found,) = compare.apart(compare.agreement(compare.over_server(runs(1.5, 3.0)), "ours"), 0.1)
    assert (found["client"], found["measure"]) == ("theirs", "ttft_mean") and found["ratio"] == pytest.approx(1.5)


def test_a_count_has_to_be_equal_and_what_one_does_not_tell_is_not_compared() -> None:
    agreed = {"users": {"theirs": {"answered": 1.01, "ttft_mean": 1.01}}}
    assert [each["measure"] for each in compare.apart(agreed, 0.1)] == ["answered"]
    told, other = {"itl_mean": None, "e2e_mean": 2.0}, {"itl_mean": 1.0, "e2e_mean": 4.0}
    assert compare.quotients(told, other, ("itl_mean", "e2e_mean")) == {"e2e_mean": 0.5}
    lines = compare.table({"a": {"ttft_mean": 1.0}, "b": {"e2e_mean": 2.0}})
    assert lines[0].split() == ["ttft_mean", "e2e_mean"] and lines[2].split() == ["b", "-", "2.000"]


def test_a_rival_that_fails_takes_no_part_any_more_and_ours_has_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def __init__(self, name: str) -> None:
            self.name = name
            self.closed = False

        def ask(self, load: Load, folder: Path) -> Found:
            (folder / "log").write_text("all is well\nno, it is not\n")
            raise RuntimeError("ended")

        def close(self) -> None:
            self.closed = True

    rival, own = Failing("rival"), Failing(Ours.name)
    turns = clients.Turns([own, rival], {})
    assert turns.of_round(1) == [rival, own]
    assert turns.ask(rival, clients.NOWHERE, tmp_path / "a") is None
    assert turns.askers == [own] and "ended" in turns.missing["rival"] and "no, it is not" in turns.missing["rival"]
    assert rival.closed and not own.closed
    with pytest.raises(RuntimeError):
        turns.ask(own, clients.NOWHERE, tmp_path / "b")
    stuck = Failing("stuck")
    monkeypatch.setattr(stuck, "close", lambda: own.ask(clients.NOWHERE, tmp_path / "a"))
    turns.askers.append(stuck)
    with pytest.raises(RuntimeError):
        turns.ask(stuck, clients.NOWHERE, tmp_path / "c")
    assert turns.askers == [own] and "ended" in turns.missing["stuck"]


def test_nothing_is_recorded_where_nothing_was_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    kept: list[Path] = []
    monkeypatch.setattr(clients, "write", lambda result, path: kept.append(path))
    turns, args = clients.Turns([Ours()], {}), clients.make_parser().parse_args(["--record"])
    clients.report([], turns, args, True)
    assert not kept
    clients.report(runs(1.0, 3.0), turns, args, True)
    assert len(kept) == 1 and kept[0].name.endswith("-clients.json")


def test_what_clients_said_some_of_whom_failed_goes_beside(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(clients, "RESULTS", tmp_path)
    args, whole = clients.make_parser().parse_args(["--record"]), runs(1.0, 3.0)
    for found, missing in ((whole[:-1], {"theirs": "ended"}), (whole, {"other": "no path given"}), (whole[:3], {"theirs": "ended"})):
        clients.report(found, clients.Turns([Ours()], missing), args, True)
    told = {path.name.partition("-clients")[2]: len(json.loads(path.read_text())["runs"]) for path in tmp_path.iterdir()}
    assert told == {".json": 6, "-failed-theirs.json": 3}


def test_what_other_clients_or_half_a_run_said_goes_beside(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(clients, "RESULTS", tmp_path)
    turns, parser = clients.Turns([Ours()], {}), clients.make_parser()
    args, both = parser.parse_args(["--record"]), runs(1.0, 3.0)
    own = [run for run in both if run.client == "ours"]
    for found, options, finished in ((both, args, True), (own, args, True), (own, args, False),
                                     (both, parser.parse_args(["--record", "--load", "users"]), True)):
        clients.report(found, turns, options, finished)
    told = {path.name.partition("-clients")[2]: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert {name: (len(each["runs"]), each["finished"]) for name, each in told.items()} == {
        ".json": (6, True), "-clients-ours.json": (3, True), "-unfinished.json": (3, False), "-load-users.json": (6, True)}


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    command = [*clients.SERVERS[clients.CLOCK], "--ttft", "0.002", "--itl", "0.001", "--tokens", "4"]
    monkeypatch.setitem(clients.SERVERS, clients.CLOCK, command)
    with clients.serving(clients.CLOCK, tmp_path) as url:
        yield url


@pytest.mark.parametrize("asker", [Ours(), Plain()], ids=["penstock", "openai"])
@pytest.mark.parametrize("chat", [False, True], ids=["completions", "chat"])
def test_clients_count_what_the_clock_did(clock: str, asker: Ours | Plain, chat: bool, tmp_path: Path) -> None:
    load = Load(clock, clients.CLOCK, Path(), tmp_path / "prompts", 6, 4, **({"users": 2} if chat else {"rate": 100.0}), chat=chat)
    prompts.write_prompts(load.prompts, load.requests, (3, 9), load.output, "")
    (folder := tmp_path / "here").mkdir()
    before = clients.counters(clock)
    found = asker.ask(load, folder)
    served = compare.served_between(before, clients.counters(clock))
    assert found.answered == served["answered"] == 6
    assert (found.prompt_tokens, found.output_tokens) == pytest.approx((served["prompt_tokens"], served["output_tokens"])) == (6, 24)
    for name in ("ttft_mean", "e2e_mean"):  # a client cannot have seen a token before it was sent
        assert found.as_json()[name] >= served[name]
    assert found.ttft_p50 is not None and found.e2e_p50 is not None and 0 < found.ttft_p50 <= found.e2e_p50


def test_growth_is_told_only_of_what_grew() -> None:
    text = "penstock_e2e_request_latency_seconds_sum 6\npenstock_e2e_request_latency_seconds_count 3\npenstock_prompt_tokens_total 9\n"
    served = compare.served_between(values_of(text), values_of(text.replace("6", "8").replace("_count 3", "_count 5")))
    assert served == {"prompt_tokens": 0.0, "output_tokens": 0.0, "e2e_mean": 1.0, "answered": 2.0}
