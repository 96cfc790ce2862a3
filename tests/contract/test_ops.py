"""Every op of every backend: the reference on numpy against an oracle in float64, every other backend against the reference."""
from collections.abc import Mapping
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from penstock.compute.backends import TABLE
from penstock.compute.ops import OPS
from tests.contract.cases import CASES, VOCAB, Case, Heads, attending
from tests.contract.participants import ORACLE, PARTICIPANTS, Participant, each_participant
from tests.contract.stories import LEFT, Fork, Story, play, tokens_for


def decodes(depths: tuple[int, ...], steps: int = 1) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Everybody's prompt in one step, then all decode together."""
    return (tuple(enumerate(depths)), *((tuple((s, 1) for s in range(len(depths))),) * steps))


ROWS = {
    "one row": Story((((0, 1),),)),
    "33 rows": Story((((0, 33),),)),
    "a mix": Story((((0, 17), (1, 1)), ((2, 30), (1, 1), (0, 1)), ((0, 1), (3, 2), (1, 1), (2, 3)))),
    "no logits": Story((((0, 5),), ((0, 20), (1, 1))), logits="none"),
}
MIX = (((0, 9), (1, 130)), ((1, 1), (2, 70), (0, 1)), ((2, 63), (0, 5), (3, 2), (1, 1)), ((3, 1), (2, 1), (1, 1), (0, 1)))
STORIES = {
    "one row": Story((((0, 1),),)),
    "one prefill": Story((((0, 150),),)),
    "chunks at odd cuts": Story(tuple(((0, n),) for n in (1, 7, 33, 128, 50, 2, 1, 60)), block_size=17),
    "decodes at depths": Story(decodes((1, 2, 3, 15, 16, 17, 127, 128, 129, 255, 300, 399), steps=3), seed=1, unwritten=LEFT),
    "many decodes": Story(decodes(tuple(range(1, 41))), block_size=4, unwritten=LEFT),
    "a mix in blocks of 1": Story(MIX, block_size=1, unwritten=LEFT),
    "a mix in blocks of 4": Story(MIX, block_size=4, seed=2),
    "a mix in blocks of 17": Story(MIX, block_size=17, seed=3, unwritten=LEFT),
    "a mix in blocks of 64": Story(MIX, block_size=64, seed=4),
    "tables longer than needed": Story(MIX, spare=9, seed=5),
    "blocks shared": Story((((0, 48),), ((1, 3), (0, 1), (2, 9)), ((2, 1), (1, 1), (0, 1))), forks=(Fork(1, 0, 32), Fork(2, 0, 48))),
    "blocks copied": Story(
        (((0, 70),), ((0, 3), (1, 2), (2, 1)), ((2, 20), (0, 1), (1, 1))), forks=(Fork(1, 0, 53), Fork(2, 0, 70)), seed=6),
    "logits of last rows": Story(MIX, logits="last"),
    "no logits": Story(MIX, logits="none"),
}
SHAPES = Story(MIX, seed=1)
BLOCKS = [attending(how) for how in (Heads(4, 2, 16), Heads(3, 1, 8, window=20), Heads(4, 2, 16, window=40, sinks=2.0))]


@cache
def told(case: Case, story: Story, dtype: str) -> tuple[Mapping[str, Any], dict[str, list[Any]]]:
    """(weights, what the reference makes of them): the same to every backend that is compared with it."""
    weights = case.weights
    if dtype != "float32":
        weights = {name: array.astype(getattr(ml_dtypes, dtype)).astype(np.float32) for name, array in weights.items()}
    return weights, play(ORACLE.make(), case.program, weights, story, tokens_for(story, VOCAB))


def check(participant: Participant, case: Case, story: Story) -> None:
    tokens = tokens_for(story, VOCAB)
    if participant == ORACLE:
        weights, whole = case.weights, [case.expect(case.weights, t) for t in tokens]
        expected = {name: [each[name][begin:] for each, begin in zip(whole, story.begins, strict=True)] for name in whole[0]}
    else:
        weights, expected = told(case, story, participant.dtype)
    found = play(participant.make(), case.program, weights, story, tokens)
    for name, per_seq in expected.items():
        if name == "logits" and story.logits != "all":
            continue
        tolerance = 0 if name in case.exact else participant.tolerance * max(1.0, max(abs(values).max() for values in per_seq))
        for s, values in enumerate(per_seq):
            where = f"{case.name}: {name} of sequence {s}"
            np.testing.assert_allclose(found[name][s], values, rtol=0, atol=tolerance, equal_nan=False, err_msg=where)


def test_every_op_is_covered() -> None:
    assert CASES.keys() == OPS.keys()


def test_every_backend_takes_part() -> None:
    assert {participant.text.partition(":")[0] for participant in PARTICIPANTS} == set(TABLE)


@pytest.mark.parametrize("text", sorted({participant.text for participant in PARTICIPANTS}))
def test_every_dtype_takes_part(text: str) -> None:
    mine = [participant for participant in PARTICIPANTS if participant.text == text]
    plugin, options = TABLE.parse(text)
    assert {plugin(options, dtype=dtype).dtype for dtype in mine[0].make().caps.dtypes} == {participant.dtype for participant in mine}


@each_participant()
@pytest.mark.parametrize("story", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("kind", sorted(CASES.keys() - {"attention", "kv_write"}))
def test_op(participant: Participant, kind: str, story: Story) -> None:
    for case in CASES[kind]:
        check(participant, case, story)


@each_participant()
@pytest.mark.parametrize("case", CASES["attention"], ids=lambda case: case.name)
def test_attention_shapes(participant: Participant, case: Case) -> None:
    check(participant, case, SHAPES)


@each_participant()
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
@pytest.mark.parametrize("case", BLOCKS, ids=lambda case: case.name)
def test_attention_over_blocks(participant: Participant, case: Case, story: Story) -> None:
    check(participant, case, story)
