"""Users who come back and requests that come on their own are told apart by when they come."""
import random
import statistics
from collections.abc import Iterator

import pytest

from penstock.core.clock import VirtualClock
from penstock.core.config import EngineConfig
from penstock.core.events import StepRecord
from penstock.serve.engine.ledger import Ledger
from penstock.serve.engine.tally import Tally
from penstock.study.explain.observed import Lengths
from penstock.study.explain.traffic import Crowd, Traffic, take_turns

STEP_S, TOKENS = 0.001, 40


def play(first_s: list[float], back_s: float | None, seconds: float = 8.0, spread: float = 0.1) -> Tally:
    """An engine in which all step at once, each for TOKENS steps. `first_s`: when they come; `back_s`: each comes again so long after it
    was answered, give or take a half. Steps take longer or shorter by `spread`, at random."""
    rng, ledger, coming, inside = random.Random(1), Ledger(None, "fp32", VirtualClock()), sorted(first_s), []
    now = idle_s = 0.0
    while now < seconds and (coming or inside):
        if not inside and coming[0] > now:
            idle_s += coming[0] - now
            now = coming[0]
        come = [at_s for at_s in coming if at_s <= now]
        coming = coming[len(come) :]
        took_s = STEP_S * rng.uniform(1 - spread, 1 + spread)
        inside = [left - 1 for left in inside + [TOKENS] * len(come)]
        num_done = sum(not left for left in inside)
        inside = [left for left in inside if left]
        ledger.on_step(StepRecord(
            0, now, took_s, took_s, max(1, len(inside)), 0, 1, num_running=len(inside), waited_s=tuple(now - at_s for at_s in come)))
        now += took_s
        if back_s is not None:
            coming = sorted([*coming, *(now + back_s * rng.uniform(0.5, 1.5) for _ in range(num_done))])
    found = ledger.tally()
    found.wall_s = found.busy_s + idle_s
    return found


def arrivals(rate: float, even: bool, seconds: float = 8.0) -> Iterator[float]:
    rng, at_s = random.Random(2), 0.0
    while at_s < seconds:
        at_s += 1 / rate if even else rng.expovariate(rate)
        yield at_s


@pytest.mark.parametrize("back_s", [0.002, 0.008])
@pytest.mark.parametrize("users", [1, 2, 3, 6, 8, 10, 16, 32])
def test_users_come_when_somebody_has_ended(users: int, back_s: float) -> None:
    """All begin at once and end with the same step, over and over; the first who is back finds nobody."""
    found = play([0.0] * users, back_s)
    assert take_turns(found, found.num_arrived / found.wall_s, False)
    assert found.mean_peak == pytest.approx(users, abs=0.5 if back_s < 0.008 else 1.2) and found.mean_found < users + 1e-9


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("load", [0.3, 0.6, 1.0, 1.7, 6.0])
def test_who_comes_on_his_own_comes_at_any_time(load: float, even: bool) -> None:
    """`load`: requests that are there on average."""
    found = play(list(arrivals(load / (STEP_S * TOKENS), even)), None)
    assert not take_turns(found, found.num_arrived / found.wall_s, False)
    assert found.gaps_scv == pytest.approx(0.0 if even else 1.0, abs=0.3)


@pytest.mark.parametrize(("prompt", "output", "played"), [
    (256, 1536, (256, 1536)), (1536, 256, (1536, 256)), (2000, 256, (1791, 256)), (256, 4000, (256, 1791)), (1500, 1500, (1024, 1023))])
def test_requests_are_as_long_as_those_that_were_seen(prompt: int, output: int, played: tuple[int, int]) -> None:
    """As far as both lengths fit the context; where they do not, neither takes more than half of it from the other."""
    asked = Traffic(Lengths(prompt, 0.0), Lengths(output, 0.0), users=1).calls(EngineConfig(max_model_len=2048))
    assert {(call.num_prompt, call.num_output) for call in asked} == {played}


def test_a_crowd_waits_as_long_as_was_seen() -> None:
    crowd = Crowd(20, 120, 10.0, 40.0)
    arrivals_s = crowd.arrivals_s()
    assert len(arrivals_s) == 140 and arrivals_s[:20] == [0.0] * 20 and arrivals_s == sorted(arrivals_s) and arrivals_s[-1] < 40.0
    come = statistics.fmean(sum(at_s <= now / 10 for at_s in arrivals_s[20:]) for now in range(100, 400))
    assert come == pytest.approx(3.0 * 25.0, abs=1.5)  # of three a second, in the middle of what is read
