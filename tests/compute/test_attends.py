"""What attention over latents takes: in the form that takes a sequence the fewest operations."""
from dataclasses import replace
from math import prod

import pytest

from penstock.compute.attends import Attends, Form
from penstock.compute.models.decoder import build
from penstock.compute.models.names import TensorNames
from penstock.compute.ops import KINDS, numel
from penstock.compute.price import Price, Storage
from penstock.compute.program import Program
from penstock.core.modelspec import ExpertsSpec, GatingSpec, LatentSpec, LayerSpec, ModelSpec, RopeSpec
from penstock.core.work import StepWork

HEADS, RANK, KEYS, TURNED, VALUES = 4, 16, 8, 4, 6
EXPERTS = ExpertsSpec(8, 2, 24, True, shared_size=48, gating=GatingSpec("sigmoid", True, 2, 1, 2.5))
SPEC = ModelSpec(
    vocab_size=50, hidden_size=64, num_heads=HEADS, num_kv_heads=1, head_dim=KEYS + TURNED, intermediate_size=96,
    layers=(LayerSpec(rope=RopeSpec(dim=TURNED)), LayerSpec(rope=RopeSpec(dim=TURNED), experts=EXPERTS)), max_position=4096,
    latent=LatentSpec(RANK, 12, TURNED, VALUES))
PROGRAM = build(SPEC, TensorNames())
BOTH = RANK * (KEYS + VALUES)  # values of what makes a head's keys and values
WORKS = [StepWork(((1, 300), (1, 7)), 2), StepWork(((200, 200),), 1), StepWork(((64, 400), (1, 90), (3, 3)), 2), StepWork(())]


def price_of(program: Program) -> Price:
    return Price(program, Storage(activation=4, kv=2, weights={name: 2 * prod(each.shape) for name, each in program.weights.items()}))


def attends() -> Attends:
    op = next(op for op in PROGRAM.ops if op.kind == "latent_attention")
    found = KINDS[op.kind].attends
    assert found is not None
    return found(op, PROGRAM)


@pytest.mark.parametrize("work", WORKS)
def test_a_step_costs_what_its_ops_do(work: StepWork) -> None:
    cost = price_of(PROGRAM).count(work)
    assert cost.operations == sum(KINDS[op.kind].operations(op, PROGRAM, work) for op in PROGRAM.ops)
    assert cost.activation_bytes == 4 * sum(
        numel(PROGRAM.buffers[name], work) for op in PROGRAM.ops for name in (*op.inputs, *op.outputs))
    assert cost.kv_bytes == 2 * 2 * (RANK + TURNED) * (work.num_tokens + work.num_context_tokens)


def test_decoding_is_counted_over_the_latents() -> None:
    """Absorbed: queries become RANK + TURNED long, each pair takes as much for its score and RANK for its value."""
    read, operations = attends().counts(StepWork(((1, 300),)))
    assert read == 300
    assert operations == 2 * HEADS * BOTH + 3 * HEADS * TURNED + 300 * 2 * HEADS * (RANK + TURNED + RANK)


def test_a_prompt_is_counted_in_heads_of_their_own() -> None:
    """Decompressed: keys and values of every token are made of its latent, once."""
    read, operations = attends().counts(StepWork(((200, 200),)))
    pairs = 200 * 201 // 2
    assert read == 200
    assert operations == 200 * (2 * HEADS * BOTH + 3 * HEADS * TURNED) + pairs * 2 * HEADS * (KEYS + TURNED + VALUES)


def test_a_later_chunk_makes_keys_and_values_of_what_it_sees_anew() -> None:
    first, second = (attends().counts(StepWork((seq,)))[1] for seq in ((64, 64), (64, 128)))
    assert second - first == 64 * 2 * HEADS * BOTH + 64 * 64 * 2 * HEADS * (KEYS + TURNED + VALUES)


def test_the_form_that_takes_fewer_is_chosen_for_each_sequence() -> None:
    few_pairs, few_reads = Form(pair=1, read=10), Form(pair=4)
    both = Attends(5, (few_pairs, few_reads))
    short, long = ((1, 9),), ((9, 9),)
    assert both.counts(StepWork(short)) == (9, 36) and both.counts(StepWork(long)) == (9, 45 + 90)
    assert both.counts(StepWork((*short, *long))) == (18, 36 + 45 + 90)


def test_one_form_sees_no_more_than_its_window() -> None:
    assert Attends(5, (Form(7),), 3).counts(StepWork(((1, 10), (2, 2)))) == (3 + 2, 7 * (3 + 3))


def test_projections_by_hand() -> None:
    """A row beside attention: down to the latents and up, back from the heads, the router and its experts, with the shared one."""
    projections = 2 * 64 * (RANK + TURNED + 12) + 2 * 12 * HEADS * (KEYS + TURNED) + 2 * HEADS * VALUES * 64
    latents = 4 * (12 + RANK) + 3 * TURNED
    dense = 2 * 3 * 96 * 64 + 3 * 2 * 96
    mixture = 2 * 8 * 64 + 2 * 2 * 3 * 24 * 64 + 2 * 3 * 48 * 64 + 3 * 2 * 48 + 64
    rest = (2 * 2 + 1) * 4 * 64 + 2 * 2 * 64
    attention = 2 * attends().counts(StepWork(((1, 1),)))[1]
    assert price_of(PROGRAM).count(StepWork(((1, 1),))).operations == 2 * (projections + latents) + dense + mixture + rest + attention


def test_shared_experts_are_always_read_and_others_as_rows_choose() -> None:
    expert, shared = 2 * 3 * 24 * 64, 2 * 3 * 48 * 64
    without = build(replace(SPEC, layers=SPEC.layers[:1]), TensorNames())
    router = 2 * (8 * 64 + 8)
    attention = sum(2 * prod(each.shape) for name, each in PROGRAM.weights.items() if name.startswith("layers.1.") and not any(
        word in name for word in ("expert", "shared", "router")))
    for rows, read in ((1, 2.0), (2, 2 + 2 * 6 / 8)):
        work = StepWork(((1, 1),) * rows, rows)
        more = price_of(PROGRAM).count(work).weight_bytes - price_of(without).count(work).weight_bytes
        assert more == attention + router + shared + read * expert


def test_what_makes_latents_is_on_every_device() -> None:
    assert {name for name, weight in PROGRAM.weights.items() if weight.whole} == {
        f"layers.{i}.{name}" for i in range(2) for name in ("kv_down", "q_down")}
