"""The roof that limits put over a model's steps, where its weights' formats were measured."""
from dataclasses import replace

import pytest

from penstock.core.hardware import Hardware
from penstock.core.work import StepWork
from penstock.serve.engine import build
from penstock.study.explain.roof import Roof
from penstock.study.plan.model import Stored, weight_format
from penstock.study.plan.request import model_of

PROMPT = StepWork(((512, 512),), 1)


def stored(form: str) -> Stored:
    """Whose matrices are codes in such a format."""
    found = model_of("brook").stored(weight_format("int8", build.parse_quant), "bfloat16")
    return replace(found, numbers=replace(found.numbers, forms=dict.fromkeys(found.numbers.coded, form)))


def roof(form: str, **rates: float) -> Roof:
    products = {name.replace("_", " "): {256: {256: rate}} for name, rate in rates.items()}
    machine = Hardware("a machine", {1 << 30: 1e13}, {"fp32": 1e12, "bf16": 1e12}, products=products)
    return Roof(stored(form), machine, "bf16", "bf16")


def seconds(form: str, **rates: float) -> float:
    return roof(form, **rates).seconds(PROMPT)


def test_codes_by_group_are_not_as_fast_as_those_by_row() -> None:
    assert seconds("int8 by 32", int8=8e11, int8_by_32=2e11) > 2 * seconds("int8", int8=8e11, int8_by_32=2e11)


def test_formats_that_were_not_measured_are_not_guessed() -> None:
    assert roof("int8 by 32", int8=8e11).lacking == ("int8 by 32",) and not roof("int8", int8=8e11).lacking
    assert not roof("int8 by 32").lacking and seconds("int8 by 32") > 0  # where no products were, none are told apart


def test_keys_and_values_push_weights_out_of_a_cache() -> None:
    """All that a step reads, and the host, passes through it before a weight is read again."""
    machine = Hardware("a machine", {16 << 20: 2e11, 64 << 20: 5e10}, {"fp32": 1e12, "bf16": 1e12})
    one, held = StepWork(((1, 1),), 1), stored("int8")

    def seconds(beside: float) -> float:
        return Roof(held, machine, "bf16", "bf16", beside).seconds(one)

    assert held.weight_bytes < 16e6 and seconds(4e6) == pytest.approx(seconds(0.0))
    assert seconds(64e6) == pytest.approx(4 * seconds(0.0), rel=0.01)
    assert 1.5 < seconds((32 << 20) - held.weight_bytes) / seconds(0.0) < 2.5
