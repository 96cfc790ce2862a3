from dataclasses import replace

from penstock.core.config import EngineConfig
from penstock.study.measure.slo import Slo
from penstock.study.plan.tune import toml
from penstock.study.plan.tune.budget import Drift
from penstock.study.plan.tune.outcome import Gain, Left, Outcome
from penstock.study.plan.tune.pairs import Pairs
from penstock.study.plan.tune.report import lines
from penstock.study.plan.tune.score import Score
from penstock.study.plan.tune.setting import Setting
from penstock.study.plan.tune.trust import Checked
from tests.study.plan.tune.fake_bench import score
from tests.study.plan.tune.test_pairs import pairs

FAST = Score(80, 100, 10.0, 900.0, 95, 400.0, 0.1, 0.2, 0.01, 0.02, came_per_s=12.5)
SLOW = Score(40, 100, 10.0, 600.0, 100, 400.0, 0.3, 0.4, 0.03, None, came_per_s=12.5)


def test_a_winner_is_shown_beside_the_defaults():
    pairs = Pairs(((FAST, SLOW),) * 3)
    outcome = Outcome(Setting((("max_num_seqs", 8),)), pairs, (Gain("max_num_seqs", 8, pairs),), left=(
        Left("quant=int8", "no budget"), Left("threads", "it was set to 2"), Left("quant=int4", "no budget")),
                      rate=12.0, rates=(10.0, 15.0))
    text = list(lines(outcome))
    assert [line.split() for line in text[:11]] == [line.split() for line in (
        "the defaults tuned ratio", "kept 40.0% 80.0%", "answered 100.0% 95.0%", "came/s 12.5 12.5", "good/s 4 8 1.99", "out tok/s 400 400",
        "tok/s work 600 900 1.5", "TTFT p50 300.0 ms 100.0 ms", "TTFT p99 400.0 ms 200.0 ms", "TPOT p50 30.0 ms 10.0 ms",
        "TPOT p99 - 20.0 ms")]
    assert max(map(len, text[:11])) <= 80 and "the defaults           tuned" in text[0]
    assert "the SLO is kept up to 10 requests/s with the defaults, up to 15 requests/s tuned; compared at 12 requests/s" in text
    assert "  quant=int8, quant=int4: no budget" in text and "  threads: it was set to 2" in text
    assert any(line.startswith("  max_num_seqs=8: good requests/s 8 for 4 (12.5 and 12.5 came)") for line in text)
    assert text[-1] == "max_num_seqs=8 is confirmed: 1.99 times the defaults' good requests/s (3 pairs of runs, 95 %: 1.99 to 1.99)"
    assert not any("something else runs" in line for line in text)


def test_more_good_requests_than_the_rate_are_those_that_came_by_chance():
    """Of a rate of 12 a second, of which 14.4 came."""
    lucky = Score(144, 144, 10.0, 900.0, 144, came_per_s=14.4)
    pairs = Pairs(((lucky, replace(lucky, kept=100)),) * 2)
    outcome = Outcome(Setting((("threads", 2),)), pairs, checked=(Checked(Setting(), lucky, [lucky]),))
    text = list(lines(outcome))
    assert text[3].split() == ["came/s", "14.4", "14.4"] and text[4].split() == ["good/s", "10", "14.4", "1.44"]
    assert text[11].startswith("came/s: requests a second while they arrived") and "1.44 times the defaults' good requests/s" in text[-1]
    assert any("14.4 good requests/s (100% of 144 requests that came at 14.4/s)" in line for line in text)


def test_a_restless_machine_is_told():
    busy = Score(40, 100, 10.0, 300.0, 100)
    assert any("differ by 2 times: something else runs" in line for line in lines(Outcome(pairs=Pairs(((FAST, SLOW), (FAST, busy))))))
    checked = (Checked(Setting(), None, [SLOW, busy]), Checked(Setting((("threads", 2),)), None, [SLOW]))
    assert any("differ by 2 times: something else runs" in line for line in lines(Outcome(checked=checked))), "though nothing led"


def test_runs_of_few_requests_are_told_above_the_answer_and_in_the_file():
    few = Outcome(checked=(Checked(Setting(), None, [replace(SLOW, kept=0, measured=count) for count in (2, 3, 90)]),))
    found, written = list(lines(few)), toml.text(few, EngineConfig(), Slo({"ttft": 0.3}), {})
    assert found[-2].startswith("runs of 3 measured requests are too few") and f"# {found[-2]}\n# {found[-1]}\n" in written
    assert "that takes 35, so a --duration (or --requests) 11.7 times as long" in found[-2]
    many = Outcome(checked=(Checked(Setting(), None, [SLOW]),))
    assert list(lines(many))[-2] == "" and "too few" not in toml.text(many, EngineConfig(), Slo({"ttft": 0.3}), {})


def test_the_defaults_may_be_best():
    assert list(lines(Outcome()))[-1] == "the defaults are best: the twin expects no other setting to lead, so nothing else was run"
    other = Checked(Setting((("threads", 2),)), FAST, [SLOW])
    assert list(lines(Outcome(checked=(other,))))[-1] == "the defaults are best: nothing that was tried leads"
    text = list(lines(Outcome(pairs=Pairs(((SLOW, FAST),) * 2), rejected=Setting((("threads", 2),)))))
    assert text[-1].startswith("the defaults are best: threads=2 gave 0.503 times the defaults' good requests/s (2 pairs of runs")
    assert "the defaults  the best other" in text[0]


def sentence(best, goodputs, costs=None, rates=None):
    setting, found = Setting((("threads", 2),)), pairs(*goodputs, costs=costs)
    assert found.is_better is best or rates is not None
    return Outcome(setting if best else Setting(), found, rejected=None if best else setting, rates=rates).sentence


def test_the_answer_follows_from_the_pairs():
    assert sentence(False, (0.9, 1.89, 2.1)).startswith("the defaults stay, undecided: threads=2 gave 1.89 times")
    assert sentence(False, (0.9, 1.89, 2.1)).endswith("which may be chance: more --pairs or a longer --duration would tell")
    assert sentence(False, (0.9, 1.02, 1.1)).startswith("the defaults are as good: threads=2 gave 1.02 times")
    assert sentence(False, (0.9, 1.02, 1.1)).endswith("which may be chance")
    assert sentence(False, (1.0, 1.0, 1.0), (1.004, 1.005, 1.006)).endswith("at 1 times the good requests/s, which is too little to count")
    assert sentence(False, (0.8, 0.81, 0.82)).startswith("the defaults are best: threads=2 gave 0.81 times the defaults' good requests/s")


def test_pairs_that_keep_next_to_nothing_tell_nothing():
    """Luck in the others' runs is not "as good"."""
    none, some = replace(SLOW, kept=0), replace(SLOW, kept=1)
    found = Outcome(pairs=Pairs(((some, none), (none, none), (none, some))), rejected=Setting((("threads", 2),)))
    assert found.sentence == ("the defaults are as good: threads=2 gave 0 good requests/s for the defaults' 0 (3 pairs of runs), "
                              "which tells nothing: a lighter load or a looser --slo would")


def test_what_was_confirmed_is_what_is_told():
    """Goodput that leads by luck is not told as what decided where what a token costs did."""
    told = sentence(True, (0.99, 1.04, 1.05), (1.18, 1.19, 1.2))
    assert told.startswith("threads=2 is confirmed: 1.19 times the defaults' tokens per second of work (3 pairs of runs, 95 %: 1.1")
    assert told.endswith("at 1.04 times the good requests/s")


def test_what_costs_less_is_not_confirmed_where_it_may_serve_fewer():
    told = sentence(False, (0.7, 0.995, 1.4), (1.18, 1.19, 1.2))
    assert told.startswith("the defaults are as good: threads=2 gave 0.995 times the defaults' good requests/s (3 pairs of runs, 95 %: 0.4")


def test_a_highest_rate_below_the_defaults_is_told():
    told = sentence(False, (1.5, 1.51, 1.52), rates=(10.0, 9.0))
    assert told.startswith("the defaults are best: threads=2 gave 1.51 times")
    assert told.endswith("but keeps the SLO up to 9 requests/s, the defaults up to 10 requests/s")
    assert sentence(False, (1.5, 1.51, 1.52), rates=(10.0, 0.0)).endswith("keeps the SLO at no rate that was tried, the defaults up to 10 "
                                                                          "requests/s")


def test_the_runs_that_are_shown_have_the_ratio_that_is_told():
    """Medians of either side alone would show 12 for 10."""
    found = Pairs(((score(12.0), score(6.0)), (score(10.0), score(10.0)), (score(18.0), score(12.0))))
    assert str(found).startswith("good requests/s 18 for 12 (100 and 100 came), 1.5 times")
    assert lines_of(found)[4].split()[:3] == ["good/s", "12", "18"]


def test_of_an_even_number_of_pairs_the_ratio_is_none_that_is_shown():
    found = Pairs(((score(12.0), score(10.0)), (score(14.0), score(10.0))))
    assert str(found).startswith("good requests/s 12 for 10 (100 and 100 came) in a pair near the middle, 1.3 times")
    assert lines_of(found)[12] == "a pair near the middle of 2 is shown, and the median of all ratios"
    assert not any("near the middle" in line for line in lines_of(pairs(1.2, 1.3, 1.4)))


def test_where_one_kept_nothing_the_table_has_no_ratio():
    for one, other in ((score(10.0), score(0.0)), (score(0.0), score(0.0))):
        assert lines_of(Pairs(((one, other),) * 3))[4].split() == ["good/s", f"{other.goodput:g}", f"{one.goodput:g}"]


def test_the_highest_rate_is_told_where_nothing_led_and_where_there_is_none():
    assert list(lines(Outcome(rate=12.0, rates=(10.0, 10.0))))[0] == (
        "the SLO is kept up to 10 requests/s with the defaults; compared at 12 requests/s")
    assert list(lines(Outcome(rate=0.25, rates=(0.0, 0.0))))[0] == (
        "the SLO is kept at no rate that was tried with the defaults; compared at 0.25 requests/s")


def test_what_the_answer_costs_in_quality_stands_above_it():
    found = Outcome(Setting((("quant", "int8"),)), pairs(1.5, 1.5, 1.5), drift=Drift(0.01, 0.02, 128))
    assert list(lines(found))[-2] == "quant=int8 changes the answers: kl 0.01 nats, flips 2.0%, at 128 places of a built-in text"


def lines_of(found):
    return list(lines(Outcome(Setting((("threads", 2),)), found)))


def test_what_was_expected_stands_beside_what_was_measured():
    checked = (Checked(Setting(), FAST, [SLOW]), Checked(Setting((("threads", 2),)), None, [FAST]))
    text = list(lines(Outcome(checked=checked)))
    assert "  the defaults: expected 8 good requests/s (80% of 100 requests that came at 12.5/s), 900 tokens per second of work; " \
        "measured 4 good requests/s (40% of 100 requests that came at 12.5/s), 600 tokens per second of work" in text
    assert any(line.startswith("  threads=2: not predicted; measured 8 good requests/s") for line in text)
