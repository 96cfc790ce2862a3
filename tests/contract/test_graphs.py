"""Graphs of random ops: whatever a backend takes together, moves or leaves out, every output has the numbers of the reference."""
from functools import cache
from typing import Any

import numpy as np
import pytest

from penstock.compute.program import KVSpec, Program
from tests.contract.cases import CLAMPED
from tests.contract.participants import ORACLE, PARTICIPANTS, Participant
from tests.contract.sketch import Sketch
from tests.contract.stories import Story, play

KV = KVSpec(num_layers=2, num_kv_heads=2, head_dim=8)
WIDTHS = (6, 16, 32, 48)  # no whole heads, and two, four and six
VOCAB, GRAPHS = 20, 40
STORY = Story((((0, 4), (1, 2)), ((1, 3), (0, 1)), ((0, 4),)), block_size=3)
TOKENS = [np.random.default_rng(9).integers(0, VOCAB, length) for length in STORY.lengths]


class Graph:
    """Appends ops to a sketch, each of buffers that are there. Some are read often, some by nobody."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.sketch = Sketch(KV)
        self.rows: list[tuple[str, int]] = []  # of all tokens: name, width
        self.wanted: list[tuple[str, int]] = []  # the same, of rows with logits
        self.heads: list[tuple[str, int]] = []  # name, number
        self.stored: list[int] = []  # KV layers
        self.made = 0

    def name(self) -> str:
        self.made += 1
        return f"b{self.made}"

    def any_of(self, given: list[Any]) -> Any:
        return given[-1] if self.rng.random() < 0.5 else given[self.rng.integers(len(given))]

    def weight(self, *shape: int) -> str:
        values = self.rng.standard_normal(shape)
        return self.sketch.weight(self.name(), values * shape[-1] ** -0.5 if len(shape) > 1 else 1 + 0.2 * values)

    def op(self, kind: str, inputs: tuple[str, ...], weights: tuple[str, ...] = (), **attrs: Any) -> str:
        return self.sketch.op(kind, inputs, self.name(), weights, **attrs)

    def table(self) -> None:
        width = int(self.rng.choice(WIDTHS))
        self.rows.append((self.sketch.table(self.name(), self.rng.standard_normal((VOCAB, width))), width))

    def of_rows(self) -> None:
        """One of the ops that take rows and give rows."""
        pool = self.wanted if self.wanted and self.rng.random() < 0.3 else self.rows
        x, width = self.any_of(pool)
        match self.rng.choice(("linear", "linear", "norm", "add", "act_mul", "softcap")):
            case "linear":
                into = int(self.rng.choice(WIDTHS))
                pool.append((self.op("linear", (x,), (self.weight(into, width), self.weight(into))[: self.rng.integers(1, 3)]), into))
            case "norm":
                attrs = {"offset": float(self.rng.integers(2)), "scale": (1.0, 0.3)[self.rng.integers(2)]}
                pool.append((self.op("rms_norm", (x,), (self.weight(width),), eps=0.01, **attrs), width))
            case "add":
                other, _ = self.any_of([each for each in pool if each[1] == width])
                pool.append((self.op("add", (x, other)), width))
            case "act_mul" if width % 2 == 0:
                pool.append((self.op("act_mul", (x,), activation=("silu", "gelu_tanh", CLAMPED)[self.rng.integers(3)]), width // 2))
            case "softcap":
                pool.append((self.op("softcap", (x,), cap=2.0), width))

    def gather(self) -> None:
        x, width = self.any_of(self.rows)
        self.wanted.append((self.op("gather", (x,)), width))

    def split(self) -> None:
        if whole := [(x, width // KV.head_dim) for x, width in self.rows if width % KV.head_dim == 0]:
            x, heads = self.any_of(whole)
            parts = (2,) * (heads // 2) if heads in (4, 6) and self.rng.random() < 0.7 else (heads,)
            names = tuple(self.name() for _ in parts)
            self.sketch.op("split_heads", (x,), names, heads=parts, head_dim=KV.head_dim)
            self.heads += zip(names, parts, strict=True)

    def of_heads(self) -> None:
        if self.heads:
            x, heads = self.any_of(self.heads)
            if self.rng.random() < 0.5:
                self.heads.append((self.op("rope", (x, "positions"), inv_freq=(1.0, 0.1), scale=1.0), heads))
            else:
                self.heads.append((self.op("rms_norm", (x,), (self.weight(KV.head_dim),), eps=1e-6, offset=0.0, scale=1.0), heads))

    def store(self) -> None:
        if pairs := [x for x, heads in self.heads if heads == KV.num_kv_heads]:
            self.stored.append(int(self.rng.integers(KV.num_layers)))
            self.sketch.op("kv_write", (self.any_of(pairs), self.any_of(pairs)), (), layer=self.stored[-1])

    def attend(self) -> None:
        if self.stored and (asking := [each for each in self.heads if each[1] % KV.num_kv_heads == 0]):
            (x, heads), window = self.any_of(asking), (None, 3)[self.rng.integers(2)]
            sinks = (self.weight(heads),)[: self.rng.integers(2)]
            out = self.op("attention", (x,), sinks, layer=self.any_of(self.stored), scale=0.3, window=window, softcap=None)
            self.rows.append((out, heads * KV.head_dim))

    def experts(self) -> None:
        (x, width), (fed, inner), chosen = self.any_of(self.rows), self.any_of(self.rows), (self.name(), self.name())
        self.sketch.op("moe_route", (x,), chosen, (self.weight(3, width),), num_active=2, renormalize=True)
        matrices = self.weight(3, 40, inner), self.weight(3, inner, 20)
        self.rows.append((self.op("moe_experts", (fed, *chosen), matrices, activation="silu"), inner))

    def program(self) -> Program:
        self.sketch.table("unread", np.ones((VOCAB, 5)))
        self.table()
        self.gather()
        steps = [*[self.of_rows] * 8, *[self.attend] * 3, *[self.split] * 2, *[self.of_heads] * 2, self.store, self.gather, self.table,
                 self.experts]
        for _ in range(self.rng.integers(3, 25)):
            steps[self.rng.integers(len(steps))]()
        every = [name for name, _ in self.rows + self.heads]
        outputs = {name: name for name in {self.rows[-1][0], *self.rng.choice(every, 2).tolist()}}
        return self.sketch.program(**outputs, logits=self.any_of(self.wanted)[0])


@cache
def graph(seed: int) -> tuple[Program, dict[str, Any], dict[str, list[Any]]]:
    """(the program, its weights, what the reference makes of them)"""
    made = Graph(seed)
    program = made.program()
    return program, made.sketch.weights, play(ORACLE.make(), program, made.sketch.weights, STORY, TOKENS)


@pytest.mark.parametrize("participant", [each for each in PARTICIPANTS if each.dtype == "float32" and each != ORACLE], ids=str)
def test_random_graphs(participant: Participant) -> None:
    for seed in range(GRAPHS):
        program, weights, expected = graph(seed)
        found = play(participant.make(), program, weights, STORY, TOKENS)
        for name, per_seq in expected.items():
            for ours, theirs in zip(found[name], per_seq, strict=True):
                most = max(1.0, abs(theirs).max())
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-3 * most, err_msg=f"{seed}: {name}\n{program}")


@pytest.mark.parametrize("participant", PARTICIPANTS, ids=str)
def test_logits_that_a_product_reads_as_well(participant: Participant) -> None:
    """They are a norm, of the kind that is otherwise made only where it is asked for."""
    sketch = Sketch()
    rows = sketch.op("gather", (sketch.table("x", np.full((VOCAB, 16), 4.0)),), "rows")
    normed = sketch.op("rms_norm", (rows,), "normed", (sketch.weight("w", np.ones(16)),), eps=0.0, offset=0.0, scale=1.0)
    sketch.op("linear", (normed,), "product", (sketch.weight("m", np.eye(16)),))
    for logits in play(participant.make(), sketch.program(logits=normed), sketch.weights, STORY, TOKENS)["logits"]:
        np.testing.assert_allclose(logits, 1, rtol=participant.tolerance)
