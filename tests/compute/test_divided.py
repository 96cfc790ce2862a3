"""What tensor parallelism divides: by rows what reads the hidden states, by columns what reads a device's own part of something."""
from dataclasses import replace

import pytest

from penstock.compute.divided import COLUMNS, ROWS, Divided, divided, num_sums
from penstock.compute.models.decoder import build
from penstock.compute.models.families.llama import FAMILY
from penstock.core.modelspec import ExpertsSpec, ModelSpec
from tests.compute.test_steptime import latents, spec


def of_layer(made: ModelSpec, i: int = 0) -> list[tuple[str, str, int, int | None]]:
    """Without the repetitions of the other layers."""
    at = f"model.layers.{i}."
    return [(each.tensor.removeprefix(at), each.side, each.size, each.heads) for each in divided(build(made, FAMILY.names))
            if each.tensor.startswith(at)]


ATTENTION = [("self_attn.q_proj", ROWS, 512, 8), ("self_attn.k_proj", ROWS, 256, 4), ("self_attn.v_proj", ROWS, 256, 4),
             ("self_attn.o_proj", COLUMNS, 512, None)]


def test_a_dense_layer() -> None:
    assert of_layer(spec()) == [
        *ATTENTION, ("mlp.gate_proj", ROWS, 1024, None), ("mlp.up_proj", ROWS, 1024, None), ("mlp.down_proj", COLUMNS, 1024, None)]
    assert len(list(divided(build(spec(), FAMILY.names)))) == 4 * 7, "no tables"


def test_a_norm_over_all_heads_leaves_them_divided() -> None:
    """And gathers queries and keys, which counts as one more sum in each layer."""
    normed = replace(spec(), whole_qk_norm=True, pre_norms=False, post_norms=True)
    assert of_layer(normed) == of_layer(spec())
    assert [num_sums(build(each, FAMILY.names)) for each in (spec(), normed)] == [4 * 2, 4 * 3]


def test_experts() -> None:
    """All of them alike, each as one that is alone would be; the router is nobody's part."""
    assert of_layer(spec(ExpertsSpec(16, 2, 256, True)))[len(ATTENTION):] == [
        ("mlp.experts.0.gate_proj", ROWS, 256, None), ("mlp.experts.0.up_proj", ROWS, 256, None),
        ("mlp.experts.0.down_proj", COLUMNS, 256, None)]


def test_latents_are_whole_and_what_is_made_of_them_is_divided() -> None:
    found = {name.partition(".")[2]: told for name, *told in of_layer(latents())}
    assert found.keys().isdisjoint({"q_a_proj", "kv_a_proj_with_mqa"})
    assert found["q_b_proj"] == [ROWS, 8 * 96, 8] and found["kv_b_proj"] == [ROWS, 8 * (64 + 64), None]
    assert found["o_proj"] == [COLUMNS, 8 * 64, None] and found["shared_experts.down_proj"] == [COLUMNS, 512, None]


@pytest.mark.parametrize(("heads", "ranks", "block", "fits"), [
    (None, 4, 1, True), (None, 4, 176, True), (None, 4, 128, False), (None, 2, 128, True), (None, 3, 1, False), (None, 1, 1024, True),
    (None, 2, 0, False), (None, 1, 0, True), (1, 4, 0, True),  # 0: all of them
    (2, 4, 128, True),  # two devices keep the same head, of 1,408 rows
    (2, 4, 256, False), (1, 4, 256, True),  # one head is cut by nobody, whatever its length
])
def test_a_share_is_of_whole_blocks(heads: int | None, ranks: int, block: int, fits: bool) -> None:
    assert Divided("w", 0, "w", ROWS, 2816, heads).fits(ranks, block) is fits
