"""Timers learned from few kinds of steps, with the roofline for the rest; timers of other formats."""
import pytest

from penstock.compute.fitted import Fitted, from_json, seen
from penstock.core.work import StepTimer, StepWork
from penstock.study.explain.learn import Span, Steps, error, knots_of, learn, pace, size_of, steps_of, told_apart
from penstock.study.explain.roof import Exchanged, InRatio

WINDOWS = [(None, 4)]
SPAN = Span(256, 32, 100.0, 1000.0)


class Roof:
    """Weights take 1 ms, a row 0.05 ms of arithmetic, a key 1 us."""

    def seconds(self, work: StepWork) -> float:
        read, _ = work.windowed(None)
        return max(1e-3, 5e-5 * work.num_tokens) + 1e-6 * read


def real(work: StepWork) -> float:
    return 2 * Roof().seconds(work) + 3e-4


def table(works: list[StepWork]) -> Steps:
    return steps_of([[*size_of(work, WINDOWS), real(work), 10] for work in works], [[None, 4]])


def decodes(count: int, context: int) -> StepWork:
    return StepWork(((1, context),) * count, count)


@pytest.mark.parametrize("work", [
    decodes(1, 50), decodes(16, 100), decodes(32, 200), StepWork(((128, 128),), 1), StepWork(((256, 300),), 1)])
def test_what_was_never_timed_follows_the_roof(work: StepWork) -> None:
    """All that was timed: four sequences that decode, and a few chunks, all of whose keys are as many."""
    steps = table([decodes(4, context) for context in (99, 100, 101)] + [StepWork(((40, 400),), 1), StepWork(((48, 400),), 1)])
    timer = learn(steps, Roof(), 3e-4, SPAN)
    assert timer.seconds(work) == pytest.approx(real(work), rel=0.1) and error(timer, steps) < 0.02


class Arithmetic:
    """A roof of 0.05 ms for each row."""

    def seconds(self, work: StepWork) -> float:
        return 5e-5 * work.num_tokens


@pytest.mark.parametrize("count", [8, 16, 24, 32])
def test_steps_grow_as_those_of_their_kind_do(count: int) -> None:
    """Steps that decode take three times their roof, chunks of prompts one and a half times; and the host something for a step, a sixth of
    that for each sequence, and 80 sixths for each request, of which a thousandth goes with each token of its prompt."""
    def of_host(work: StepWork) -> float:
        return 1e-4 * (6 + work.num_seqs + 80 * (work.num_tokens - work.num_seqs) / 1000) / 6

    def taken(work: StepWork) -> float:
        return (3 if work.num_tokens == work.num_seqs else 1.5) * Arithmetic().seconds(work) + of_host(work)

    made = [decodes(4, context) for context in (99, 100, 101)] + [StepWork(((40, 400),), 1), StepWork(((48, 400),), 1)]
    steps = steps_of([[*size_of(work, WINDOWS), taken(work), 10] for work in made], [[None, 4]])
    host_s = sum(map(of_host, made)) / len(made)
    assert learn(steps, Arithmetic(), host_s, SPAN).seconds(decodes(count, 100)) == pytest.approx(taken(decodes(count, 100)), rel=0.12)


@pytest.mark.parametrize("prompts", [2, 4, 8, 16])
def test_a_step_of_several_prompts_is_not_one_of_a_single_long_prompt(prompts: int) -> None:
    """Keys cost three times what the roof says, rows a fifth more; all large steps that were timed had 512 rows, of prompts of 256."""
    class Attending:
        def seconds(self, work: StepWork) -> float:
            return 1.6e-5 * work.num_tokens + 6.5e-9 * work.windowed(None)[1]

    def taken(work: StepWork) -> float:
        return 2e-5 * work.num_tokens + 2e-8 * work.windowed(None)[1] + 3e-4

    made = [decodes(16, 280), *(StepWork(((256 - done, 256), *((256, 256),) * full, *((1, 280),) * (15 - full)), 15)
                                for done in (0, 15, 60, 120) for full in (0, 1))]
    steps = steps_of([[*size_of(work, WINDOWS), taken(work), 10] for work in made], [[None, 4]])
    asked = StepWork(((256, 256),) * prompts, prompts)
    assert learn(steps, Attending(), 3e-4, Span(4096, 16, 288.0, 256.0)).seconds(asked) == pytest.approx(taken(asked), rel=0.1)


def test_one_odd_step_does_not_say_how_steps_grow() -> None:
    """An engine's first step, a prompt alone with cold caches, took four times as long; all others have a sequence beside the prompt."""
    mixed = [StepWork(((60, 60), (1, context)), 2) for context in (80, 100)]
    steps = steps_of([[*size_of(work, WINDOWS), real(work), 300] for work in [*mixed, decodes(2, 90)]], [[None, 4]])
    first = StepWork(((60, 60),), 1)
    earlier = steps_of([[*size_of(first, WINDOWS), 4 * real(first), 1], [*size_of(mixed[0], WINDOWS), real(mixed[0]), 60]], [[None, 4]])
    timer = learn(steps, Roof(), 3e-4, SPAN, earlier)
    for wanted in (StepWork(((60, 60),) * 2, 2), StepWork(((250, 250),), 1)):
        assert timer.seconds(wanted) == pytest.approx(real(wanted), rel=0.15)


def test_logits_cost_something_once() -> None:
    """Chunks of which half end a prompt: what their one row of logits takes is no cost of each sequence that decodes."""
    def taken(work: StepWork) -> float:
        return 2 * Arithmetic().seconds(work) + 1e-5 * work.num_seqs + (2e-4 if work.num_logits else 0.0)

    made = [StepWork(((32, 400),), logits) for logits in (0, 1)] + [StepWork(((31, 400), (1, 300)), 1)]
    steps = steps_of([[*size_of(work, WINDOWS), taken(work), 10] for work in made], [[None, 4]])
    timer = learn(steps, Arithmetic(), 0.0, SPAN)
    chunk = StepWork(((128, 400),), 1)
    assert timer.logits_s > 1e-4 and timer.seconds(chunk) == pytest.approx(taken(chunk), rel=0.05)
    assert from_json(timer.as_json()) == timer


def test_without_a_roof_the_steps_are_all_there_is() -> None:
    steps = table([decodes(count, 100) for count in (1, 2, 4, 8)])
    timer = learn(steps, None, 0.0, SPAN)
    assert error(timer, steps) < 0.02 and timer.rows[-1] == 8
    with pytest.raises(ValueError, match="no step"):
        learn(steps_of([], [[None, 1]]), Roof(), 0.0, SPAN)


def test_what_rounding_leaves_of_a_difference_is_nothing() -> None:
    """Chunks of a prompt, one of which had logits, before the begin: 1/49 times 49 is less than 1/3 times 3."""
    begin, now = (steps_of([[32.0, 1.0, 1 / count, 320.0, 9000.0, 1e-3, count]], [[None, 4]]) for count in (3, 49))
    assert 1 / 49 * 49 < 1 / 3 * 3
    since, _ = told_apart(now, begin)
    assert since.sizes.tolist() == [[32.0, 1.0, 0.0, 320.0, 9000.0]] and since.counts.tolist() == [46]


def test_steps_are_told_apart_by_when_they_were_made() -> None:
    """Of three sizes: one that goes on, one that is over, one that is new; and one that the ledger had forgotten meanwhile."""
    def timed(count: int, seconds: float, num: int) -> list[float]:
        return [*size_of(decodes(count, 100), WINDOWS), seconds, num]

    begin = steps_of([timed(1, 2e-3, 100), timed(4, 1.0, 10), timed(8, 5e-3, 500)], [[None, 4]])
    now = steps_of([timed(1, 1.5e-3, 200), timed(4, 1.0, 10), timed(8, 4e-3, 20), timed(16, 9e-3, 5)], [[None, 4]])
    since, before = told_apart(now, begin)
    assert since.sizes[:, 0].tolist() == [1, 8, 16] and since.counts.tolist() == [100, 20, 5] and before is begin
    assert since.seconds.tolist() == pytest.approx([1e-3, 4e-3, 9e-3])
    assert pace(since, begin) == pytest.approx(0.5) and pace(since, steps_of([], [[None, 4]])) == 1.0


def test_earlier_steps_decide_what_the_others_leave_open() -> None:
    """A machine that was four times as slow before, with large batches; since then it decodes single sequences."""
    slow = [[*size_of(decodes(count, 100), WINDOWS), 4 * real(decodes(count, 100)), 9000] for count in (1, 16, 32)]
    recent = table([decodes(1, context) for context in (60, 80, 100, 120)])
    timer = learn(recent, None, 0.0, SPAN, steps_of(slow, [[None, 4]]))
    assert error(timer, recent) < 0.02
    assert timer.seconds(decodes(16, 100)) == pytest.approx(real(decodes(16, 100)), rel=0.1)


def test_the_time_that_steps_took_in_all_is_what_they_are_said_to_take() -> None:
    """Also where they do not follow the form: the first steps of an answer take longer than the later ones, whose contexts are longer."""
    told = [[*size_of(decodes(1, context), WINDOWS), seconds, count]
            for context, seconds, count in ((64, 1.4e-3, 3000), (96, 1.0e-3, 1200), (128, 0.9e-3, 1100))]
    steps = steps_of(told, [[None, 4]])
    timer = learn(steps, Roof(), 3e-4, SPAN)
    says = sum(timer.seconds(decodes(1, int(row[3]))) * row[-1] for row in told)
    assert says == pytest.approx(sum(row[-2] * row[-1] for row in told), rel=0.02)


@pytest.mark.parametrize("rows", [[[1, 1, 1, 1, 1, 0.0, 1]], [[1, 1, 1, 1, 1, float("nan"), 1]], [[1, 2]]])
def test_what_no_ledger_made_is_refused(rows: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="."):
        steps_of(rows, [[None, 1]])


def test_knots_stand_where_steps_are() -> None:
    import numpy as np

    assert knots_of(np.array([3.0, 40.0]), True) == [3, 4, 8, 16, 32, 40] and knots_of(np.array([3.0, 40.0]), False) == [3, 4, 32, 40]
    assert knots_of(np.array([4.0, 4.0]), True) == [4]


class Half:
    """A roof of half the bytes."""

    def seconds(self, work: StepWork) -> float:
        read, _ = work.windowed(None)
        return max(5e-4, 5e-5 * work.num_tokens) + 1e-6 * read


class Real:
    def seconds(self, work: StepWork) -> float:
        return real(work)


@pytest.mark.parametrize(("work", "saved"), [(decodes(1, 1), 5e-4), (StepWork(((64, 64),), 1), 0.0)])
def test_a_format_saves_what_it_takes_from_the_roof(work: StepWork, saved: float) -> None:
    """No more: what steps take beyond their roof is other work. Nothing where arithmetic binds."""
    timer: StepTimer = Exchanged(Real(), Roof(), Half())
    assert real(work) - timer.seconds(work) == pytest.approx(saved)
    assert timer.seconds(work) >= Half().seconds(work)


def test_two_calibrations_give_a_ratio() -> None:
    slow, fast = (Fitted((1,), (seconds,), 0.0, 0.0, 0.0, 0.0) for seconds in (2e-3, 1e-3))
    assert InRatio(Real(), slow, fast).seconds(decodes(1, 1)) == pytest.approx(real(decodes(1, 1)) / 2)
    assert seen(decodes(1, 1), WINDOWS) == (1, 1)
