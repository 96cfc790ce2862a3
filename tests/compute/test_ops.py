from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.compute.ops import OPS, check, numel
from penstock.compute.program import KVSpec, Op, Program, WeightSpec
from penstock.core.work import StepWork
from tests.contract.decoders import SPECS, decoder
from tests.contract.sketch import Sketch


def program(*ops: Op, buffers: dict[str, Any] | None = None, weights: dict[str, tuple[int, ...]] | None = None, **rest: Any) -> Program:
    """Two embeddings x [T, 8] and y [T, 6], then `ops`."""
    shapes = {"tokens": ("T",), "positions": ("T",), "x": ("T", 8), "y": ("T", 6), "q": ("T", 2, 4), **(buffers or {})}
    sizes = {"table": (5, 8), "other": (5, 6), "square": (8, 8), "eight": (8,), **(weights or {})}
    begin = (
        Op("embed", ("tokens",), ("x",), ("table",), {"scale": 1.0}), Op("embed", ("tokens",), ("y",), ("other",), {"scale": 1.0}),
        Op("split_heads", ("x",), ("q",), (), {"heads": (2,), "head_dim": 4}))
    specs = {name: WeightSpec(name, shape) for name, shape in sizes.items()}
    return Program((*begin, *ops), shapes, specs, rest.pop("kv", KVSpec(2, 2, 4)), 5, 16, **rest)


NORM = {"eps": 1e-6, "offset": 0.0, "scale": 1.0}
ATTEND = {"layer": 0, "scale": 1.0, "window": None, "softcap": None}
LATENT = {"layer": 0, "inv_freq": (1.0,), "rope_scale": 1.0}
STORED = {"eps": 1e-6, "offset": 0.0}
WRITE = Op("kv_write", ("q", "q"), (), (), {"layer": 0})
THREE = KVSpec(1, 3, 4)
MALFORMED = {
    "unknown op 'convolve'; known: embed": program(Op("convolve", ("x",), ("z",))),
    "rms_norm takes attributes .'eps', 'offset', 'scale'., not .'eps'.": program(Op("rms_norm", ("x",), ("z",), ("eight",), {"eps": 1e-6})),
    "add takes attributes .., not .'bias'.": program(Op("add", ("x", "x"), ("z",), (), {"bias": 1})),
    "softcap reads 'z' before it is written": program(Op("softcap", ("z",), ("z",), (), {"cap": 1.0})),
    "linear takes the weight 'missing', which the program does not have": program(Op("linear", ("x",), ("z",), ("missing",))),
    "linear takes 1 inputs and 1 or 2 weights, not 1 and 0": program(Op("linear", ("x",), ("z",))),
    "add takes 2 inputs and 0 weights, not 1 and 0": program(Op("add", ("x",), ("z",))),
    "linear of y .* with square .*: 6 is not 8": program(Op("linear", ("y",), ("z",), ("square",))),
    "linear takes table of shape .8,., not .5, 8.": program(Op("linear", ("x",), ("z",), ("square", "table"))),
    "rms_norm takes eight of shape .6,., not .8,.": program(Op("rms_norm", ("y",), ("z",), ("eight",), NORM)),
    "add takes y of shape .'T', 8., not .'T', 6.": program(Op("add", ("x", "y"), ("z",))),
    "split of y .* into .2,. heads of 4: 6 is not 8": program(Op("split_heads", ("y",), ("z",), (), {"heads": (2,), "head_dim": 4})),
    "split_heads writes 2 buffers, not 1": program(Op("split_heads", ("x",), ("z",), (), {"heads": (1, 1), "head_dim": 4})),
    "act_mul halves z .'T', 7.: 7 is odd": program(
        Op("linear", ("x",), ("z",), ("seven",)), Op("act_mul", ("z",), ("u",), (), {"activation": "silu"}),
        buffers={"z": ("T", 7)}, weights={"seven": (7, 8)}),
    "rope of 6 dimensions in heads of 4": program(Op("rope", ("q", "positions"), ("z",), (), {"inv_freq": (1.0,) * 3, "scale": 1.0})),
    "rope takes y of shape .'T',., not .'T', 6.": program(Op("rope", ("q", "y"), ("z",), (), {"inv_freq": (1.0,), "scale": 1.0})),
    "kv_write of 2 heads of 4 into layer 2 of": program(Op("kv_write", ("q", "q"), (), (), {"layer": 2})),
    "kv_write of 2 heads of 4 into layer 0 of .*num_kv_heads=3": program(WRITE, kv=THREE),
    "attention reads KV layer 1 before it is written": program(WRITE, Op("attention", ("q",), ("z",), (), {**ATTEND, "layer": 1})),
    "attention of 1 heads of 4 over 2 heads of 4": program(
        WRITE, Op("embed", ("tokens",), ("four",), ("narrow",), {"scale": 1.0}),
        Op("split_heads", ("four",), ("one",), (), {"heads": (1,), "head_dim": 4}), Op("attention", ("one",), ("z",), (), ATTEND),
        buffers={"four": ("T", 4), "one": ("T", 1, 4)}, weights={"narrow": (5, 4)}),
    "moe_route chooses 9 of 8 experts": program(Op("moe_route", ("x",), ("w", "i"), ("square",), {"num_active": 9, "renormalize": True})),
    "moe_experts takes gate_up of shape .3, 12, 8., not .3, 6, 8.": program(
        Op("moe_route", ("x",), ("w", "i"), ("square",), {"num_active": 2, "renormalize": True}),
        Op("moe_experts", ("x", "w", "i"), ("z",), ("gate_up", "down"), {"activation": "silu"}),
        buffers={"w": ("T", 2), "i": ("T", 2)}, weights={"gate_up": (3, 6, 8), "down": (3, 8, 6)}),
    "latent_write takes x of shape .'T', 10., not .'T', 8.": program(
        Op("latent_write", ("x", "positions"), (), ("eight",), LATENT | STORED)),
    "gate_rows takes eight of shape .1, 8., not .8,.": program(Op("gate_rows", ("x", "y"), ("z",), ("eight",))),
    "latent_write of 1 heads of 8 into layer 0 of .*head_dim=4": program(
        Op("latent_write", ("x", "positions"), (), ("six",), LATENT | STORED), weights={"six": (6,)}),
    "latent_attention reads KV layer 0 before it is written": program(
        Op("latent_attention", ("q", "positions"), ("z",), ("square",), LATENT | {"scale": 1.0})),
    "latent_attention with other .5, 6.: 5 rows are not keys and values of 2 heads of 4": program(
        Op("latent_attention", ("q", "positions"), ("z",), ("other",), LATENT | {"scale": 1.0})),
    "add writes 'x', which is written already": program(Op("add", ("x", "x"), ("x",))),
    "add writes 'z' as .'T', 8., the program says .'T', 9.": program(Op("add", ("x", "x"), ("z",)), buffers={"z": ("T", 9)}),
    "add writes 'z' as .'T', 8., the program says None": program(Op("add", ("x", "x"), ("z",))),
    "the output 'logits' is 'z', which no op writes": program(outputs={"logits": "z"}),
}


@pytest.mark.parametrize("message", MALFORMED)
def test_malformed_programs_are_refused(message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(MALFORMED[message])


def test_sound_programs_are_taken() -> None:
    check(program(WRITE, Op("attention", ("q",), ("z",), (), ATTEND), buffers={"z": ("T", 8)}, outputs={"logits": "z"}))
    for spec in SPECS.values():
        check(decoder(spec)[0])


def test_a_decoder_that_loses_an_op_is_refused() -> None:
    whole, _ = decoder(SPECS["grouped queries"])
    for i in range(len(whole.ops)):
        with pytest.raises(ValueError):
            check(replace(whole, ops=whole.ops[:i] + whole.ops[i + 1 :]))


def test_sizes_of_symbolic_shapes() -> None:
    work = StepWork(((3, 10), (4, 4)), num_logits=2)
    assert [numel(shape, work) for shape in (("T",), ("T", 2, 5), ("L", 10), (3, 4))] == [7, 70, 20, 12]


OPERATIONS = [("linear", 7 * 2 * 5 * 8), ("act_mul", 7 * 3 * 8), ("add", 7 * 8), ("softcap", 7 * 2 * 8)]


@pytest.mark.parametrize(("kind", "operations"), OPERATIONS)
def test_operations_of_an_op(kind: str, operations: int) -> None:
    sketch = Sketch()
    x = sketch.table("x", np.zeros((4, 8)))
    weights = (sketch.weight("w", np.zeros((5, 8))), sketch.weight("b", np.zeros(5))) if kind == "linear" else ()
    attrs = {"act_mul": {"activation": "silu"}, "softcap": {"cap": 1.0}}.get(kind, {})
    sketch.op(kind, (x,) * OPS[kind].num_inputs, "y", weights, **attrs)
    made = sketch.program(out="y")
    op = next(op for op in made.ops if op.kind == kind)
    assert OPS[kind].operations(op, made, StepWork(((7, 9),))) == operations
