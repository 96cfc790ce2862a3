"""Every family's logits are those of transformers, in float32: a whole prompt, chunks of odd sizes, and token by token."""
import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest

from tests.golden.oracle import logits, model_of, save, some_ids
from tests.golden.paged import Model
from tests.golden.variants import VARIANTS

LENGTH = 150  # past every window and every original context, and past one chunk of keys
DECODED = 24
BOUND = 2e-5  # of logits that reach 2; rounding alone makes 3e-6


@dataclass(frozen=True)
class Case:
    model: Model
    ids: list[int]
    expected: np.ndarray
    num_parameters: int


@pytest.fixture(scope="module", params=VARIANTS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    theirs = model_of(VARIANTS[request.param])
    folder = save(theirs, tmp_path_factory.mktemp(request.param))
    ids = some_ids(LENGTH)
    max_len = max(LENGTH, theirs.config.max_position_embeddings)
    return Case(Model(folder, max_len=max_len), ids, logits(theirs, ids), theirs.num_parameters())


def check_close(found: np.ndarray, expected: np.ndarray, bound: float = BOUND) -> None:
    assert found.shape == expected.shape
    worst = float(np.abs(found - expected).max())
    assert worst <= bound, f"logits differ by up to {worst:.2e}, and reach {np.abs(expected).max():.2f}"


def test_logits_matter(case: Case) -> None:
    """The bound would mean nothing if all logits were small, or the same whatever came before."""
    assert np.abs(case.expected).max() > 10000 * BOUND
    twice = np.flatnonzero(np.array(case.ids) == max(case.ids, key=case.ids.count))
    assert np.abs(case.expected[twice[0]] - case.expected[twice[-1]]).max() > 1000 * BOUND


def test_prefill(case: Case) -> None:
    check_close(case.model.feed(case.ids, [LENGTH]), case.expected)


def test_chunked_prefill(case: Case) -> None:
    case.model.reset()
    sizes = itertools.cycle((1, 7, 33, 18, 5))
    check_close(case.model.feed(case.ids, sizes, beside=some_ids(11, seed=9)), case.expected)


def test_decode(case: Case) -> None:
    case.model.reset()
    case.model.feed(case.ids[:-DECODED], [LENGTH])
    found = case.model.feed(case.ids[-DECODED:], [1] * DECODED, start=LENGTH - DECODED)
    check_close(found, case.expected[-DECODED:])


def test_parameters_are_counted(case: Case) -> None:
    held = sum(math.prod(weight.shape) for weight in case.model.weights.values())
    assert case.model.spec.num_parameters() == case.model.program.num_parameters() == held == case.num_parameters
