import itertools
import statistics
from collections.abc import Iterator

import pytest
from scipy import stats

from penstock.core.errors import UsageError
from penstock.study.measure.arrivals import TABLE
from penstock.study.measure.load import Session, Turn

COUNT = 4000


def endless() -> Iterator[Session]:
    while True:
        yield Session((Turn("a"),))


def times(text: str, count: int = COUNT, seed: str = "s") -> list[float]:
    process, options = TABLE.parse(text)
    return [at_s for at_s, _ in itertools.islice(process(options).schedule(endless(), seed), count)]


def gaps(at_s: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise([0.0, *at_s])]


def test_poisson_gaps_are_exponential() -> None:
    found = gaps(times("poisson:rate=5"))
    assert stats.kstest(found, "expon", args=(0, 1 / 5)).pvalue > 0.01


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_gaps_have_the_rate_and_the_burstiness(burstiness: float) -> None:
    found = gaps(times(f"gamma:rate=5,burstiness={burstiness}"))
    assert stats.kstest(found, "gamma", args=(burstiness, 0, 1 / (5 * burstiness))).pvalue > 0.01
    assert statistics.stdev(found) / statistics.mean(found) == pytest.approx(burstiness**-0.5, rel=0.1)


def test_constant_arrivals_do_not_drift() -> None:
    assert times("constant:rate=3", 3001)[-1] == pytest.approx(1000, abs=1e-9)


def test_a_ramp_is_a_poisson_process_in_stretched_time() -> None:
    at_s = times("ramp:start=2,end=10,seconds=20", 400)
    # expected number of arrivals until t: 2 t + 0.2 t**2 on the ramp, 120 at its end, 10 a second after it
    expected = [2 * t + 0.2 * t * t if t <= 20 else 120 + 10 * (t - 20) for t in at_s]
    assert stats.kstest(gaps(expected), "expon").pvalue > 0.01
    assert any(t < 20 for t in at_s) and any(t > 20 for t in at_s)


def test_a_ramp_may_be_level_and_may_begin_at_nothing() -> None:
    process, options = TABLE.parse("ramp:start=4,end=4,seconds=10")
    assert process(options).when(12) == pytest.approx(3)
    process, options = TABLE.parse("ramp:start=0,end=4,seconds=10")
    assert process(options).when(5) == pytest.approx(5)


def test_equal_seeds_give_equal_arrivals() -> None:
    assert times("poisson:rate=2", 9, "a") == times("poisson:rate=2", 9, "a") != times("poisson:rate=2", 9, "b")


def test_replay_keeps_the_recording_but_for_its_speed() -> None:
    process, options = TABLE.parse("replay:speed=2")
    recorded = [Session((), at_s) for at_s in (100.0, 101.0, 101.0, 107.0)]
    assert [at_s for at_s, _ in process(options).schedule(iter(recorded), "s")] == [0.0, 0.5, 0.5, 3.5]


def test_replay_needs_times_in_order() -> None:
    process, options = TABLE.parse("replay")
    with pytest.raises(UsageError, match="azure, burstgpt or mooncake"):
        list(process(options).schedule(iter([Session(())]), "s"))
    with pytest.raises(UsageError, match="1 s before its"):
        list(process(options).schedule(iter([Session((), 2.0), Session((), 1.0)]), "s"))


def test_a_closed_loop_has_users_and_no_rate() -> None:
    process, options = TABLE.parse("closed:users=7")
    assert process(options).users == 7
    with pytest.raises(UsageError, match="poisson"):
        process(options).at_rate(2.0)


@pytest.mark.parametrize("text", ["poisson", "gamma:burstiness=0.5", "constant"])
def test_open_loops_take_another_rate(text: str) -> None:
    process, options = TABLE.parse(text)
    at_s = [at_s for at_s, _ in itertools.islice(process(options).at_rate(50.0).schedule(endless(), "s"), COUNT)]
    assert COUNT / at_s[-1] == pytest.approx(50, rel=0.1)


@pytest.mark.parametrize("text", [
    "closed:users=0", "poisson:rate=0", "gamma:burstiness=-1", "constant:rate=inf",
    "ramp:start=-1", "ramp:seconds=0", "ramp:end=nan", "ramp:start=inf",
    "replay:speed=0", "replay:speed=inf",
    "poisson:speed=2", "weibull",
])
def test_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        process, options = TABLE.parse(text)
        process(options)


@pytest.mark.parametrize(("text", "told"), [
    ("ramp:start=-1", "start must be 0 or more and finite, not -1"), ("ramp:seconds=0", "seconds must be more than 0 and finite, not 0"),
    ("ramp:end=0", "end must be more than 0 and finite, not 0")])
def test_of_a_ramp_only_what_is_wrong_is_named(text: str, told: str) -> None:
    process, options = TABLE.parse(text)
    with pytest.raises(UsageError, match=f"^ramp: {told}$"):
        process(options)
