from dataclasses import replace

import pytest

from penstock.study.plan.tune.score import Score
from penstock.study.plan.tune.setting import Setting
from penstock.study.plan.tune.trust import Trust, apart

ALL, NONE = Score(10, 10, 5.0, 100.0), Score(0, 10, 5.0, 100.0)


def test_how_many_come_by_chance_is_no_error_of_the_twin():
    more = Score(40, 40, 5.0, 100.0)
    assert apart(ALL, more, closed=False) == pytest.approx(1, abs=0.05)
    assert [apart(ALL, more, closed=True), apart(more, ALL, closed=True)] == pytest.approx([40.5 / 10.5] * 2)
    assert [apart(NONE, ALL, closed=False), apart(ALL, NONE, closed=False)] == pytest.approx([21, 21])
    assert [apart(replace(NONE, measured=2), NONE, closed) for closed in (False, True)] == [1, 1], "nothing is what was expected"
    assert apart(replace(NONE, rate=3.0), replace(ALL, rate=12.0), closed=False) == 4


def test_it_is_told_once_that_the_twin_is_wrong():
    said = []
    trust = Trust(False, said.append)
    trust.note(Setting(), ALL, ALL)
    trust.note(Setting((("threads", 2),)), None, NONE)
    assert not said and not trust.is_lost
    trust.note(Setting(), ALL, NONE)
    trust.note(Setting(), ALL, NONE)
    assert trust.is_lost and len(said) == 1
    assert "expected 2 good requests/s (100% of 10 requests)" in said[0] and "21 times apart" in said[0]
    assert [len(each.runs) for each in trust.checked.values()] == [3, 1] and trust.checked[Setting().key].found == NONE
