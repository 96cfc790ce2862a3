from dataclasses import replace

import pytest
from versus.contest import Entry, Measured, Rules, contenders, contest
from versus.points import Point

from tests.bench.made import DECODE, FAST, OURS, ROOF, SLOW, sample


class Scripted:
    """Gives one speed, and writes down its turns."""

    def __init__(self, entry: Entry, speed: float, turns: list[str], fails: str = "") -> None:
        self.entry, self.speed, self.turns, self.fails = entry, speed, turns, fails

    def takes(self, point: Point) -> bool:
        return point.question == "decode"

    def start(self) -> str:
        if self.fails == "start":
            raise RuntimeError("no memory")
        return "1.0"

    def measure(self, point: Point, round_number: int) -> Measured:
        if self.fails == "measure":
            raise RuntimeError("lost a request")
        self.turns.append(f"{round_number} {self.entry.name}")
        return Measured(self.speed)

    def end(self) -> None:
        self.turns.append(f"end {self.entry.name}")


def rules(rounds: int, probes: list[int] | None = None) -> Rules:
    def meter(point: Point, bits: int):
        if probes is not None:
            probes.append(bits)
        return ROOF

    return Rules(rounds, 1, meter, lambda line: None)


def test_all_ways_are_tried_once_and_then_the_better_ones_in_turns():
    turns: list[str] = []
    field = [Scripted(OURS, 10, turns), Scripted(SLOW, 5, turns), Scripted(FAST, 8, turns)]
    outcome = contest(field, [DECODE], rules(3))
    names = [OURS.name, SLOW.name, FAST.name]
    assert turns[:3] == [f"0 {name}" for name in names]
    assert turns[3:7] == [f"1 {FAST.name}", f"1 {OURS.name}", f"2 {OURS.name}", f"2 {FAST.name}"]
    assert turns[7:] == [f"end {name}" for name in names]
    assert outcome.versions == {"penstock": "1.0", "rival": "1.0"} and not outcome.failures


def test_limits_are_measured_before_and_after_every_turn():
    probes: list[int] = []
    contest([Scripted(OURS, 10, []), Scripted(FAST, 8, [])], [DECODE, Point("prefill", 512)], rules(2, probes))
    assert len(probes) == 2 * 3


def test_who_fails_is_named_and_the_others_go_on():
    turns: list[str] = []
    field = [Scripted(OURS, 10, turns), Scripted(SLOW, 5, turns, "start"), Scripted(FAST, 8, turns, "measure")]
    outcome = contest(field, [DECODE], rules(2))
    assert outcome.failures == {SLOW.name: "no memory", f"{FAST.name}, {DECODE.name}": "RuntimeError: lost a request"}
    assert [found.entry for found in outcome.samples] == [OURS, OURS]
    assert turns.count(f"end {FAST.name}") == 1


def test_limits_are_measured_anew_after_a_failure():
    probes: list[int] = []
    contest([Scripted(SLOW, 5, []), Scripted(FAST, 8, [], "measure"), Scripted(OURS, 10, [])], [DECODE], rules(1, probes))
    assert len(probes) == 2 + 2


def test_deep_contexts_are_measured_in_fewer_rounds():
    assert [rules(5).rounds_of(Point("decode", depth)) for depth in (0, 4096, 8192)] == [5, 5, 1]
    assert rules(5).rounds_of(Point("prefill", 8192)) == 5


def test_whoever_was_started_is_ended_when_a_run_is_broken_off():
    class Interrupted(Scripted):
        def measure(self, point: Point, round_number: int) -> Measured:
            raise KeyboardInterrupt

    turns: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        contest([Interrupted(OURS, 1, turns), Scripted(FAST, 8, turns)], [DECODE], rules(1))
    assert turns == [f"end {OURS.name}", f"end {FAST.name}"]


def test_only_ways_of_one_engine_compete():
    other, near = replace(OURS, format="int8a8"), replace(SLOW, setting="near")
    speeds = [(OURS, 1), (other, 2), (SLOW, 3), (near, 3.3), (FAST, 4)]
    found = contenders([*(sample(entry, speed) for entry, speed in speeds), sample(SLOW, 9, round_number=1)], DECODE)
    assert found == {OURS, other, near, FAST}
