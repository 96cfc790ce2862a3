"""The mixture of experts: the sum that it stands for, and the same bits for a row whoever else is in the step."""
from dataclasses import dataclass

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from penstock.compute.backends.contract import Batch, KVLayout
from penstock.compute.backends.reference.backend import Reference, ReferenceOptions
from penstock.compute.ops import check
from penstock.compute.program import KVSpec, Op, Program, WeightSpec

TOKENS = 150
BLOCK = 16


@dataclass(frozen=True)
class Shape:
    hidden: int
    inner: int
    experts: int
    active: int


SHAPES = [Shape(64, 48, 8, 2), Shape(40, 27, 5, 3), Shape(128, 96, 16, 4), Shape(33, 7, 3, 1)]


def program_of(shape: Shape) -> Program:
    """Token t is row t of a table, which goes through the mixture; what comes out is handed out as logits."""
    sizes = {
        "table": (TOKENS, shape.hidden), "router": (shape.experts, shape.hidden),
        "gate_up": (shape.experts, 2 * shape.inner, shape.hidden), "down": (shape.experts, shape.hidden, shape.inner),
    }
    ops = (
        Op("embed", ("tokens",), ("x",), ("table",), {"scale": 1.0}),
        Op("moe_route", ("x",), ("shares", "chosen"), ("router",), {"num_active": shape.active, "renormalize": True}),
        Op("moe_experts", ("x", "shares", "chosen"), ("fed",), ("gate_up", "down"), {"activation": "silu"}),
        Op("gather", ("fed",), ("wanted",)),
    )
    buffers = {"tokens": ("T",), "positions": ("T",), "x": ("T", shape.hidden), "shares": ("T", shape.active),
               "chosen": ("T", shape.active), "fed": ("T", shape.hidden), "wanted": ("L", shape.hidden)}
    weights = {name: WeightSpec(name, size, matrix=name != "table") for name, size in sizes.items()}
    program = Program(ops, buffers, weights, KVSpec(0, 1, 2), TOKENS, TOKENS, {"logits": "wanted"})
    check(program)
    return program


def weights_of(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(len(program.weights["down"].shape) + program.weights["router"].shape[0])
    return {
        name: rng.standard_normal(weight.shape).astype(np.float32) * (1 if name == "table" else weight.shape[-1] ** -0.5)
        for name, weight in program.weights.items()}


def run(backend: Reference, loaded: object, tokens: np.ndarray) -> np.ndarray:
    places = np.arange(len(tokens))
    blocks = np.arange(-(-len(tokens) // BLOCK))
    return backend.step(loaded, Batch(  # type: ignore[arg-type]
        tokens, places, places, np.array([0, len(tokens)]), np.array([len(tokens)]), [blocks], places,
        np.zeros((0, 2), dtype=np.int64))).logits


def check_alone_and_crowded(shape: Shape, library: str, dtype: str) -> None:
    pytest.importorskip(library, reason=f"{library} is an extra: pip install '.[{library}]'")
    program, backend, rng = program_of(shape), Reference(ReferenceOptions(library), dtype=dtype), np.random.default_rng(7)
    loaded = backend.load(program, weights_of(program), KVLayout(TOKENS // BLOCK + 1, BLOCK))
    whole = run(backend, loaded, np.arange(TOKENS))
    assert np.abs(whole).max() > 0.1
    for size in (1, 15, 17, 60, TOKENS):
        tokens = rng.permutation(TOKENS)[:size]
        np.testing.assert_array_equal(run(backend, loaded, tokens), whole[tokens])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("library, dtype", [("numpy", "float32"), ("torch", "float32"), ("torch", "bfloat16")])
def test_a_rows_bits_depend_on_the_row_alone(shape: Shape, library: str, dtype: str) -> None:
    with threadpool_limits(1):
        check_alone_and_crowded(shape, library, dtype)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_so_they_do_with_two_threads(library: str) -> None:
    with threadpool_limits(2):
        check_alone_and_crowded(SHAPES[0], library, "float32")


@pytest.mark.parametrize("shape", SHAPES)
def test_the_sum_over_experts(shape: Shape) -> None:
    program, backend = program_of(shape), Reference()
    w = weights_of(program)
    scores = w["table"].astype(np.float64) @ w["router"].T
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.zeros((TOKENS, shape.hidden))
    for t, x in enumerate(w["table"].astype(np.float64)):
        chosen = np.argsort(-powers[t], kind="stable")[: shape.active]
        for expert in chosen:
            gate, up = np.split(w["gate_up"][expert] @ x, 2)
            expected[t] += powers[t, expert] / powers[t, chosen].sum() * (w["down"][expert] @ (gate / (1 + np.exp(-gate)) * up))
    loaded = backend.load(program, w, KVLayout(TOKENS // BLOCK + 1, BLOCK))
    np.testing.assert_allclose(run(backend, loaded, np.arange(TOKENS)), expected, atol=1e-5)


def test_equal_scores_go_to_the_lower_experts() -> None:
    program, backend = program_of(SHAPES[0]), Reference()
    w = weights_of(program)
    w["router"][:] = 0
    found = run(backend, backend.load(program, w, KVLayout(10, BLOCK)), np.arange(TOKENS))
    w["down"][2:] = 0  # of experts that are never chosen
    np.testing.assert_array_equal(run(backend, backend.load(program, w, KVLayout(10, BLOCK)), np.arange(TOKENS)), found)
    assert np.abs(found).max() > 0.1
