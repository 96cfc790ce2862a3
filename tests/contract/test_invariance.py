"""Promise 1 of every backend: a row's logits are the same bits in any company, however its prompt is cut, wherever its keys lie."""
import math
import os
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from penstock.core.modelspec import LayerSpec
from tests.contract.decoders import PLAIN, ROPE, SPECS, decoder
from tests.contract.participants import ORACLE, Participant, each_participant
from tests.contract.stories import LEFT, Fork, Story, play

ROOT = Path(__file__).resolve().parents[2]
LENGTHS = (1, 5, 30, 133, 270, 18)
SHORTER = (1, 5, 30, 133, 160, 18)  # where tiles are acted out: still past a chunk of keys and the widest window
WIDE = replace(PLAIN, vocab_size=600, hidden_size=256, head_dim=64, num_heads=4, layers=(LayerSpec(rope=ROPE),))
WITH_WINDOWS = replace(PLAIN, layers=(LayerSpec(window=9, rope=ROPE), LayerSpec(window=3, rope=ROPE)))
EVERY_SPEC = {**SPECS, "wide": WIDE}
# OpenBLAS's names of machines that can run its kernels for AVX2, which treat the rows of a block differently.
WITH_AVX2 = ("Haswell", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids")


def lengths_of(participant: Participant) -> tuple[int, ...]:
    return SHORTER if participant.emulated else LENGTHS


def tokens_of(name: str, lengths: tuple[int, ...]) -> list[Any]:
    """The first 18 tokens are the same in all sequences that are as long."""
    rng = np.random.default_rng(3)
    shared = rng.integers(0, EVERY_SPEC[name].vocab_size, 18)
    made = [rng.integers(0, EVERY_SPEC[name].vocab_size, length) for length in lengths]
    for tokens in made:
        tokens[:18] = shared[: len(tokens)]
    return made


@lru_cache
def alone(participant: Participant, name: str) -> list[Any]:
    """Each sequence's logits, its prompt computed in one step with nobody else."""
    program, weights = decoder(EVERY_SPEC[name])
    backend = participant.make()
    return [play(backend, program, weights, Story((((0, len(t)),),)), [t])["logits"][0] for t in tokens_of(name, lengths_of(participant))]


def check(participant: Participant, name: str, story: Story) -> None:
    program, weights = decoder(EVERY_SPEC[name])
    lengths = lengths_of(participant)
    assert tuple(story.lengths) == lengths
    found = play(participant.make(), program, weights, story, tokens_of(name, lengths))["logits"]
    for s, (logits, begin) in enumerate(zip(found, story.begins, strict=True)):
        expected = alone(participant, name)[s][begin:]
        assert np.isfinite(logits).all()
        differ = np.nonzero((logits.view(np.uint32) != expected.view(np.uint32)).any(axis=1))[0]
        assert not len(differ), f"sequence {s}: positions {differ + begin} differ by up to {abs(logits - expected).max()}"


# One head of keys, which two threads share by spans of 1,024 tokens where rows are few.
LONG = replace(
    PLAIN, num_kv_heads=1, max_position=4096, sinks=True,
    layers=(LayerSpec(rope=ROPE), LayerSpec(rope=ROPE, window=700), LayerSpec(rope=ROPE, window=1500)))


@each_participant()
def test_long_contexts(participant: Participant) -> None:
    one = ((0, 1),)
    spec, parts = LONG, (((0, 1018),), *[one] * 12, ((0, 700),), ((0, 313),), *[one] * 10, ((0, 16),), ((0, 131),))
    if participant.emulated:  # a second span, and windows that are passed before it and in it: a third takes four times as long
        layers = tuple(replace(layer, window=layer.window and min(layer.window, 1040)) for layer in LONG.layers)
        spec, parts = replace(LONG, num_heads=2, layers=layers), (((0, 1018),), *[one] * 12, ((0, 16),), ((0, 54),))
    length = sum(rows for ((_, rows),) in parts)
    program, weights = decoder(spec)
    tokens = [np.random.default_rng(4).integers(0, LONG.vocab_size, length)]
    together = play(participant.make(), program, weights, Story((((0, length),),)), tokens)["logits"][0]
    parted = play(participant.make(), program, weights, Story(parts, unwritten=LEFT), tokens)["logits"][0]
    assert np.isfinite(together).all()
    assert (together.view(np.uint32) == parted.view(np.uint32)).all()


def token_by_token(lengths: tuple[int, ...], order: tuple[int, ...], first: int, count: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """`first` tokens of each prompt, then `count` times one token each, then the rest."""
    left, steps = list(lengths), []
    for most in (first, *(1,) * count, max(lengths)):
        steps.append(tuple((s, min(most, left[s])) for s in order if left[s]))
        left = [max(0, rows - most) for rows in left]
    return tuple(steps)


def cut(lengths: tuple[int, ...], sizes: tuple[int, ...], order: tuple[int, ...], block_size: int, seed: int) -> Story:
    """Everybody advances by the next of `sizes`, each from another place in it."""
    left, steps, at = list(lengths), [], 0
    while any(left):
        step = []
        for s in order:
            rows = min(left[s], sizes[(at + s) % len(sizes)])
            if rows:
                step.append((s, rows))
                left[s] -= rows
        steps.append(tuple(step))
        at += 1
    return Story(tuple(steps), block_size=block_size, seed=seed, spare=seed % 3, unwritten=LEFT)


def stories_of(lengths: tuple[int, ...]) -> dict[str, Story]:
    return {
        "all at once": Story((tuple(enumerate(lengths)),), seed=1),
        "backwards": Story((tuple(enumerate(lengths))[::-1],), block_size=4, seed=2, unwritten=LEFT),
        "long prompts cut": cut(lengths, (100, 1, 37), (3, 0, 5, 4, 1, 2), block_size=17, seed=3),
        "small chunks": cut(lengths, (2, 7, 5, 16, 3, 33), (4, 2, 0, 1, 3, 5), block_size=1, seed=4),
        "whole tiles": cut(lengths, (4, 64, 128), (5, 4, 3, 2, 1, 0), block_size=64, seed=5),
        "shared prefix": Story(
            (((4, 20),), ((3, 1), (4, 120), (2, 12), (1, 5)), ((3, 114), (0, 1), (4, lengths[4] - 140), (5, 1))), seed=6,
            forks=(Fork(2, 4, 18), Fork(3, 4, 18), Fork(5, 4, 17))),
    }


STORIES = {lengths: stories_of(lengths) for lengths in (LENGTHS, SHORTER)}


@each_participant()
@pytest.mark.parametrize("story", STORIES[LENGTHS])
@pytest.mark.parametrize("name", SPECS)
def test_the_same_bits_in_any_company(participant: Participant, name: str, story: str) -> None:
    check(participant, name, STORIES[lengths_of(participant)][story])


@each_participant()
def test_the_same_bits_token_by_token(participant: Participant) -> None:
    steps = token_by_token(lengths_of(participant), (2, 4, 0, 1, 3, 5), first=110, count=40)
    check(participant, "windows, caps and norms", Story(steps, unwritten=LEFT))


@each_participant()
@pytest.mark.parametrize("name", ["grouped queries", "mixture of experts"])
def test_a_broken_neighbour_breaks_nobody(participant: Participant, name: str) -> None:
    """Token 0 is not a number, nor is what is computed from it."""
    program, weights = decoder(SPECS[name])
    broken = weights["embed"].copy()
    broken[0] = np.nan
    story = Story((((0, 9), (1, 17), (2, 150)), ((1, 3), (2, 2), (0, 5))), seed=9)
    tokens = [np.random.default_rng(4).integers(1, 67, length) for length in story.lengths]
    expected = play(participant.make(), program, weights, story, tokens)["logits"]
    sick = [tokens[0] * 0, *tokens[1:]]
    found = play(participant.make(), program, {**weights, "embed": broken}, story, sick)["logits"]
    assert np.isnan(found[0]).all()
    assert np.array_equal(found[1], expected[1]) and np.array_equal(found[2], expected[2])


def ends_in(value: float, name: str, at: int) -> tuple[Any, Any, dict[str, Any], Any]:
    """(tokens, the same with another from `at` on, weights, the program): the embedding of that other token, 0, is `value`."""
    program, weights = decoder(WITH_WINDOWS if name == "narrow windows" else SPECS[name])
    embed = weights["embed"].copy()
    embed[0] = value
    healthy = np.random.default_rng(4).integers(1, len(embed), 150)
    sick = healthy.copy()
    sick[at:] = 0
    return healthy, sick, {**weights, "embed": embed}, program


def logits_of(participant: Participant, program: Any, weights: dict[str, Any], story: Story, tokens: Any) -> Any:
    """Of one sequence; without token 0, whose row a tied embedding breaks for everybody."""
    with np.errstate(invalid="ignore"):
        return play(participant.make(), program, weights, story, [tokens])["logits"][0][:, 1:]


# The step that computes a token shows what stands after it, in its tile of rows and in its chunk of keys.
@each_participant()
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["grouped queries", "windows, caps and norms", "mixture of experts"])
def test_what_follows_reaches_nobody_before_it(participant: Participant, name: str, value: float) -> None:
    healthy, sick, weights, program = ends_in(value, name, 70)
    for steps in ((150,), (65, 85), (130, 20)):
        story = Story(tuple(((0, rows),) for rows in steps))
        expected, found = (logits_of(participant, program, weights, story, tokens) for tokens in (healthy, sick))
        assert np.isfinite(expected).all() and np.array_equal(found[:70], expected[:70]) and np.isnan(found[70:]).all()


@each_participant()
def test_what_a_window_has_passed_is_forgotten(participant: Participant) -> None:
    """Two layers with windows of 9 and 3: 10 tokens after the broken one all is as it was, whoever else is in the step."""
    healthy, sick, weights, program = ends_in(np.nan, "narrow windows", 20)
    sick[21:] = healthy[21:]
    for steps in ((150,), (15, 40, 1, 1, 93)):
        story = Story(tuple(((0, rows),) for rows in steps))
        expected, found = (logits_of(participant, program, weights, story, tokens) for tokens in (healthy, sick))
        assert np.isnan(found[20:31]).any(axis=1).all()
        assert np.array_equal(np.delete(found, slice(20, 31), 0), np.delete(expected, slice(20, 31), 0))


@st.composite
def stories(draw: st.DrawFn) -> Story:
    left, steps = list(LENGTHS), []
    for _ in range(draw(st.integers(1, 6))):
        waiting = [s for s in range(len(left)) if left[s]]
        step = []
        for s in draw(st.lists(st.sampled_from(waiting), unique=True)) if waiting else ():
            rows = draw(st.integers(1, left[s]))
            left[s] -= rows
            step.append((s, rows))
        if step:
            steps.append(tuple(step))
    if any(left):
        steps.append(tuple((s, rows) for s, rows in draw(st.permutations(list(enumerate(left)))) if rows))
    return Story(tuple(steps), block_size=draw(st.sampled_from((1, 2, 4, 16, 17, 64))), seed=draw(st.integers(0, 99)),
                 unwritten=draw(st.sampled_from((LEFT, math.nan))))


@given(stories(), st.sampled_from(sorted(SPECS)))
@settings(max_examples=30)
def test_the_same_bits_in_random_steps(story: Story, name: str) -> None:
    check(ORACLE, name, story)


@each_participant()
def test_the_same_bits_on_two_threads(participant: Participant) -> None:
    """Of one number of threads, that is: another may give other bits. The model is wide enough for work to be shared out."""
    backend = participant.make()
    program, weights = decoder(WIDE)
    tokens = [np.random.default_rng(5).integers(0, WIDE.vocab_size, length) for length in (70, 20)]
    with threadpool_limits(2):
        lonely = [play(backend, program, weights, Story((((0, len(t)),),)), [t])["logits"][0] for t in tokens]
        crowded = play(backend, program, weights, Story((((1, 3), (0, 50)), ((0, 20), (1, 17)))), tokens)["logits"]
    assert all(np.array_equal(a, b) for a, b in zip(lonely, crowded, strict=True))


def test_the_same_bits_with_kernels_for_avx2() -> None:
    known = [info.get("architecture") for info in threadpool_info() if info["internal_api"] == "openblas"]
    if not set(known) & set(WITH_AVX2):
        pytest.skip("this machine cannot run OpenBLAS's kernels for AVX2")
    script = (
        "from tests.contract.test_invariance import LENGTHS, ORACLE, STORIES, check\n"
        "for name in ('grouped queries', 'mixture of experts', 'odd sizes and shared keys', 'wide'):\n"
        "    check(ORACLE, name, STORIES[LENGTHS]['long prompts cut'])\n"
    )
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
