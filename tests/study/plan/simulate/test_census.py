"""A census of steps against the steps themselves."""
from penstock.core.types import PlannedSeq
from penstock.study.plan.simulate.census import Census, Steps, summed


def planned(start: int, count: int, num_output: int = 0, samples: bool = True) -> PlannedSeq:
    return PlannedSeq(0, start, (0,) * count, (), samples, start + count - num_output, num_output)


def test_prompts_and_answers_are_told_apart() -> None:
    found = Census()
    found.add_step([planned(100, 1, 3), planned(0, 60, samples=False), planned(64, 16)], 0.5)
    found.add_step([planned(101, 1, 4), planned(80, 1, 1)], 0.25)
    assert found.mixed == Steps(1, 0.5, 1, 101, 2, 76, 140) and found.decoding == Steps(1, 0.25, 2, 183)
    assert (found.num_steps, found.busy_s, found.decode_tokens, found.prefill_tokens) == (2, 0.75, 3, 76)


def test_what_is_computed_anew_is_a_prompt_once_more() -> None:
    found = Census()
    found.add_step([planned(0, 40, 8)], 1.0)
    assert found.mixed == Steps(1, 1.0, 1, 40, 1, 39, 40)


def test_steady_steps_are_counted_at_once() -> None:
    single, steady = Census(), Census()
    for step in range(5):
        single.add_step([planned(100 + step, 1, 3 + step), planned(20 + step, 1, 1 + step)], 0.125)
    steady.add_steady(5, 0.625, 2, 122)
    assert steady == single
    assert summed([single, steady]).decoding == Steps(10, 1.25, 20, 2 * single.decoding.context)
