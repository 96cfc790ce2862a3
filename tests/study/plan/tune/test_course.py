import pytest

from penstock.study.plan.tune.course import Course, race_runs, span
from penstock.study.plan.tune.race import race
from penstock.study.plan.tune.setting import Setting
from tests.study.plan.tune.fake_bench import score


@pytest.mark.parametrize("rivals", range(9))
def test_a_race_takes_as_many_runs_as_are_told(rivals):
    runs = []

    def run(settings, traffic, must):
        runs.extend(settings)
        return {each.key: score(dict(each).get("max_num_seqs", 1)) for each in settings}

    race(Setting(), [Setting((("max_num_seqs", 2 + number),)) for number in range(rivals)], run, lambda setting, why: None, "race")
    assert len(runs) == race_runs(rivals)


def test_what_is_left_takes_what_runs_took():
    now = [100.0]
    course = Course(lambda: now[0], 100.0, left=10)
    assert str(course) == "0 s gone"
    for seconds in (10.0, 20.0):
        now[0] += seconds
        course.ran(seconds)
    course.skipped(2)
    assert str(course) == "30 s gone, at most 1:30 min to go"
    course.skipped(9)
    assert str(course).endswith("at most 0 s to go")


def test_spans_are_read_at_a_glance():
    assert [span(seconds) for seconds in (0.4, 59, 60, 3599, 3725)] == ["0 s", "59 s", "1:00 min", "59:59 min", "1:02:05 h"]
