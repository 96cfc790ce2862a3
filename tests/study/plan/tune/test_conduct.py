import itertools
import json
import math
import os
from dataclasses import replace

import pytest

from penstock.core.errors import PenstockError
from penstock.study.plan.tune.budget import Budget
from penstock.study.plan.tune.conduct import Search, Terms
from penstock.study.plan.tune.journal import Journal
from penstock.study.plan.tune.levers import Levers
from penstock.study.plan.tune.setting import Setting
from tests.spoiled import GONE, spoiled
from tests.study.plan.tune.fake_bench import FakeBench, search

LEVERS = Levers({
    "max_num_seqs": (8, 128), "max_num_batched_tokens": (128, 2048), "order": ("deadline",), "quant": ("int8", "int4"),
    "propose": ("ngram", "suffix"), "draft_control": ("always",), "threads": (2, 4)})
WORTH = {
    ("max_num_seqs", 128): 1.3, ("max_num_seqs", 8): 0.5, ("max_num_batched_tokens", 2048): 1.1, ("max_num_batched_tokens", 128): 0.9,
    ("order", "deadline"): 1.2, ("quant", "int8"): 1.5, ("quant", "int4"): 2.0, ("propose", "ngram"): 0.9, ("propose", "suffix"): 1.25,
    ("draft_control", "always"): 1.05, ("threads", 2): 1.1, ("threads", 4): 0.8}


@pytest.fixture(autouse=True)
def no_disk(monkeypatch):
    """test_journal.py looks after the disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "state", {}) as opened:
        yield opened


def test_what_pays_is_found_each_where_it_can_be(journal):
    bench = FakeBench(WORTH, blind=("order",), drifts={"int8": 0.001, "int4": 0.05}, noise=0.1)
    found = search(bench, journal, LEVERS, budget=Budget({"kl": 0.02}), made_up=False).run()
    assert found.best.as_json() == {
        "max_num_seqs": 128, "max_num_batched_tokens": 2048, "order": "deadline", "quant": "int8", "propose": "suffix",
        "draft_control": "always", "threads": 2}
    assert found.pairs.is_better and found.pairs.goodput.median == pytest.approx(1.3 * 1.1 * 1.2 * 1.5 * 1.25 * 1.05 * 1.1, rel=0.02)
    assert {gain.name: gain.pairs.goodput.median for gain in found.gains} == pytest.approx(
        {"max_num_seqs": 1.3, "max_num_batched_tokens": 1.1, "order": 1.2, "quant": 1.5, "propose": 1.25 * 1.05, "draft_control": 1.05,
         "threads": 1.1}, rel=0.02)
    assert any(left.what == "quant=int4" and "its kl of 0.05 is above the budget of 0.02" in left.why for left in found.left)
    assert found.as_json()["drift"] == {"kl": 0.001, "flips": 0.005, "places": 100}
    assert found.loss == "quant=int8 changes the answers: kl 0.001 nats, flips 0.5%, at 100 places of a built-in text"


def test_without_a_budget_nothing_lossy_is_even_looked_at(journal):
    bench = FakeBench(WORTH)
    found = search(bench, journal, LEVERS, made_up=False).run()
    assert "quant" not in found.best.as_json() and not any("int" in key for _, key in bench.asked) and found.loss is None
    assert {left.what for left in found.left} >= {"quant=int8", "quant=int4"}


def test_drafts_are_not_judged_on_random_tokens(journal):
    bench = FakeBench(WORTH)
    found = search(bench, journal, LEVERS, made_up=True).run()
    assert "propose" not in found.best.as_json() and not any("suffix" in key for _, key in bench.asked)
    assert any(left.what == "propose" and "--text" in left.why for left in found.left)


def test_how_drafts_are_controlled_is_raced_where_the_user_chose_the_proposer(journal):
    levers = Levers({"draft_control": ("always",)})
    assert search(FakeBench(WORTH), journal, levers, made_up=False).run().best.as_json() == {"draft_control": "always"}
    found = search(FakeBench(WORTH), journal, levers, made_up=True).run()
    assert not len(found.best) and any(left.what == "draft_control" and "--text" in left.why for left in found.left)


def test_who_looks_on_while_the_twin_plays_is_told_how_far_it_is(journal):
    said, clock = [], itertools.count(0, 4)
    Search(LEVERS, Terms(Budget()), FakeBench(WORTH), journal, said.append, lambda: next(clock)).run()
    played = [line for line in said if line.startswith("settings that the twin has played: ")]
    assert len(played) > 1 and played[0].endswith(" s gone)") and "max_num_seqs=" in played[0]


def test_the_defaults_are_best_where_the_twin_is_wrong(journal):
    bench = FakeBench({("max_num_seqs", 128): 0.97}, foreseen=WORTH, noise=0.05)
    found = search(bench, journal, Levers({"max_num_seqs": (128,)})).run()
    assert found.best == Setting() and "the defaults are best" in found.sentence


def test_noise_is_no_gain(tmp_path):
    """Nothing is worth anything: what leads by luck stands against the defaults no more often than 95 % confidence lets it."""
    levers, wrong = Levers({"max_num_seqs": (8, 16, 32, 128), "threads": (2, 3, 4)}), 0
    for seed in range(40):
        with Journal(tmp_path / f"state-{seed}", {}) as journal:
            wrong += search(FakeBench({}, foreseen=WORTH, noise=0.3, seed=seed), journal, levers).run().best != Setting()
    assert wrong <= 4


def test_what_gains_nothing_is_left_at_its_default(journal):
    bench = FakeBench({("max_num_seqs", 128): 1.5}, foreseen={("max_num_seqs", 128): 1.3, ("block_size", 64): 1.2}, noise=0.02)
    found = search(bench, journal, Levers({"max_num_seqs": (128,), "block_size": (64,)}), pairs=4).run()
    assert found.best.as_json() == {"max_num_seqs": 128}
    assert found.pairs.goodput.median == pytest.approx(1.5, rel=0.02)


def test_cost_decides_where_goodput_does_not(journal):
    bench = FakeBench({}, cost={("threads", 2): 1.4}, noise=0.01)
    found = search(bench, journal, Levers({"threads": (2,)})).run()
    assert found.best.as_json() == {"threads": 2} and "1.4 times the defaults' tokens per second of work" in found.sentence


def test_what_cannot_run_is_told_and_left_out(journal):
    bench = FakeBench(WORTH, broken=("max_num_seqs=128",))
    found = search(bench, journal, Levers({"max_num_seqs": (128,)})).run()
    assert found.best == Setting() and [left.why for left in found.left] == ["max_num_seqs=128 does not fit"]
    assert found.sentence == "the defaults are best: nothing else that was tried can run"


def test_where_the_twin_is_lost_and_nothing_is_left_nothing_is_run_again(journal):
    class Wrong(FakeBench):
        def predicted(self, setting, rate=None):
            return replace(super().predicted(setting), kept=0)

    bench = Wrong({}, drifts={"int4": 0.5})
    found = search(bench, journal, Levers({"quant": ("int4",)}), budget=Budget({"kl": 0.02}), made_up=False).run()
    assert found.num_trials == 1
    assert found.sentence == "the defaults are best: no other setting was left to be run"


def test_an_engine_that_does_not_run_at_all_is_an_error(journal):
    class Dead(FakeBench):
        def measured(self, setting, traffic, rate):
            raise PenstockError("there is no memory")

    with pytest.raises(PenstockError, match="there is no memory"):
        search(Dead(WORTH), journal, LEVERS).run()


def test_without_a_rate_settings_are_compared_where_the_defaults_are_at_their_end(journal):
    bench = FakeBench({("max_num_seqs", 128): 1.44})
    found = search(bench, journal, Levers({"max_num_seqs": (128,)}), searches_rate=True).run()
    assert found.rate == pytest.approx(12.0, rel=1e-4) and found.rates == pytest.approx((10.0, 14.4))
    assert found.best.as_json() == {"max_num_seqs": 128}


def test_a_winner_whose_highest_rate_is_below_the_defaults_is_none(journal):
    class Steep(FakeBench):
        def highest(self, setting, start_rate):
            return replace(super().highest(setting, start_rate), rate=9.0 if len(setting) else 10.0)

    found = search(Steep({("max_num_seqs", 128): 1.44}), journal, Levers({"max_num_seqs": (128,)}), searches_rate=True).run()
    assert not len(found.best) and found.rejected.as_json() == {"max_num_seqs": 128} and found.rates == (10.0, 9.0)
    assert found.sentence.endswith("but keeps the SLO up to 9 requests/s, the defaults up to 10 requests/s")
    assert found.left[-1].why == "it keeps the SLO up to 9 requests/s, the defaults up to 10 requests/s"


def test_what_is_measured_is_told_beside_what_was_expected(journal):
    bench = FakeBench({("max_num_seqs", 128): 1.5}, foreseen={("max_num_seqs", 128): 1.2})
    searched = search(bench, journal, Levers({"max_num_seqs": (128,), "threads": (2,)}))
    found = searched.run()
    told = {each.setting.as_json().get("max_num_seqs"): each for each in found.checked if "threads" not in each.setting.as_json()}
    assert told[128].expected.goodput == pytest.approx(12) and told[128].found.goodput == pytest.approx(15)
    assert [each.expected for each in found.checked if "threads" in each.setting.as_json()] == [None]
    lines = searched.say.__self__
    assert any("max_num_seqs=128: expected 12 good requests/s" in line and "; measured 15 good" in line for line in lines)
    assert not any("the twin is wrong" in line for line in lines) and found.as_json()["checked"][0]["setting"] == {}


@pytest.mark.parametrize(("count", "told"), [
    (1, "runs of 1 measured request are too few to tell settings apart by the share that keeps the SLO: that takes 35, so a --duration (or "
        "--requests) 35.0 times as long"),
    (34, "runs of 34 measured requests are too few to tell settings apart by the share that keeps the SLO: that takes 35, so a --duration "
         "(or --requests) 1.1 times as long"),
    (35, None)])
def test_runs_of_few_requests_are_told_before_the_races_and_with_the_answer(journal, count, told):
    """As where the first seconds of a trace hold no more."""
    class Thin(FakeBench):
        def measured(self, setting, traffic, rate):
            return replace(super().measured(setting, traffic, rate), kept=count, measured=count)

    searched = search(Thin(), journal, Levers({"threads": (2,)}))
    found = searched.run()
    lines = searched.say.__self__
    assert found.doubt == found.as_json()["doubt"] == told
    assert [line for line in lines if "too few" in line] == ([] if told is None else [told])
    assert told is None or lines.index(told) < next(at for at, line in enumerate(lines) if line.startswith("threads:"))


def test_where_the_twin_is_far_off_what_is_measured_rules(journal):
    """It expects nothing of anything; alone, three options lead, and the best of them are tried first on top of one another."""
    class Dark(FakeBench):
        def predicted(self, setting, rate=None):
            return replace(super().predicted(setting), kept=0)

    worth = {("max_num_seqs", 8): 0.5, ("max_num_seqs", 128): 1.3, ("block_size", 64): 1.1, ("evict", "lfu"): 1.2, ("evict", "fifo"): 1.15}
    levers = Levers({"max_num_seqs": (8, 128), "block_size": (64,), "evict": ("lfu", "fifo"), "prefix_cache": (False,)})
    searched = search(Dark(worth), journal, levers)
    found = searched.run()
    assert found.best.as_json() == {"max_num_seqs": 128, "evict": "lfu", "block_size": 64}
    warned = [line for line in searched.say.__self__ if "the twin is wrong here" in line]
    assert len(warned) == 1 and "more than 2; from here on, measurements decide" in warned[0]
    races = [line.partition(":")[0] for line in searched.say.__self__ if " beside " in line]
    assert races == ["each option alone", "max_num_seqs", "evict", "block_size"]
    assert {left.what for left in found.left} >= {"max_num_seqs=8", "prefix_cache=false"}


def test_a_twin_that_expects_nothing_does_not_set_the_rate(journal):
    class Dark(FakeBench):
        def predicted(self, setting, rate=None):
            return replace(super().predicted(setting), rate=0.0 if rate is None else None, tried=1.0)

        def highest(self, setting, start_rate):
            self._note("from", f"{start_rate:g}")
            return super().highest(setting, start_rate)

    bench = Dark({("max_num_seqs", 128): 1.44})
    found = search(bench, journal, Levers({"max_num_seqs": (128,)}), searches_rate=True, start_rate=3.0).run()
    assert ("from", "3") in bench.asked and found.rate == pytest.approx(11.0) and found.best.as_json() == {"max_num_seqs": 128}


@pytest.mark.parametrize(("start_rate", "rate"), [(0.1, 0.25), (1.0, 1.0)])
def test_where_no_rate_keeps_the_slo_settings_are_compared_at_the_start_rate_or_the_lowest_tried(journal, start_rate, rate):
    class Slow(FakeBench):
        def highest(self, setting, start_rate):
            return replace(super().highest(setting, start_rate), rate=0.0, tried=0.25, measured=250, seconds=10.0)

    bench, levers = Slow({("max_num_seqs", 128): 1.44}), Levers({"max_num_seqs": (128,)})
    searched = search(bench, journal, levers, searches_rate=True, start_rate=start_rate)
    found = searched.run()
    assert f"not even at 0.25 requests/s do the defaults keep the SLO; settings are compared at {rate:g}" in searched.say.__self__
    assert found.rate == rate and found.rates == (0.0, 0.0) and found.as_json()["highest_rate"] == {"defaults": 0.0, "best": 0.0}


def test_a_format_that_measurements_chose_is_not_left_out(journal):
    class Dark(FakeBench):
        def predicted(self, setting, rate=None):
            return replace(super().predicted(setting), kept=0)

    found = search(Dark({("quant", "int8"): 1.5}), journal, Levers({"quant": ("int8",)}), budget=Budget({"kl": 0.02})).run()
    assert found.best.as_json() == {"quant": "int8"} and not found.left


def test_what_the_twin_does_not_know_is_raced_once(journal):
    """Where measurements rule, a weight format that could not be learned does not run alone before its race."""
    class Dark(FakeBench):
        def predicted(self, setting, rate=None):
            return replace(super().predicted(setting), kept=0)

    bench = Dark({("quant", "int8"): 1.5}, blind=("quant",))
    found = search(bench, journal, Levers({"quant": ("int8",), "block_size": (64,)}), budget=Budget({"kl": 0.02})).run()
    assert found.best.as_json() == {"quant": "int8"}
    assert not any(key.startswith("each option alone") and "quant" in key for _, key in bench.asked)


def test_where_nothing_keeps_the_slo_what_it_costs_decides(journal):
    """However much sooner one is done with what nobody waits for any more."""
    class Hopeless(FakeBench):
        def _score(self, setting, worth, jitter):
            return replace(super()._score(setting, worth, jitter), kept=0, seconds=500.0 if len(setting) else 1000.0)

    def searched(**cost):
        with Journal(journal.path.with_name(f"hopeless{len(cost)}"), {}) as opened:
            return search(Hopeless({}, **cost), opened, Levers({"threads": (2,), "block_size": (64,)})).run()

    assert not len(searched().best)
    found = searched(cost={("threads", 2): 1.4})
    assert found.best.as_json() == {"threads": 2}
    assert found.sentence.startswith("threads=2 is confirmed: 1.4 times the defaults' tokens per second of work (5 pairs")
    assert found.sentence.endswith("; no request kept the SLO with either")


def test_how_long_it_takes_is_told(journal):
    class Slow(FakeBench):
        def measured(self, setting, traffic, rate):
            now[0] += 5
            return super().measured(setting, traffic, rate)

    now, said = [100.0], []
    searched = Search(Levers({"max_num_seqs": (8, 128)}), Terms(Budget()), Slow(WORTH), journal, said.append, lambda: now[0])
    searched.run()
    told = [line for line in said if " gone" in line]
    assert told[0].endswith("(5 s gone, at most 1:30 min to go)")  # the defaults' run is done, a race of one is 8 more, a duel 10
    assert told[-1].endswith("(1:35 min gone, at most 0 s to go)")


@pytest.mark.parametrize("wrong", [False, True])
def test_no_more_runs_come_than_are_told_at_most(journal, wrong):
    """Whatever wins; where the twin is wrong, from the time on that it is known."""
    class Slow(FakeBench):
        def measured(self, setting, traffic, rate):
            now[0] += 1
            return super().measured(setting, traffic, rate)

        def predicted(self, setting, rate=None):
            found = super().predicted(setting, rate)
            return replace(found, kept=0) if wrong else found

    now, said = [0.0], []
    terms = Terms(Budget({"kl": 0.02}), made_up=False)
    Search(LEVERS, terms, Slow(WORTH), journal, said.append, lambda: now[0]).run()
    lines = [line for line in said if "at most" in line]
    known = next(number for number, line in enumerate(lines) if not wrong or line.startswith("each option alone"))
    ends = [seconds_in(line.rpartition("(")[2].partition(" gone")[0]) + seconds_in(line.rpartition("at most ")[2].partition(" to go")[0])
            for line in lines[known:]]
    assert min(ends) >= now[0]


def seconds_in(span):
    """Of 5 s or 2:05 min."""
    minutes, _, seconds = span.split()[0].rpartition(":")
    return 60 * int(minutes or 0) + int(seconds)


def run_all(bench, path, **terms):
    few = Levers({"max_num_seqs": (128,), "order": ("deadline",), "quant": ("int8",), "propose": ("suffix",)})
    with Journal(path, {"--slo": "ttft=1s"}) as journal:
        return search(bench, journal, few, budget=Budget({"kl": 0.02}), made_up=False, pairs=2, **terms).run(), journal


def test_a_search_goes_on_wherever_it_was_interrupted(tmp_path):
    """Whatever was asked before the interruption is not asked again, and the answer is that of a search that was left alone."""
    whole = FakeBench(WORTH, blind=("order",), noise=0.1)
    expected, _ = run_all(whole, tmp_path / "whole")
    for stops_after in range(len(whole.asked)):
        path = tmp_path / f"cut-{stops_after}"
        with pytest.raises(KeyboardInterrupt):
            run_all(FakeBench(WORTH, blind=("order",), noise=0.1, stops_after=stops_after), path)
        before = path.read_text().splitlines()[1:] if path.exists() else []
        rest = FakeBench(WORTH, blind=("order",), noise=0.1)
        found, journal = run_all(rest, path)
        assert found.as_json() == expected.as_json()
        assert journal.num_made + len(before) == len((tmp_path / "whole").read_text().splitlines()) - 1
        assert path.read_text() == (tmp_path / "whole").read_text()
    again = FakeBench(WORTH, blind=("order",), noise=0.1)
    assert run_all(again, tmp_path / "whole")[0].as_json() == expected.as_json()
    assert not [what for what, key in again.asked if what != "predicted"]


def test_runs_that_are_compared_are_of_one_stretch_of_time(tmp_path):
    """A round that was interrupted begins anew."""
    whole = FakeBench(WORTH, blind=("order",), noise=0.1)
    run_all(whole, tmp_path / "whole")
    firsts = [number for number, (what, key) in enumerate(whole.asked) if what == "measured" and "/0 " in key]
    path = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        run_all(FakeBench(WORTH, blind=("order",), noise=0.1, stops_after=firsts[0] + 1), path)
    rest = FakeBench(WORTH, blind=("order",), noise=0.1)
    run_all(rest, path)
    assert whole.asked[firsts[0]] in rest.asked


def test_where_the_whole_fails_its_first_part_may_stand(journal):
    """A choice that only luck made must not take down the one before it."""
    class Lucky(FakeBench):
        def measured(self, setting, traffic, rate):
            found = super().measured(setting, traffic, rate)
            if "threads" not in dict(setting):
                return found
            factor = 2.0 if traffic.startswith("race") else 0.5
            return replace(found, kept=round(found.kept * factor))

    found = search(Lucky({("max_num_seqs", 128): 1.5}), journal, Levers({"max_num_seqs": (128,), "threads": (2,)})).run()
    assert found.best.as_json() == {"max_num_seqs": 128}


def test_what_no_search_found_is_refused_by_name(tmp_path):
    """Of each kind of answer, one; what is still a number goes on."""
    def searched():
        with Journal(tmp_path / "state", {}) as journal:
            bench = FakeBench(WORTH, drifts={"int8": 0.001, "int4": 0.05}, noise=0.1)
            search(bench, journal, LEVERS, budget=Budget({"kl": 0.02}), searches_rate=True).run()

    searched()
    head, *lines = (tmp_path / "state").read_text().splitlines()
    kinds = {json.loads(json.loads(line)["key"])[0]: line for line in reversed(lines)}
    assert set(kinds) == {"drift", "predicted", "highest", "runs"}
    for kind, line in kinds.items():
        refused = 0
        for told in spoiled({"found": json.loads(line)["found"]}, ("x", math.nan, GONE)):
            (tmp_path / "state").write_text(f"{head}\n{json.dumps({'key': json.loads(line)['key'], **told})}\n")
            try:
                searched()
            except PenstockError as error:
                refused += 1
                assert "holds an invalid answer" in str(error) or "line 2 of" in str(error)
        assert refused >= 9, f"{kind}: of an answer's parts, each that is no number, and those that it must have"


@pytest.mark.parametrize("key", ["[", "3", "[]", '["speed"]', '["runs"]', '["runs", 3]', '[["runs"]]'])
def test_a_key_of_nothing_that_is_asked_is_refused(tmp_path, key):
    (tmp_path / "state").write_text(json.dumps({"format": 1, "asked": {}}) + "\n" + json.dumps({"key": key, "found": {}}) + "\n")
    with Journal(tmp_path / "state", {}) as journal, pytest.raises(PenstockError, match="holds an invalid answer for"):
        search(FakeBench(WORTH), journal, LEVERS).run()
