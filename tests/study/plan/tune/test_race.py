import random

import pytest

from penstock.study.plan.tune.race import duel, race, turned
from penstock.study.plan.tune.setting import Setting
from tests.study.plan.tune.fake_bench import score


def seats(*counts):
    return [Setting((("max_num_seqs", count),)) for count in counts]


class Track:
    """Runs of settings whose goodput is their seats, times what the machine is up to."""

    def __init__(self, noise=0.0):
        self.runs, self.noise = [], noise

    def __call__(self, settings, traffic, must):
        self.runs += [(traffic, setting) for setting in settings]
        busy = 1 + self.noise * random.Random(traffic).uniform(-1, 1)
        return {setting.key: score(busy * (dict(setting.changes).get("max_num_seqs", 10))) for setting in settings}


def ignore(setting, why):
    pass


@pytest.mark.parametrize("count", range(1, 9))
def test_the_best_wins_through_the_machines_moods(count):
    rivals = seats(*[11 + number for number in range(count)])
    assert race(Setting(), rivals[::-1], Track(0.8), ignore, "race") == rivals[-1]


def test_halves_go_and_the_rest_is_run_more_often():
    track = Track()
    race(Setting(), seats(20, 14, 13, 12), track, ignore, "race")
    counts = [sum(run == setting for _, run in track.runs) for setting in seats(20, 14, 13, 12)]
    assert counts == [5, 3, 1, 1] and sum(run == Setting() for _, run in track.runs) == 5


def test_all_of_a_round_are_asked_the_same_and_others_of_the_next():
    track = Track()
    race(Setting(), seats(20, 14, 13, 12), track, ignore, "race")
    traffics = [traffic for traffic, run in track.runs if run == Setting()]
    assert len(set(traffics)) == len(traffics)
    assert all(sum(1 for traffic, _ in track.runs if traffic == each) >= 2 for each in traffics)


def test_who_stands_stays_where_nothing_leads():
    standing = Setting()
    assert race(standing, seats(10, 9, 5), Track(0.5), ignore, "race") is standing
    assert race(standing, [], Track(), ignore, "race") is standing
    assert race(standing, [Setting()], Track(), ignore, "race") is standing


def test_who_cannot_run_is_told_and_not_asked_again():
    told, track = [], Track()

    def run(settings, traffic, must):
        assert must == [Setting()]
        return {**track(settings, traffic, must), **({broken.key: "too big"} if broken in settings else {})}

    broken, good = seats(99, 12)
    assert race(Setting(), [broken, good], run, lambda setting, why: told.append((setting, why)), "race") == good
    assert told == [(broken, "too big")] and sum(setting == broken for _, setting in track.runs) == 1


def test_losers_are_told():
    told = {}
    race(Setting(), seats(20, 14, 5), Track(), lambda setting, why: told.__setitem__(setting, why), "race")
    assert set(told) == set(seats(14, 5)) and "others gave more" in told[seats(5)[0]] and "0.5 times" in told[seats(5)[0]]
    race(Setting(), seats(5), Track(), lambda setting, why: told.__setitem__(setting, why), "race")
    assert told[seats(5)[0]].endswith("against the defaults")


def test_a_duel_alternates():
    track = Track()
    one, other = seats(20, 10)
    found = duel(one, other, track, "duel", 4)
    assert [run for _, run in track.runs[0::2]].count(one) == 2
    assert found.goodput.median == pytest.approx(2.0, rel=0.01) and found.goodput.num_pairs == 4


def test_places_go_round():
    settings = seats(1, 2, 3)
    firsts = [turned(settings, number)[0] for number in range(6)]
    assert {firsts.count(setting) for setting in settings} == {2}
