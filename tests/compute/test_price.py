from dataclasses import replace
from math import prod

import numpy as np
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

LLAMA_2_7B = ModelSpec(
    vocab_size=32000, hidden_size=4096, num_heads=32, num_kv_heads=32, head_dim=128, intermediate_size=11008,
    layers=(LayerSpec(rope=RopeSpec(dim=128)),) * 32, max_position=4096)
MIXTRAL_8X7B = replace(
    LLAMA_2_7B, num_kv_heads=8, intermediate_size=14336, max_position=32768,
    layers=(LayerSpec(rope=RopeSpec(theta=1e6, dim=128), experts=ExpertsSpec(8, 2, 14336, True)),) * 32)
MANY_EXPERTS = ModelSpec(
    vocab_size=1000, hidden_size=64, num_heads=4, num_kv_heads=2, head_dim=16, intermediate_size=0,
    layers=(LayerSpec(rope=RopeSpec(dim=16), experts=ExpertsSpec(128, 8, 96, True)),) * 3, max_position=4096)
WEIGHT_BYTES = 2


def price_of(program: Program) -> Price:
    return Price(program, Storage(
        activation=4, kv=2, weights={name: WEIGHT_BYTES * prod(each.shape) for name, each in program.weights.items()}))


def weight_bytes(spec: ModelSpec, rows: int, logits: int) -> int:
    """Of a step that starts `rows` sequences."""
    return price_of(build(spec, TensorNames())).count(StepWork(((1, 1),) * rows, logits)).weight_bytes


def all_bytes(spec: ModelSpec) -> int:
    return WEIGHT_BYTES * spec.num_parameters()


def table_bytes(spec: ModelSpec) -> int:
    return WEIGHT_BYTES * spec.vocab_size * spec.hidden_size


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
    cost = price_of(program).count(work)
    assert cost.operations == sum(OPS[op.kind].operations(op, program, work) for op in program.ops)
    values = sum(numel(program.buffers[name], work) for op in program.ops for name in (*op.inputs, *op.outputs))
    assert cost.activation_bytes == 4 * values
    assert cost.kv_bytes == 2 * kv_values(program, contexts)


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
    assert price_of(build(spec, TensorNames())).count(StepWork(((5, 5), (1, 7)), logits)).operations == expected


def test_llama_2_7b() -> None:
    """6.74 billion parameters, of which an embedding row is only looked up; half a MiB of keys and values a token in 16 bits."""
    program = build(LLAMA_2_7B, TensorNames())
    assert program.num_parameters() == LLAMA_2_7B.num_parameters() == 6_738_415_616
    price = price_of(program)
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
    cost = price_of(program).count(StepWork(((1, 1),), 1))
    assert cost.operations == pytest.approx(2 * MIXTRAL_8X7B.num_active_parameters(), rel=1e-3)


def test_rows_without_logits_cost_no_head() -> None:
    price = price_of(build(LLAMA_2_7B, TensorNames()))
    with_logits, without = (price.count(StepWork(((7, 7),), n)).operations for n in (1, 0))
    assert with_logits - without == 2 * 32000 * 4096


@pytest.mark.parametrize("rows", [1, 7, 50, 10**5])
def test_a_dense_step_reads_every_weight_once_but_of_the_embeddings_rows(rows: int) -> None:
    table, gathered = table_bytes(LLAMA_2_7B), min(rows, 32000) * WEIGHT_BYTES * 4096
    assert weight_bytes(LLAMA_2_7B, rows, 1) == weight_bytes(LLAMA_2_7B, rows, rows) == all_bytes(LLAMA_2_7B) - table + gathered


def test_without_logits_the_head_is_not_read() -> None:
    untied, tied = LLAMA_2_7B, replace(LLAMA_2_7B, tied_embeddings=True)
    row, table = WEIGHT_BYTES * 4096, table_bytes(untied)
    assert weight_bytes(untied, 3, 0) == all_bytes(untied) - 2 * table + 3 * row
    assert weight_bytes(tied, 3, 0) == all_bytes(tied) - table + 3 * row
    assert weight_bytes(tied, 3, 2) == all_bytes(tied) + 3 * row  # as the head, and by rows


def test_a_row_reads_the_experts_that_it_is_sent_to_and_many_rows_read_all() -> None:
    matrices, row = WEIGHT_BYTES * 3 * 3 * 64 * 96, WEIGHT_BYTES * 64  # of one expert in each of 3 layers; of the embeddings
    others = all_bytes(MANY_EXPERTS) - 128 * matrices - table_bytes(MANY_EXPERTS)
    assert weight_bytes(MANY_EXPERTS, 1, 1) == others + 8 * matrices + row
    assert weight_bytes(MANY_EXPERTS, 2, 2) == pytest.approx(others + (8 + 8 * 120 / 128) * matrices + 2 * row, abs=1)
    assert weight_bytes(MANY_EXPERTS, 1000, 1) == others + 128 * matrices + 1000 * row


@pytest.mark.parametrize("rows", [1, 2, 16, 200])
def test_twice_the_rows_read_other_experts_beside(rows: int) -> None:
    few, many = (price_of(build(MANY_EXPERTS, TensorNames())).count(StepWork(((n, n),), 1)) for n in (rows, 2 * rows))
    tables = WEIGHT_BYTES * 64 * rows
    assert few.more_weight_bytes == pytest.approx(many.weight_bytes - few.weight_bytes - tables, abs=2)
    assert price_of(build(LLAMA_2_7B, TensorNames())).count(StepWork(((rows, rows),), 1)).more_weight_bytes == 0


def test_experts_read_are_the_mean_of_rows_that_choose_at_random() -> None:
    rng = np.random.default_rng(0)
    distinct = [len({expert for _ in range(16) for expert in rng.choice(128, 8, replace=False)}) for _ in range(300)]
    matrices, row = WEIGHT_BYTES * 3 * 3 * 64 * 96, WEIGHT_BYTES * 64
    others = all_bytes(MANY_EXPERTS) - 128 * matrices - table_bytes(MANY_EXPERTS)
    read = (weight_bytes(MANY_EXPERTS, 16, 1) - others - 16 * row) / matrices
    assert read == pytest.approx(np.mean(distinct), rel=0.01)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_more_rows_never_read_less_and_never_more_than_there_is(spec: ModelSpec) -> None:
    program = build(spec, TensorNames())
    price = price_of(program)
    for logits in (0, 1):
        read = [price.count(StepWork(((rows, rows),), logits)).weight_bytes for rows in range(1, 200)]
        assert read == sorted(read) and read[-1] <= all_bytes(spec) + (table_bytes(spec) if spec.tied_embeddings else 0)
    assert read[-1] == all_bytes(spec) + (table_bytes(spec) if spec.tied_embeddings else 0)


def test_each_weight_counts_as_it_is_held() -> None:
    """Experts in fewer bytes than the rest: the mean of all would be wrong."""
    program = build(MANY_EXPERTS, TensorNames())
    held = {name: prod(each.shape) * (1 if "expert" in name else 4) for name, each in program.weights.items()}
    cost = Price(program, Storage(activation=4, kv=2, weights=held)).count(StepWork(((1, 1),), 1))
    experts = sum(size for name, size in held.items() if "expert" in name)
    assert cost.weight_bytes == sum(held.values()) - held["embed"] + 4 * 64 - experts + experts // 16
