import pytest
from versus.contest import Roof
from versus.points import Point
from versus.shapes import open_shape

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
