"""One op at a time: a program around it, its data, and what an oracle says of one sequence of tokens."""
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.compute.program import KVSpec, Program
from penstock.core.modelspec import ClampedSpec
from tests.contract import oracle
from tests.contract.sketch import Sketch

Array = Any
VOCAB = 96  # rows of data
CLAMPED = ClampedSpec(alpha=1.702, limit=2.0)


@dataclass(frozen=True, eq=False)
class Case:
    """`expect` takes the weights and the tokens of one sequence, from its beginning, and returns each output in float64."""

    name: str
    program: Program
    weights: Mapping[str, Array]
    expect: Callable[[Mapping[str, Array], Array], dict[str, Array]]
    exact: tuple[str, ...] = ()  # outputs in which no rounding is allowed: choices


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def embed() -> Iterator[Case]:
    for width, scale in ((1, 1.0), (3, 1.0), (64, 8.0), (129, 0.125)):
        sketch = Sketch()
        table = sketch.weight("table", normal(width, VOCAB, width))
        out = sketch.op("embed", ("tokens",), "x", (table,), scale=scale)
        yield Case(f"{width} wide, times {scale}", sketch.program(out=out), sketch.weights,
                   lambda w, t, scale=scale: {"out": oracle.wide(w["table"])[t] * scale})


def rms_norm() -> Iterator[Case]:
    for width, *numbers in ((1, 1e-6, 0.0, 1.0), (7, 1e-5, 0.0, 0.3), (64, 1e-6, 1.0, 0.125), (333, 0.1, 0.0, 1.0)):
        attrs = dict(zip(("eps", "offset", "scale"), numbers, strict=True))
        sketch = Sketch()
        x = sketch.table("x", normal(1, VOCAB, width) * 3)
        out = sketch.op("rms_norm", (x,), "y", (sketch.weight("w", normal(2, width)),), **attrs)
        yield Case(f"{width} wide, {attrs}", sketch.program(out=out), sketch.weights,
                   lambda w, t, attrs=attrs: {"out": oracle.rms_norm(oracle.wide(w["x_table"])[t], w["w"], **attrs)})
    sketch = Sketch()
    sketch.op("split_heads", (sketch.table("x", normal(3, VOCAB, 5 * 24)),), ("q", "k"), heads=(3, 2), head_dim=24)
    weights = sketch.weight("w", normal(4, 24)), sketch.weight("u", normal(5, 24))
    for name, w in zip(("q", "k"), weights, strict=True):
        sketch.op("rms_norm", (name,), name + "_normed", (w,), eps=1e-6, offset=0.0, scale=1.0)
    yield Case("over each head", sketch.program(q="q_normed", k="k_normed"), sketch.weights, lambda w, t: {
        name: oracle.rms_norm(oracle.wide(w["x_table"])[t].reshape(-1, 5, 24)[:, part], w[weight], 1e-6, 0.0, 1.0)
        for name, part, weight in (("q", slice(0, 3), "w"), ("k", slice(3, 5), "u"))})


def linear() -> Iterator[Case]:
    shapes = ((1, 1), (3, 1), (1, 5), (5, 7), (15, 8), (33, 16), (64, 48), (80, 127), (129, 33), (1027, 9), (256, 300))
    for inner, out in shapes:
        for with_bias in (False, True):
            sketch = Sketch()
            x = sketch.table("x", normal(1, VOCAB, inner))
            names = [sketch.weight("w", normal(2, out, inner) * inner**-0.5)]
            if with_bias:
                names.append(sketch.weight("b", normal(3, out)))
            y = sketch.op("linear", (x,), "y", tuple(names))
            logits = sketch.op("linear", (sketch.op("gather", (x,), "rows"),), "z", tuple(names))

            def expect(w: Mapping[str, Array], t: Array) -> dict[str, Array]:
                y = oracle.linear(oracle.wide(w["x_table"])[t], w["w"], w.get("b"))
                return {"out": y, "logits": y}

            yield Case(f"{inner} to {out}{' with bias' * with_bias}", sketch.program(out=y, logits=logits), sketch.weights, expect)


def split_heads() -> Iterator[Case]:
    for heads, dim in (((1,), 16), ((4, 2, 2), 3), ((8, 1, 1), 20)):
        sketch = Sketch()
        x = sketch.table("x", normal(1, VOCAB, sum(heads) * dim))
        parts = tuple(f"part{i}" for i in range(len(heads)))
        sketch.op("split_heads", (x,), parts, heads=heads, head_dim=dim)

        def expect(w: Mapping[str, Array], t: Array, heads: tuple[int, ...] = heads, dim: int = dim) -> dict[str, Array]:
            x = oracle.wide(w["x_table"])[t].reshape(len(t), -1, dim)
            cuts = np.cumsum([0, *heads])
            return {f"part{i}": x[:, cuts[i] : cuts[i + 1]] for i in range(len(heads))}

        yield Case(f"{heads} heads of {dim}", sketch.program(**dict(zip(parts, parts, strict=True))), sketch.weights, expect)


def rope() -> Iterator[Case]:
    for heads, dim, rotated, theta, scale in ((1, 16, 16, 1e4, 1.0), (3, 24, 8, 1e4, 1.0), (2, 80, 32, 5e5, 1.2), (4, 128, 128, 1e6, 1.0)):
        sketch = Sketch()
        inv_freq = tuple(float(f) for f in theta ** (-np.arange(0, rotated, 2) / rotated))
        x = sketch.op("split_heads", (sketch.table("x", normal(1, VOCAB, heads * dim)),), ("split",), heads=(heads,), head_dim=dim)
        out = sketch.op("rope", (x, "positions"), "y", inv_freq=inv_freq, scale=scale)
        yield Case(
            f"{rotated} of {dim}, {heads} heads, scaled {scale}", sketch.program(out=out), sketch.weights,
            lambda w, t, dim=dim, f=inv_freq, scale=scale: {
                "out": oracle.rope(oracle.wide(w["x_table"])[t].reshape(len(t), -1, dim), np.arange(len(t)), np.array(f), scale)})


def act_mul() -> Iterator[Case]:
    for activation in (*oracle.ACTIVATIONS, CLAMPED):
        for half in (1, 17, 64):
            sketch = Sketch()
            out = sketch.op("act_mul", (sketch.table("x", normal(half, VOCAB, 2 * half) * 4),), "y", activation=activation)
            yield Case(f"{activation}, {half} wide", sketch.program(out=out), sketch.weights,
                       lambda w, t, activation=activation: {"out": oracle.act_mul(oracle.wide(w["x_table"])[t], activation)})


def add() -> Iterator[Case]:
    for width in (1, 65):
        sketch = Sketch()
        a, b = sketch.table("a", normal(1, VOCAB, width)), sketch.table("b", normal(2, VOCAB, width))
        yield Case(f"{width} wide", sketch.program(out=sketch.op("add", (a, b), "y")), sketch.weights,
                   lambda w, t: {"out": oracle.wide(w["a_table"])[t] + oracle.wide(w["b_table"])[t]})


def gather() -> Iterator[Case]:
    for width in (1, 40):
        sketch = Sketch()
        logits = sketch.op("gather", (sketch.table("x", normal(1, VOCAB, width)),), "rows")
        yield Case(f"{width} wide", sketch.program(logits=logits), sketch.weights, lambda w, t: {"logits": oracle.wide(w["x_table"])[t]})


def softcap() -> Iterator[Case]:
    for cap in (1.0, 30.0, 50.0):
        sketch = Sketch()
        x = sketch.table("x", normal(1, VOCAB, 33) * 40)
        logits = sketch.op("softcap", (sketch.op("gather", (x,), "rows"),), "capped", cap=cap)
        out = sketch.op("softcap", (x,), "y", cap=cap)

        def expect(w: Mapping[str, Array], t: Array, cap: float = cap) -> dict[str, Array]:
            y = oracle.softcap(oracle.wide(w["x_table"])[t], cap)
            return {"out": y, "logits": y}

        yield Case(f"at {cap}", sketch.program(out=out, logits=logits), sketch.weights, expect)


def moe_route() -> Iterator[Case]:
    """Scores are multiples of 1/4, exact in every dtype; some are equal."""
    shapes = ((1, 1, True), (4, 2, True), (8, 8, True), (60, 4, False), (8, 1, False))
    for (experts, active, renormalize), with_bias in ((shape, with_bias) for shape in shapes for with_bias in (False, True)):
        sketch = Sketch()
        scores = np.random.default_rng(experts).integers(-12, 12, (VOCAB, experts)) / 4
        scores[5] = 0
        x = sketch.table("x", scores)
        names = [sketch.weight("router", np.eye(experts))]
        if with_bias:
            names.append(sketch.weight("bias", np.random.default_rng(active).integers(-6, 6, experts) / 4))
        sketch.op("moe_route", (x,), ("weights", "ids"), tuple(names), num_active=active, renormalize=renormalize)

        def expect(w: Mapping[str, Array], t: Array, active: int = active, renormalize: bool = renormalize) -> dict[str, Array]:
            scores = oracle.wide(w["x_table"])[t] + w.get("bias", 0)
            return dict(zip(("weights", "ids"), oracle.moe_route(scores, active, renormalize), strict=True))

        told = f"{active} of {experts}{', renormalized' * renormalize}{', biased' * with_bias}"
        yield Case(told, sketch.program(weights="weights", ids="ids"), sketch.weights, expect, exact=("ids",))


def moe_experts() -> Iterator[Case]:
    shapes = ((4, 2, 8, 12, None), (8, 2, 33, 7, None), (4, 4, 16, 16, None), (6, 1, 16, 20, 3), (3, 2, 70, 75, None))
    for (experts, active, hidden, inner, liked), with_bias in ((shape, with_bias) for shape in shapes for with_bias in (False, True)):
        sketch = Sketch()
        scores = np.random.default_rng(experts).permuted(np.tile(np.arange(experts) / 2, (VOCAB, 1)), axis=1)
        if liked is not None:  # one expert has all rows, and the others have none
            scores[:, liked] = experts
        x = sketch.table("x", normal(1, VOCAB, hidden))
        router = sketch.weight("router", np.eye(experts))
        sketch.op("moe_route", (sketch.table("s", scores),), ("weights", "ids"), (router,), num_active=active, renormalize=True)
        names = [sketch.weight("gate_up", normal(2, experts, 2 * inner, hidden) * 0.4)]
        names.append(sketch.weight("down", normal(3, experts, hidden, inner) * 0.4))
        if with_bias:
            names += [sketch.weight("gate_up_bias", normal(4, experts, 2 * inner)), sketch.weight("down_bias", normal(5, experts, hidden))]
        activation = CLAMPED if with_bias else "silu"
        out = sketch.op("moe_experts", (x, "weights", "ids"), "y", tuple(names), activation=activation)

        def expect(w: Mapping[str, Array], t: Array, active: int = active, names: list[str] = names, activation: Any = activation,
                   ) -> dict[str, Array]:
            routed = oracle.moe_route(oracle.wide(w["s_table"])[t], active, True)
            return {"out": oracle.moe_experts(oracle.wide(w["x_table"])[t], routed, tuple(w[name] for name in names), activation)}

        told = f"{active} of {experts} over {hidden}{', one liked by all' * (liked is not None)}{', biased and clamped' * with_bias}"
        yield Case(told, sketch.program(out=out), sketch.weights, expect)


@dataclass(frozen=True)
class Heads:
    """The shape of an attention op."""

    heads: int
    kv_heads: int
    dim: int
    window: int | None = None
    softcap: float | None = None
    sinks: float | None = None  # the first head's; the second has one less, and so on

    def __str__(self) -> str:
        extras = f", window {self.window}" * (self.window is not None) + f", capped at {self.softcap}" * (self.softcap is not None)
        extras += f", sinks from {self.sinks}" * (self.sinks is not None)
        return f"{self.heads} over {self.kv_heads} heads of {self.dim}{extras}"


def attending(how: Heads) -> Case:
    """q, k and v are parts of one row of data; two KV layers, the second of which holds k and v exchanged."""
    sketch = Sketch(KVSpec(2, how.kv_heads, how.dim))
    heads = (how.heads, how.kv_heads, how.kv_heads)
    data = normal(how.heads, VOCAB, sum(heads) * how.dim)
    sketch.op("split_heads", (sketch.table("qkv", data),), ("q", "k", "v"), heads=heads, head_dim=how.dim)
    scale = 1.5 * how.dim**-0.5
    for layer, kv in enumerate((("k", "v"), ("v", "k"))):
        sketch.op("kv_write", kv, (), layer=layer)
    sinks = () if how.sinks is None else (sketch.weight("sinks", how.sinks - np.arange(how.heads)),)
    for layer, name in enumerate(("first", "second")):
        sketch.op("attention", ("q",), name, sinks, layer=layer, scale=scale, window=how.window, softcap=how.softcap)

    def expect(w: Mapping[str, Array], t: Array) -> dict[str, Array]:
        q, k, v = np.split(oracle.wide(w["qkv_table"])[t].reshape(len(t), -1, how.dim), np.cumsum(heads)[:-1], axis=1)
        return {name: oracle.attention((q, *kv), scale, how.window, how.softcap, w.get("sinks"))
                for name, kv in (("first", (k, v)), ("second", (v, k)))}

    return Case(str(how), sketch.program(first="first", second="second"), sketch.weights, expect)


def queries_apart() -> Case:
    """Queries are split from a table of their own before the keys and values that they meet are stored."""
    how = Heads(4, 2, 16)
    sketch = Sketch(KVSpec(1, how.kv_heads, how.dim))
    keys, queries = (sketch.table(name, normal(seed, VOCAB, 4 * how.dim)) for seed, name in enumerate(("kv", "q")))
    sketch.op("split_heads", (queries,), ("heads",), heads=(how.heads,), head_dim=how.dim)
    sketch.op("split_heads", (keys,), ("k", "v"), heads=(how.kv_heads, how.kv_heads), head_dim=how.dim)
    sketch.op("kv_write", ("k", "v"), (), layer=0)
    out = sketch.op("attention", ("heads",), "out", layer=0, scale=0.25, window=None, softcap=None)

    def expect(w: Mapping[str, Array], t: Array) -> dict[str, Array]:
        q, kv = (oracle.wide(w[f"{name}_table"])[t].reshape(len(t), -1, how.dim) for name in ("q", "kv"))
        return {"out": oracle.attention((q, *np.split(kv, 2, axis=1)), 0.25, None, None, None)}

    return Case("queries apart", sketch.program(out=out), sketch.weights, expect)


def attention() -> Iterator[Case]:
    yield queries_apart()
    for how in (
        Heads(1, 1, 16), Heads(2, 2, 32), Heads(4, 2, 64), Heads(3, 1, 80), Heads(8, 2, 16), Heads(8, 1, 128), Heads(2, 2, 256),
        Heads(6, 3, 5),
        Heads(4, 2, 16, window=1), Heads(4, 2, 16, window=5), Heads(2, 1, 16, window=130), Heads(2, 1, 16, window=1000),
        Heads(4, 4, 16, softcap=2.0), Heads(4, 1, 32, window=40, softcap=50.0),
        Heads(8, 2, 64, sinks=4.0), Heads(6, 3, 5, window=128, sinks=1.0), Heads(2, 1, 16, sinks=95.0), Heads(1, 1, 16, sinks=-95.0),
        Heads(4, 1, 32, window=3, softcap=5.0, sinks=3.0),
    ):
        yield attending(how)


CASES: dict[str, tuple[Case, ...]] = {
    make.__name__: tuple(make())
    for make in (embed, rms_norm, linear, split_heads, rope, act_mul, add, gather, softcap, moe_route, moe_experts, attention)
}
CASES["kv_write"] = CASES["attention"]  # seen through attention: two layers that hold the same, exchanged
