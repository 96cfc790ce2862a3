"""`penstock tune`: what it refuses, and a whole search of a tiny model."""
import gc
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.options import options_of, read
from penstock.cli.tune import TuneOptions, traffic_of
from penstock.compute.fitted import Fitted
from penstock.core.config import EngineConfig, ServerConfig
from penstock.study.plan import checked
from penstock.study.plan.calibrate import Calibration

Command = Callable[[list[str]], tuple[int, str, str]]
SLO = ["--slo", "ttft=2s,tpot=1s"]
STEPS = Calibration(Fitted((1, 64), (0.001, 0.002), 0.0, 0.0, 0.0, 0.0), 0.0005, 100, 0.1, 0.0)
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"2023-11-16 18:17:{second:02}.0,{20 + second},4\n" for second in range(10))


@pytest.mark.parametrize(("args", "told"), [
    ([], "tune needs objectives: --slo"), (["--slo", "ttft=2"], "must be a time with its unit"),
    (["http://127.0.0.1:1", *SLO], "give a model, not the server"), ([*SLO, "--pairs", "1"], "--pairs must be at least 2, not 1"),
    ([*SLO, "--finalists", "0"], "--finalists must be at least 1"), ([*SLO, "--rate", "0"], "--rate must be more than 0 and finite, not 0"),
    ([*SLO, "--rate", "1", "--arrivals", "poisson"], "--arrivals says when requests come, and so do --rate"),
    ([*SLO, "--rate", "1", "--find-goodput"], "--find-goodput searches for a rate, and --rate gives one"),
    ([*SLO, "--traffic", "nowhere.csv"], "there is no trace 'nowhere.csv'"), ([*SLO, "--quality-budget", "ppl=1"], "has no 'ppl'"),
    ([*SLO, "--rate", "1", "--levers", "speed"], "--levers has no 'speed'; it has: max_num_seqs"),
    ([*SLO, "--warmup", "x"], "--warmup must"),
    ([*SLO, "--warmup", "30s"], "--warmup 30s leaves nothing to measure in a run of 10 s"),
    ([*SLO, "--attain", "1.5"], "--attain must be above 0 and at most 1, not 1.5"),
    ([*SLO, "--levers", ","], "--levers names options to try"), ([*SLO, "--levers", ""], "and '' names none"),
    ([*SLO, "--body", '{"speed": 1}'], "has no field 'speed'"), ([*SLO, "--body", '{"temperature": "hot"}'], 'temperature is "hot"'),
    ([*SLO, "--rate", "1", "--levers", "quant"], "--levers quant leaves nothing to search: quant: it changes the answers, and there is no"),
    ([*SLO, "--rate", "1", "--levers", "propose,draft_control"], "propose: prompts are random tokens, which say nothing about drafts"),
    ([*SLO, "--rate", "1", "--levers", "draft_control"], "draft_control: it has no effect without propose"),
    ([*SLO, "--find-goodput", "--arrivals", "closed"], "in a closed loop the server sets the rate"),
    ([*SLO, "--rate", "1", "--attain", "0.5"], "--attain is for a search for the highest rate, and there is none here"),
    ([*SLO, "--arrivals", "closed:users=2", "--attain", "0.8"], "--attain is for a search for the highest rate, and there is none"),
    ([*SLO, "--rate", "1", "--start-rate", "2"], "--start-rate is for a search for the highest rate"),
    ([*SLO, "--dataset", "nothing"], "unknown dataset 'nothing'"), ([*SLO, "--body", "["], "--body is not JSON"),
    ([*SLO, "--text", "nowhere.txt"], "--text: cannot read nowhere.txt"),
    (["llama-2-7b", *SLO], "a search runs the model, but of 'llama-2-7b' only the config is known"),
])
def test_what_cannot_be_is_refused(penstock: Command, tmp_path: Path, args: list[str], told: str) -> None:
    status, _, err = penstock(["tune", *args, "--output", str(tmp_path / "tuned.toml")])
    assert status == 2 and told in err and err.count("\n") == 1 and not list(tmp_path.iterdir())


def test_traffic_and_a_dataset_exclude_each_other(penstock: Command, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(AZURE)
    trace = str(tmp_path / "trace.csv")
    status, _, err = penstock(["tune", *SLO, "--traffic", trace, "--dataset", f"azure:path={trace}"])
    assert status == 2 and "both say what is asked" in err
    status, _, err = penstock(["tune", *SLO, "--traffic", trace, "--arrivals", "poisson"])
    assert status == 2 and "--arrivals says when" in err


def test_a_text_is_none_for_prompts_that_are_read(penstock: Command, tmp_path: Path) -> None:
    asked, output = tmp_path / "asked.jsonl", str(tmp_path / "tuned.toml")
    asked.write_text('{"prompt": "a fox", "max_tokens": 2}\n')
    status, _, err = penstock(["tune", *SLO, "--rate", "1", "--dataset", f"jsonl:path={asked}", "--text", __file__, "--output", output])
    assert status == 2 and "--text is what made-up prompts are cut from, and this dataset brings its own" in err


def test_a_trace_brings_its_rate_and_other_traffic_searches_for_one(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(AZURE)
    trace = str(tmp_path / "trace.csv")
    for options, searches, times in (
        (TuneOptions(traffic=trace), False, [0.0, 1.0, 2.0]), (TuneOptions(traffic=trace, rate=2.0), False, [0.0, 0.5, 1.0]),
        (TuneOptions(dataset=f"azure:path={trace}"), False, [0.0, 1.0, 2.0]),
        (TuneOptions(arrivals="constant:rate=4"), False, [0.0, 0.25, 0.5]),
    ):
        traffic, found = traffic_of(options, EngineConfig())
        calls = traffic.calls(None, tuple)
        assert found is searches and [call.at_s for call in calls[:3]] == pytest.approx(times)
    for options in (TuneOptions(), TuneOptions(traffic=trace, find_goodput=True)):
        assert traffic_of(options, EngineConfig())[1]
    assert traffic_of(TuneOptions(rate=3.0), EngineConfig())[1] is False


def test_requests_that_do_not_fit_the_context_are_told_before_anything_is_measured(
        penstock: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "kept", lambda config: pytest.fail("steps are taken before the lengths are known to fit"))
    output = str(tmp_path / "tuned.toml")
    status, _, err = penstock(["tune", "rill", *SLO, "--rate", "9", "--dataset", "synthetic:input=5000", "--output", output])
    assert status == 2 and "requests of up to 5,064 tokens, and the context holds 1,024" in err and "trial" not in err
    assert not list(tmp_path.iterdir()), "what nothing was found for leaves nothing behind"


def as_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if steps had been learned here; none is timed beside them."""
    monkeypatch.setattr(checked, "kept", lambda config: STEPS)
    monkeypatch.setattr(checked, "timed_now", lambda config, progress: [])


def test_a_whole_search(penstock: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a tiny model on random prompts; its answer is a file that serve reads, and a second call finds all of it done."""
    as_learned(monkeypatch)
    monkeypatch.setattr(gc, "collect", lambda: 0)  # of all that a long session of tests holds, three times a run
    output = tmp_path / "tuned.toml"
    args = ["tune", "rill", *SLO, "--arrivals", "constant:rate=40", "--duration", "0.1", "--dataset", "synthetic:input=12,output=3",
            "--levers", "threads,max_num_seqs", "--pairs", "2", "--kv-tokens", "2048", "--max-model-len", "64",
            "--max-num-batched-tokens", "64", "--output", str(output), "--json"]
    status, out, err = penstock(args)
    assert status == 0, err
    found = json.loads(out.splitlines()[-1])
    assert found["against_defaults"] is None or found["against_defaults"]["goodput"]["pairs"] == 2
    assert found["predicted"][0]["setting"] == {} and found["predicted"][0]["kept"] == found["predicted"][0]["measured"] > 0
    checked = {json.dumps(each["setting"]): each for each in found["checked"]}
    assert checked["{}"]["expected"] == {key: value for key, value in found["predicted"][0].items() if key != "setting"}
    assert "the defaults: expected " in err and "; measured " in err and " gone, at most " in err
    known = {each.name: each for kind in (ServerConfig, EngineConfig) for each in options_of(kind)}
    written = read(str(output), known, "serve")
    assert written == {"model": "rill", "slo_default": "ttft=2000ms,tpot=1000ms", "kv_tokens": 2048, "max_model_len": 64,
                       "max_num_batched_tokens": 64, **found["best"]}
    again, out, err = penstock(args)
    assert again == 0 and json.loads(out.splitlines()[-1])["best"] == found["best"] and "going on: " in err
    status, _, err = penstock([*args, "--seed", "1"])
    assert status == 2 and "was begun without --seed, not with 1" in err
