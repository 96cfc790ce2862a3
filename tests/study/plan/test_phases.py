"""Which load a sweep puts on an engine, and what it says of how long that takes."""
from penstock.core.config import EngineConfig
from penstock.study.plan.phases import SPREAD, Course, Measured, phases_of, shapes


def test_lengths_fit_the_context_and_all_of_them_the_cache() -> None:
    for context, kv_tokens, users in ((1024, 65536, 1), (1024, 4096, 16), (64, 64, 1), (32768, 10**6, 64)):
        for lengths in shapes(EngineConfig(max_model_len=context, kv_tokens=kv_tokens), users):
            longest = (lengths.input + lengths.output) * (1 + SPREAD)
            assert longest <= context + 2 and longest * users <= kv_tokens + 2 * users


def test_what_a_sweep_takes_is_told_from_what_its_phases_took() -> None:
    said: list[str] = []
    phases = phases_of(EngineConfig(max_num_seqs=1, max_model_len=1024, kv_tokens=4096), 10.0)
    course = Course(phases, said.append)
    assert course.left_s == sum(phase.seconds for phase in phases) == 3 * 10 + 9 * 20
    course.begin({})
    course.done(phases[0], Measured([], [], 40.0))
    assert course.left_s == 4 * (2 * 10 + 9 * 20)
    assert "12 phases: about 4 minutes" in said[0] and said[1] == "1 of 12, 1 at once: 0 steps; about 13 minutes to come"
    course.begin({phase: Measured([], [], 0.0) for phase in phases[1:]})
    assert course.left_s == 0 and "11 of them done" in said[-1]
