"""Ceilings follow from a model's own bytes and operations."""
from math import prod

import pytest

from penstock.compute.models.decoder import build
from penstock.compute.models.families.llama import FAMILY
from penstock.compute.price import Price, Storage
from penstock.core.hardware import Hardware
from penstock.serve.engine.ceilings import ceilings
from tests.tiny import CONFIG

SPEC = FAMILY.spec(CONFIG)
PROGRAM = build(SPEC, FAMILY.names)
WEIGHTS = 2 * (SPEC.num_parameters() + SPEC.hidden_size)  # a row of the embeddings beside all of them as the head
PRICE = Price(PROGRAM, Storage(activation=2, kv=2, weights={name: 2 * prod(each.shape) for name, each in PROGRAM.weights.items()}))
MATRICES = SPEC.num_parameters() - SPEC.hidden_size * (2 * SPEC.num_layers + 1)  # without norms; the embedding is the head as well


def test_decode_is_bound_by_reading_and_prefill_by_arithmetic() -> None:
    found = ceilings(PRICE, Hardware("box", {1: 1e9}, {"bf16": 1e10}, ("others ran",)), "bf16", max_len=64, product_format="bf16")
    assert found.doubts == ("others ran",)
    decode_bytes = WEIGHTS + 2 * SPEC.kv_bytes_per_token()  # one token written, one read
    assert found.decode_tokens_per_s == pytest.approx(1e9 / decode_bytes)
    head = SPEC.vocab_size * SPEC.hidden_size
    operations = 2 * (64 * (MATRICES - head) + head)
    assert found.prompt_tokens == 64 and found.prefill_tokens_per_s < 64 * 1e10 / operations
    assert found.prefill_tokens_per_s == pytest.approx(64 * 1e10 / operations, rel=0.35)  # norms, rope and attention come on top


def test_without_a_rate_reading_binds_alone() -> None:
    slow, fast = (ceilings(PRICE, Hardware("box", {1: rate}, {}), "bf16", 1 << 20, "bf16") for rate in (1e9, 2e9))
    assert slow.prompt_tokens == 512 and fast.prefill_tokens_per_s == pytest.approx(2 * slow.prefill_tokens_per_s)
    assert slow.doubts == ("the rate of bf16 is not among them, so that reading alone binds",)


def test_a_slow_machine_computes_even_decode_late() -> None:
    few = ceilings(PRICE, Hardware("box", {1: 1e15}, {"fp32": 1e6}), "fp32", 64, "fp32")
    more = ceilings(PRICE, Hardware("box", {1: 1e15}, {"fp32": 3e6}), "fp32", 64, "fp32")
    assert more.decode_tokens_per_s == pytest.approx(3 * few.decode_tokens_per_s)


def test_products_that_are_slower_than_their_instructions() -> None:
    """Nothing is told where they were not measured, and never more than the ceiling."""
    rates = {"int8": {256: {1: 1e12, 256: 1e12}, 1024: {1: 1e6, 64: 5e6, 256: 5e6}}}
    hardware = Hardware("box", {1: 1e15}, {"int8": 1e7}, products=rates)
    slow, unknown = (ceilings(PRICE, hardware, "int8", 64, form) for form in ("int8", "int4"))
    assert slow.prefill_tokens_per_s == pytest.approx(2 * (slow.product_tokens_per_s or 0)) and unknown.product_tokens_per_s is None
    rounded = ceilings(PRICE, hardware, "int8", 64, "int8:activations=int8")  # not measured: no slower than with rows as they are
    assert rounded.product_tokens_per_s == slow.product_tokens_per_s
    fast = ceilings(PRICE, Hardware("box", {1: 1e15}, {"int8": 1e7}, products={"int8": {256: {1: 1e12}}}), "int8", 64, "int8")
    assert fast.product_tokens_per_s == fast.prefill_tokens_per_s
