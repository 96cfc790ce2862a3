from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.compute.models.decoder import build
from penstock.compute.models.names import TensorNames
from penstock.compute.ops import OPS, numel
from penstock.compute.price import Price, Storage
from penstock.compute.program import Program
from penstock.core.modelspec import ExpertsSpec, LayerSpec, ModelSpec, RopeSpec
from penstock.core.work import StepWork
from tests.contract.decoders import SPECS

STORAGE = Storage(activation=4, kv=2, weights=1000)
LLAMA_2_7B = ModelSpec(
    vocab_size=32000, hidden_size=4096, num_heads=32, num_kv_heads=32, head_dim=128, intermediate_size=11008,
    layers=(LayerSpec(rope=RopeSpec(dim=128)),) * 32, max_position=4096)
MIXTRAL_8X7B = replace(
    LLAMA_2_7B, num_kv_heads=8, intermediate_size=14336, max_position=32768,
    layers=(LayerSpec(rope=RopeSpec(theta=1e6, dim=128), experts=ExpertsSpec(8, 2, 14336, True)),) * 32)


def kv_values(program: Program, contexts: list[tuple[int, int]]) -> int:
    """Numbers of keys and values that a step reads and writes, key by key."""
    layers_read = 0
    for op in program.ops:
        if op.kind == "attention":
            window = op.attrs["window"] or 10**9
            for rows, total in contexts:
                layers_read += len({key for row in range(total - rows, total) for key in range(row + 1) if row - key < window})
    written = sum(rows for rows, _ in contexts) * len([op for op in program.ops if op.kind == "kv_write"])
    return (layers_read + written) * 2 * program.kv.num_kv_heads * program.kv.head_dim


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@given(
    contexts=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 200)).map(lambda s: (s[0], s[0] + s[1])), max_size=4),
    num_logits=st.integers(0, 9))
def test_a_step_costs_what_its_ops_do(spec: ModelSpec, contexts: list[tuple[int, int]], num_logits: int) -> None:
    program = build(spec, TensorNames())
    work = StepWork(tuple(contexts), num_logits)
    cost = Price(program, STORAGE).count(work)
    assert cost.operations == sum(OPS[op.kind].operations(op, program, work) for op in program.ops)
    values = sum(numel(program.buffers[name], work) for op in program.ops for name in (*op.inputs, *op.outputs))
    assert cost.activation_bytes == 4 * values
    assert cost.kv_bytes == 2 * kv_values(program, contexts)
    assert cost.weight_bytes == 1000


def test_operations_by_hand() -> None:
    """Two layers, one with a window of 3; a prefill of 5 rows and a decode at depth 7; two rows of logits."""
    spec = ModelSpec(
        vocab_size=11, hidden_size=6, num_heads=2, num_kv_heads=1, head_dim=4, intermediate_size=10,
        layers=(LayerSpec(rope=RopeSpec(dim=4)), LayerSpec(rope=None, window=3)), max_position=64)
    rows, logits, pairs, windowed_pairs = 6, 2, 15 + 7, 12 + 3
    norms = (2 * 2 + 1) * 4 * 6
    per_layer = 2 * 6 * (2 + 1 + 1) * 4 + 2 * 8 * 6 + 2 * 6 * 20 + 2 * 10 * 6 + 3 * 20 + 2 * 6
    rope = 3 * (2 + 1) * 4
    attention = 4 * 2 * 4 * (pairs + windowed_pairs)
    expected = rows * (norms + 2 * per_layer + rope) + attention + logits * 2 * 11 * 6
    assert Price(build(spec, TensorNames()), STORAGE).count(StepWork(((5, 5), (1, 7)), logits)).operations == expected


def test_llama_2_7b() -> None:
    """6.74 billion parameters, of which an embedding row is only looked up; half a MiB of keys and values a token in 16 bits."""
    program = build(LLAMA_2_7B, TensorNames())
    assert program.num_parameters() == LLAMA_2_7B.num_parameters() == 6_738_415_616
    price = Price(program, STORAGE)
    first, last = (price.count(StepWork(((1, depth),), 1)) for depth in (1, 4096))
    multiplied = 6_738_415_616 - 32000 * 4096
    assert first.operations == pytest.approx(2 * multiplied, rel=1e-3)
    assert last.operations - first.operations == 4 * 32 * 4096 * 4095
    assert first.kv_bytes == 2 * 524_288  # written and read
    assert last.kv_bytes == 4097 * 524_288
    assert LLAMA_2_7B.kv_bytes_per_token() == 524_288


def test_mixtral_multiplies_a_token_with_the_experts_that_it_is_sent_to() -> None:
    """46.7 billion parameters, 12.9 billion of them in use for a token."""
    program = build(MIXTRAL_8X7B, TensorNames())
    assert program.num_parameters() == 46_702_792_704
    assert MIXTRAL_8X7B.num_active_parameters() == pytest.approx(12.75e9, rel=1e-2)
    cost = Price(program, STORAGE).count(StepWork(((1, 1),), 1))
    assert cost.operations == pytest.approx(2 * MIXTRAL_8X7B.num_active_parameters(), rel=1e-3)


def test_rows_without_logits_cost_no_head() -> None:
    price = Price(build(LLAMA_2_7B, TensorNames()), STORAGE)
    with_logits, without = (price.count(StepWork(((7, 7),), n)).operations for n in (1, 0))
    assert with_logits - without == 2 * 32000 * 4096
