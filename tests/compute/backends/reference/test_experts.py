"""The mixture of experts: the sum that it stands for, and the same bits for a row whoever else is in the step."""
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from penstock.compute.backends.reference import kernels
from penstock.compute.backends.reference.arrays import make_arrays

TOKENS = 150
Array = Any


def mixture(hidden: int, inner: int, experts: int, active: int) -> SimpleNamespace:
    rng = np.random.default_rng(hidden + experts)

    def values(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32) * shape[-1] ** -0.5

    x = values(TOKENS, hidden) * hidden**0.5
    return SimpleNamespace(x=x, router=values(experts, hidden), gate_up=values(experts, 2 * inner, hidden),
                           down=values(experts, hidden, inner), active=active)


def run(arrays: Any, m: SimpleNamespace, rows: np.ndarray) -> np.ndarray:
    """The rows through router and experts, filled up to whole blocks as a step does."""
    xp = arrays.xp
    padded = np.zeros((len(rows) + -len(rows) % kernels.ROWS, m.x.shape[1]), np.float32)
    padded[: len(rows)] = m.x[rows]
    x = arrays.take(padded)
    router, gate_up, down = (arrays.take_matrix(w) for w in (m.router, m.gate_up, m.down))
    routed = kernels.moe_route(xp, kernels.matmul(xp, x, router, kernels.ROWS), m.active, True)
    return arrays.give(kernels.moe_experts(xp, x, routed, (gate_up, down), "silu", kernels.ROWS))[: len(rows)]


def check_alone_and_crowded(m: SimpleNamespace, library: str, dtype: str) -> None:
    arrays, rng = make_arrays(library, "cpu", dtype), np.random.default_rng(7)
    whole = run(arrays, m, np.arange(TOKENS))
    assert np.abs(whole).max() > 0.1
    for size in (1, 15, 17, 60, TOKENS):
        rows = rng.permutation(TOKENS)[:size]
        np.testing.assert_array_equal(run(arrays, m, rows), whole[rows])


SHAPES = [(64, 48, 8, 2), (40, 27, 5, 3), (128, 96, 16, 4), (33, 7, 3, 1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("library, dtype", [("numpy", "float32"), ("torch", "float32"), ("torch", "bfloat16")])
def test_a_rows_bits_depend_on_the_row_alone(shape: tuple[int, ...], library: str, dtype: str) -> None:
    with threadpool_limits(1):
        check_alone_and_crowded(mixture(*shape), library, dtype)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_so_they_do_with_two_threads(library: str) -> None:
    with threadpool_limits(2):
        check_alone_and_crowded(mixture(64, 48, 8, 2), library, "float32")


@pytest.mark.parametrize("shape", SHAPES)
def test_the_sum_over_experts(shape: tuple[int, ...]) -> None:
    m = mixture(*shape)
    scores = m.x.astype(np.float64) @ m.router.T
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.zeros_like(scores, shape=m.x.shape)
    for t in range(TOKENS):
        chosen = np.argsort(-weights[t], kind="stable")[: m.active]
        for expert in chosen:
            gate, up = np.split(m.gate_up[expert] @ m.x[t].astype(np.float64), 2)
            share = weights[t, expert] / weights[t, chosen].sum()
            expected[t] += share * (m.down[expert] @ (gate / (1 + np.exp(-gate)) * up))
    np.testing.assert_allclose(run(make_arrays("numpy", "cpu", "float32"), m, np.arange(TOKENS)), expected, atol=1e-5)


def test_equal_scores_go_to_the_lower_expert() -> None:
    arrays = make_arrays("numpy", "cpu", "float32")
    weights, ids = kernels.moe_route(arrays.xp, np.zeros((2, 6), np.float32), 3, False)
    assert ids.tolist() == [[0, 1, 2]] * 2 and np.allclose(weights, 1 / 6)
