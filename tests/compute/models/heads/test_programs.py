"""Programs of heads: the same numbers as computed plainly, for any family, and what they take of a target."""
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from penstock.compute.backends.contract import Batch, KVLayout
from penstock.compute.backends.reference.backend import Reference
from penstock.compute.models.families.llama import FAMILY
from penstock.compute.models.heads import eagle, medusa, stamp
from penstock.core.modelspec import ClampedSpec, ExpertsSpec, LatentSpec, LayerSpec, ModelSpec, RopeSpec
from tests.compute.models.heads import plain
from tests.tiny import CONFIG, write_heads, write_model

SIZE, BLOCK = 23, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_heads(write_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def given() -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return rng.integers(0, 300, SIZE), rng.standard_normal((SIZE, CONFIG["hidden_size"])).astype(np.float32)


def loaded(folder: Path, program: Any, kind: str) -> tuple[Reference, Any, dict[str, Any], Any]:
    own, backend = load_file(folder / f"{kind}.safetensors"), Reference()
    table = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    tensors = {**own, "model.embed_tokens.weight": table}
    weights = {name: np.concatenate([tensors[tensor] for tensor in weight.tensors]) for name, weight in program.weights.items()}
    return backend, backend.load(program, weights, KVLayout(16, BLOCK)), own, table


def batch(tokens: Any, states: Any, start: int, wanted: tuple[str, ...] = ("hidden",)) -> Batch:
    """Rows of one sequence from `start` on, its slots in order."""
    at = np.arange(start, start + len(tokens))
    return Batch(tokens, at, at, np.array([0, len(tokens)]), np.array([start + len(tokens)]), [np.arange(16)], np.arange(len(tokens)),
                 np.empty((0, 2), dtype=np.int64), wanted, None, None, {"states": states})


def test_eagle_computes_one_layer_on_token_and_state(folder: Path, given: tuple[Any, Any]) -> None:
    tokens, states = given
    spec = FAMILY.spec(CONFIG)
    backend, head, own, table = loaded(folder, eagle.build(spec, FAMILY.names), "eagle")
    logits, hidden = plain.eagle(CONFIG, own, table, tokens, states)
    found = [backend.step(head, batch(tokens[part], states[part], part.start)) for part in (slice(0, 9), slice(9, SIZE))]
    np.testing.assert_allclose(np.concatenate([each.logits for each in found]), logits, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(np.concatenate([each.buffers["hidden"] for each in found]), hidden, rtol=2e-4, atol=2e-4)


def test_medusa_computes_each_head_row_by_row(folder: Path, given: tuple[Any, Any]) -> None:
    tokens, states = given
    backend, heads, own, table = loaded(folder, medusa.builder(4)(FAMILY.spec(CONFIG), FAMILY.names), "medusa")
    found = backend.step(heads, batch(tokens, states, 0, ("logits1", "logits2", "logits3")))
    for head, logits in enumerate([found.logits, *(found.buffers[f"logits{i}"] for i in (1, 2, 3))]):
        np.testing.assert_allclose(logits, plain.medusa(CONFIG, own, table, tokens, states, head), rtol=2e-4, atol=2e-4)


def random_spec(rng: random.Random) -> ModelSpec:
    rope = RopeSpec(dim=16)
    experts = rng.choice([None, ExpertsSpec(4, 2, 24, True)])
    kinds = [LayerSpec(rope=rope, experts=experts), LayerSpec(window=8, rope=rope, experts=experts), LayerSpec(rope=None, experts=experts)]
    def flag() -> bool:
        return rng.random() < 0.5

    normed = rng.randrange(3)
    return ModelSpec(
        vocab_size=50, hidden_size=32, num_heads=4, num_kv_heads=2, head_dim=16, intermediate_size=48,
        layers=(kinds[0], *rng.choices(kinds, k=3)), max_position=64, norm_offset=rng.choice([0.0, 1.0]), qkv_bias=flag(),
        output_bias=flag(), mlp_bias=flag(), qk_norm=normed == 1, whole_qk_norm=normed == 2, pre_norms=flag(), post_norms=flag(),
        tied_embeddings=flag(),
        attention_softcap=rng.choice([None, 30.0]), logit_softcap=rng.choice([None, 20.0]))


@pytest.mark.parametrize("seed", range(12))
def test_any_shape_of_target_has_heads(seed: int) -> None:
    """Programs are checked while they are built; beside the target's tables no tensor is the target's, and none is taken twice."""
    spec = random_spec(random.Random(seed))
    for program, prefix, layers in ((eagle.build(spec, FAMILY.names), "eagle.", 1), (medusa.builder(3)(spec, FAMILY.names), "medusa.", 0)):
        own = [tensor for name, weight in program.weights.items() if name not in ("embed", "lm_head") for tensor in weight.tensors]
        assert own and all(tensor.startswith(prefix) for tensor in own) and len(set(own)) == len(own)
        assert ("lm_head" in program.weights) == (not spec.tied_embeddings)
        assert program.inputs == ("states",) and program.kv.num_layers == layers
        assert ("capped_logits" in program.buffers) == (spec.logit_softcap is not None)


def test_a_mixtures_head_is_as_wide_as_its_active_experts() -> None:
    layer = LayerSpec(rope=RopeSpec(dim=16), experts=ExpertsSpec(8, 3, 20, True))
    spec = ModelSpec(50, 32, 4, 2, 16, 48, (layer,), 64)
    assert eagle.build(spec, FAMILY.names).weights["layers.0.gate_up"].shape == (2 * 3 * 20, 32)


def test_a_head_rotates_as_the_layers_that_see_all_do() -> None:
    def factor(*layers: LayerSpec) -> float | None:
        rope = eagle.one_layer(ModelSpec(50, 32, 4, 2, 16, 48, layers, 64)).layers[0].rope
        return None if rope is None else rope.theta

    near, far, none = LayerSpec(window=8, rope=RopeSpec(1e3, 16)), LayerSpec(rope=RopeSpec(1e6, 16)), LayerSpec(rope=None)
    assert factor(near, far, near) == factor(far, none) == factor(far) == 1e6
    assert factor(near, none) == 1e3 and factor(none) is None


def test_a_stamp_tells_shapes_apart_but_not_dtypes() -> None:
    def mark(**changes: Any) -> str:
        return stamp.fingerprint(FAMILY.spec(json.loads(json.dumps({**CONFIG, **changes}))))

    assert mark() == mark(torch_dtype="bfloat16") != mark(hidden_size=64)
    assert mark(rope_theta=5000.0) != mark() != mark(num_hidden_layers=3)


def test_a_stamp_stays_what_it_was_when_specs_learn_more() -> None:
    """Files of heads that were trained before keep their target."""
    layers = (LayerSpec(rope=RopeSpec(dim=4)), LayerSpec(rope=None, window=3, experts=ExpertsSpec(8, 2, 12, True)))
    spec = ModelSpec(11, 6, 2, 1, 4, 10, layers, 64)
    assert stamp.fingerprint(spec) == "4b2d819a6bc16d2532d3cbf276fd1aff"
    shared = replace(layers[1], experts=ExpertsSpec(8, 2, 12, True, shared_size=5))
    assert len({stamp.fingerprint(each) for each in (
        spec, replace(spec, layers=(layers[0], shared)), replace(spec, latent=LatentSpec(3, None, 2, 4)), replace(spec, sinks=True),
        replace(spec, activation=ClampedSpec(1.0, 2.0)))}) == 5
