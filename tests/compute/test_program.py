import math

import pytest

from penstock.compute.backends.reference.backend import last_uses
from penstock.compute.program import Op
from penstock.core.modelspec import ModelSpec
from tests.contract.decoders import SPECS, decoder
from tests.contract.sketch import Sketch


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_program_has_the_parameters_of_its_model(spec: ModelSpec) -> None:
    program, weights = decoder(spec)
    assert program.num_parameters() == spec.num_parameters() == sum(math.prod(array.shape) for array in weights.values())


def test_a_program_can_be_read() -> None:
    sketch = Sketch()
    x = sketch.table("x", [[1.0, 2.0]])
    y = sketch.op("linear", (x,), "y", (sketch.weight("w", [[1.0, 1.0]]), sketch.weight("b", [1.0])))
    sketch.op("rope", (sketch.op("split_heads", (x,), "heads", heads=(1,), head_dim=2), "positions"), "turned", inv_freq=(1.0,), scale=0.5)
    assert str(sketch.program(out=y)).splitlines() == [
        "x = embed(tokens, x_table) scale=1.0",
        "y = linear(x, w, b)",
        "heads = split_heads(x) head_dim=2",
        "turned = rope(heads, positions) scale=0.5",
        "rows = gather(x)",
    ]


def test_what_stores_keys_is_seen_in_the_text() -> None:
    program, _ = decoder(SPECS["grouped queries"])
    assert "(kv) = kv_write(layers.1.k_rotated, layers.1.v) layer=1" in str(program)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_buffers_are_freed_after_their_last_reader(spec: ModelSpec) -> None:
    program, _ = decoder(spec)
    freed = last_uses(program)
    assert len(freed) == len(program.ops)
    everything = {name for op in program.ops for name in (*op.inputs, *op.outputs)}
    assert sorted(name for names in freed for name in names) == sorted(everything)
    for i, names in enumerate(freed):
        later = {name for op in program.ops[i + 1 :] for name in (*op.inputs, *op.outputs)}
        assert not set(names) & later
        assert set(names) <= {*program.ops[i].inputs, *program.ops[i].outputs}
    live, most = {"tokens", "positions"}, 0
    for op, names in zip(program.ops, freed, strict=True):
        live |= set(op.outputs)
        most = max(most, len(live))
        live -= set(names)
    assert not live and most <= 8


def test_an_op_has_no_attributes_unless_told() -> None:
    assert dict(Op("add", ("a", "b"), ("c",)).attrs) == {}
