import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from penstock.compute.fitted import MANY, Around, Extra, Fitted, Timed, fit, from_json, nonnegative, seen
from penstock.core.work import StepWork

TRUE = Fitted((1, 8, 64, 512), (0.004, 0.0045, 0.012, 0.08), 20e-6, 10e-6, 30e-9, 8e-9)


def works(count, seed=0):
    rng = random.Random(seed)
    for _ in range(count):
        decodes = [(1, rng.randint(1, 3000)) for _ in range(rng.randint(0, 32))]
        prompt = rng.randint(1, 400)
        prompts = [(prompt, prompt + rng.randint(0, 2000))] if rng.random() < 0.5 or not decodes else []
        yield StepWork(tuple(decodes + prompts), len(decodes) + rng.randint(0, 1))


def test_what_made_the_times_is_found_again():
    found = fit([Timed(work, TRUE.seconds(work)) for work in works(400)])
    for work in works(100, seed=1):
        assert found.seconds(work) == pytest.approx(TRUE.seconds(work), rel=0.05)
    assert found.read_s == pytest.approx(TRUE.read_s, rel=0.1) and found.pair_s == pytest.approx(TRUE.pair_s, rel=0.1)


def test_what_stands_around_steps_is_told_from_their_work():
    rng, extra = random.Random(4), Extra(3e-3, 4e-4, 2e-4)
    arounds = [Around(rng.choice((0, 0, 20, 64, 500)), rng.choice((0, 0, 0, 1, 2)), rng.choice((0, 0, 1))) for _ in range(800)]
    found = fit([Timed(work, TRUE.seconds(work) + extra.seconds(around), around)
                 for work, around in zip(works(800), arounds, strict=True)])
    assert [found.extra.cold_s, found.extra.come_s, found.extra.end_s] == pytest.approx([3e-3, 4e-4, 2e-4], rel=0.05)
    work = next(works(1, seed=5))
    assert found.took(Timed(work, 0.0, Around(MANY, 1, 1))) == pytest.approx(TRUE.seconds(work) + 3.6e-3, rel=0.05)
    assert extra.seconds(Around(64)) == pytest.approx(1.5e-3) and extra.seconds(Around(5000)) == pytest.approx(3e-3)


def test_noise_is_averaged():
    rng = random.Random(2)
    found = fit([Timed(work, TRUE.seconds(work) * rng.choice((0.8, 0.9, 1.0, 1.0, 1.1, 1.2))) for work in works(2000)])
    told = [found.seconds(work) / TRUE.seconds(work) for work in works(200, seed=3)]
    assert abs(sum(told) / len(told) - 1) < 0.02


def test_more_rows_never_take_less_and_go_on_as_they_came():
    found = fit([Timed(work, TRUE.seconds(work) * random.Random(i).uniform(0.5, 2)) for i, work in enumerate(works(300))])
    times = [found.of_rows(rows) for rows in range(1, 2000)]
    assert all(a <= b for a, b in zip(times, times[1:], strict=False)) and times[0] > 0
    slope = times[-1] - times[-2]
    assert slope == pytest.approx((found.rows_s[-1] - found.rows_s[-2]) / (found.rows[-1] - found.rows[-2]))


@pytest.mark.parametrize("knots", [((8, 64), (0.004, 0.06)), ((8,), (0.004,))])
def test_fewer_rows_than_were_timed_take_as_long_as_the_fewest(knots):
    assert [Fitted(*knots, 0.0, 0.0, 0.0, 0.0).of_rows(rows) for rows in (1, 7, 8)] == [0.004] * 3


def test_one_timed_step_is_enough_and_none_is_not():
    found = fit([Timed(StepWork(((4, 4),), 1), 0.5)])
    assert found.seconds(StepWork(((4, 4),), 1)) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no step"):
        fit([])


def test_windows_are_averaged_over_layers():
    work = StepWork(((1, 1000), (10, 100)), 2)
    whole, short = work.windowed(None), work.windowed(64)
    assert seen(work, ((None, 1), (64, 3))) == tuple((a + 3 * b) / 4 for a, b in zip(whole, short, strict=True))


def test_what_is_written_is_read_again():
    whole = replace(TRUE, extra=Extra(1e-3, 2e-4, 1e-4))
    assert from_json(whole.as_json()) == whole
    older = TRUE.as_json()
    del older["extra"]
    assert from_json(older) == TRUE
    for wrong in ({"rows": [1]}, {"rows": [1, 8, 8, 512]}, {"rows_s": [0.004, 0.0045, 0.08, 0.012]}):
        with pytest.raises(ValueError, match="knots"):
            from_json({**TRUE.as_json(), **wrong})


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 40))
def test_least_squares_without_negatives_are_those_of_scipy(seed, columns, rows):
    rng = np.random.default_rng(seed)
    matrix, wanted = rng.normal(size=(rows, columns)) ** 2, rng.normal(size=rows) + 1
    ours, theirs = nonnegative(matrix, wanted), nnls(matrix, wanted)[0]
    assert (ours >= 0).all()
    assert np.linalg.norm(matrix @ ours - wanted) <= np.linalg.norm(matrix @ theirs - wanted) + 1e-6
