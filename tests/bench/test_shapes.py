from dataclasses import replace
from math import prod

import pytest
from versus.contest import Roof
from versus.points import Point
from versus.shapes import Shape, open_shape

from penstock.compute.models.decoder import build
from penstock.compute.price import Price, Storage
from penstock.core.modelspec import ExpertsSpec, ModelSpec
from penstock.core.work import StepWork
from tests.contract.decoders import PLAIN

ROOF = Roof(1e9, {"bf16": 1e12})


@pytest.fixture(scope="module")
def brook():
    return open_shape("brook", None)


def test_decode_is_bound_by_weights_keys_and_values(brook):
    weights, per_token = brook.spec.num_active_parameters() * 2, brook.kv_bytes_per_token
    limit = brook.limit(Point("decode", 512), 16, "bf16", ROOF)
    # a step reads 512 + 64 tokens on average, and writes its own
    assert 1e9 / limit == pytest.approx(weights + 576 * per_token, rel=0.01)
    assert brook.limit(Point("decode", 0), 4, "bf16", ROOF) > 2 * brook.limit(Point("decode", 0), 16, "bf16", ROOF)


def test_prefill_is_bound_by_operations(brook):
    slow = Roof(1e12, {"bf16": 1e9, "int8": 2e9})
    limit = brook.limit(Point("prefill", 512), 16, "bf16", slow)
    assert brook.limit(Point("prefill", 512), 8, "int8", slow) == pytest.approx(2 * limit)
    head = brook.spec.vocab_size * brook.spec.hidden_size  # on one row alone
    assert 1e9 / limit > 2 * (brook.spec.num_active_parameters() - head)


def test_serving_is_bound_by_operations_or_by_the_steps_of_one_answer_or_by_arrivals(brook):
    point = Point("streams", 4)
    computing = Roof(1e15, {"bf16": 1e9})
    assert brook.limit(point, 16, "bf16", computing) == pytest.approx(4 * 64 / (brook.operations(point) / 1e9))
    reading = Roof(1e6, {"bf16": 1e15})
    assert brook.limit(point, 16, "bf16", reading) == pytest.approx(4 * 64 / (64 * brook.weight_bytes(16) / 1e6))
    late = Point("mixed", 4, gap_s=1000.0)
    assert brook.limit(late, 16, "bf16", Roof(1e15, {"bf16": 1e15})) < 1


def test_a_rate_that_cannot_be_measured_bounds_nothing(brook):
    assert brook.limit(Point("decode", 0), 16, "fp8", ROOF) == pytest.approx(brook.limit(Point("decode", 0), 16, "bf16", ROOF))


def test_contexts_beyond_the_model_are_not_held(brook):
    assert brook.holds(Point("decode", 512)) and not brook.holds(Point("decode", 2048))


@pytest.mark.parametrize("spec", [
    replace(PLAIN, tied_embeddings=True),
    PLAIN,
    replace(PLAIN, layers=tuple(replace(layer, experts=ExpertsSpec(128, 8, 24, True)) for layer in PLAIN.layers)),
], ids=["tied", "untied", "mixture of experts"])
def test_a_step_of_the_engine_is_priced_alike(brook: Shape, spec: ModelSpec) -> None:
    """The engine's price of a decoding step counts, from the program, what is counted here from the spec, and a row of embeddings."""
    program = build(spec, brook.found.family.names)
    price = Price(program, Storage(activation=2, kv=2, weights={name: 2 * prod(each.shape) for name, each in program.weights.items()}))
    shape = Shape("made", "made", replace(brook.found, spec=spec))
    assert price.count(StepWork(((1, 9),), 1)).weight_bytes == shape.weight_bytes(16) + 2 * spec.hidden_size
