import itertools

import pytest
from versus.trace import Ask, drive


class Clock:
    """A second a step; sleeping moves it."""

    def __init__(self) -> None:
        self.s = 0.0

    def now(self) -> float:
        return self.s

    def sleep(self, seconds: float) -> None:
        self.s += seconds


class Counting:
    """Gives each open request a token a step, and remembers when requests came."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.missing: dict[int, int] = {}
        self.came: dict[int, float] = {}

    def add(self, key: int, prompt: list[int], num_new: int) -> None:
        self.missing[key], self.came[key] = num_new, self.clock.s

    def step(self) -> dict[int, int]:
        self.clock.s += 1
        gained = {key: 1 for key, count in self.missing.items() if count}
        for key in gained:
            self.missing[key] -= 1
        return gained


def test_requests_come_when_they_are_due_and_end_with_their_tokens():
    clock = Clock()
    engine = Counting(clock)
    times = drive(engine, [Ask(0.0, 4, 3, 1), Ask(1.5, 4, 2, 2), Ask(10.0, 4, 1, 3)], 100, clock.now, clock.sleep)
    assert [(each.first_s, each.last_s, each.num_tokens) for each in times] == [(1, 3, 3), (3, 4, 2), (11, 11, 1)]
    assert engine.came == {0: 0.0, 1: 2.0, 2: 10.0}


def test_an_engine_that_loses_a_request_is_an_error(monkeypatch):
    class Silent(Counting):
        def step(self) -> dict[int, int]:
            return {}

    monkeypatch.setattr("versus.trace.MAX_BARREN_STEPS", 10)
    with pytest.raises(RuntimeError, match="no token after 11 steps"):
        drive(Silent(Clock()), [Ask(0.0, 4, 1, 1)], 100, itertools.count().__next__, lambda seconds: None)


def test_prompts_of_one_seed_share_a_prefix_and_others_do_not():
    long, short, other = Ask(0.0, 64, 1, 5).prompt(4096), Ask(0.0, 16, 1, 5).prompt(4096), Ask(0.0, 16, 1, 6).prompt(4096)
    assert long[:16] == short != other
    assert all(0 <= token < 4096 for token in long)
