from dataclasses import replace

from penstock.study.plan.tune.outcome import Gain, Left, Outcome
from penstock.study.plan.tune.pairs import Pairs
from penstock.study.plan.tune.report import lines
from penstock.study.plan.tune.score import Score
from penstock.study.plan.tune.setting import Setting
from penstock.study.plan.tune.trust import Checked

FAST = Score(80, 100, 10.0, 900.0, 95, 400.0, 0.1, 0.2, 0.01, 0.02)
SLOW = Score(40, 100, 10.0, 600.0, 100, 400.0, 0.3, 0.4, 0.03, None)


def test_a_winner_is_shown_beside_the_defaults():
    pairs = Pairs(((FAST, SLOW),) * 3)
    outcome = Outcome(Setting((("max_num_seqs", 8),)), pairs, (Gain("max_num_seqs", 8, pairs),), left=(
        Left("quant=int8", "no budget"), Left("threads", "it was given as 2"), Left("quant=int4", "no budget")),
                      rate=12.0, rates=(10.0, 15.0))
    text = list(lines(outcome))
    heading, defaults, tuned = (line.split() for line in text[:3])
    assert heading == "kept answered came/s good/s out tok/s tok/s work TTFT p50 p99 TPOT p50 p99".split()
    assert defaults == "the defaults 40.0% 100.0% 10 4 400 600 300.0 ms 400.0 ms 30.0 ms -".split()
    assert tuned == "tuned 80.0% 95.0% 10 8 400 900 100.0 ms 200.0 ms 10.0 ms 20.0 ms".split()
    assert any("10 requests/s with the defaults, 15 tuned; compared at 12" in line for line in text)
    assert "  quant=int8, quant=int4: no budget" in text and "  threads: it was given as 2" in text
    assert any(line.startswith("  max_num_seqs=8: good requests/s 8 for 4 (10 and 10 came)") for line in text)
    assert text[-1].startswith("max_num_seqs=8: good requests/s 8 for 4 (10 and 10 came), 1.99 times")
    assert not any("something else runs" in line for line in text)


def test_more_good_requests_than_the_rate_are_those_that_came_by_chance():
    """Of a rate of 12 a second, of which 14.4 came."""
    lucky = Score(144, 144, 10.0, 900.0, 144)
    pairs = Pairs(((lucky, replace(lucky, kept=100)),) * 2)
    outcome = Outcome(Setting((("threads", 2),)), pairs, checked=(Checked(Setting(), lucky, [lucky]),))
    text = list(lines(outcome))
    ratio, note = text[3:5]
    assert text[2].split()[3:5] == ["14.4", "14.4"] and ratio.startswith("ratio") and ratio[43:52].strip() == "1.44"
    assert note.startswith("came/s: requests that a run brought") and "14.4 for 10 (14.4 and 14.4 came)" in text[-1]
    assert any("14.4 good requests/s (100% of 14.4 that came)" in line for line in text)


def test_a_restless_machine_is_told():
    busy = Score(40, 100, 10.0, 300.0, 100)
    assert any("differ by 2 times: something else runs" in line for line in lines(Outcome(pairs=Pairs(((FAST, SLOW), (FAST, busy))))))


def test_the_defaults_may_be_best():
    assert list(lines(Outcome()))[-1] == "the defaults are best: the twin expects no other setting to lead, so nothing else was run"
    other = Checked(Setting((("threads", 2),)), FAST, [SLOW])
    assert list(lines(Outcome(checked=(other,))))[-1] == "the defaults are best: nothing that was tried leads"
    text = list(lines(Outcome(pairs=Pairs(((SLOW, FAST),) * 2), rejected=Setting((("threads", 2),)))))
    assert text[-1].startswith("the defaults are best: threads=2 came to good requests/s 4 for 8") and text[2].startswith("the best other")


def test_what_was_expected_stands_beside_what_was_measured():
    checked = (Checked(Setting(), FAST, [SLOW]), Checked(Setting((("threads", 2),)), None, [FAST]))
    text = list(lines(Outcome(checked=checked)))
    assert "  the defaults: expected 8 good requests/s (80% of 10 that came), 900 tokens per second of work; " \
        "measured 4 good requests/s (40% of 10 that came), 600 tokens per second of work" in text
    assert any(line.startswith("  threads=2: not predicted; measured 8 good requests/s") for line in text)
