"""The tree holds the likeliest combinations of what the heads guess, and each row is asked about its own state and token."""
import itertools
import random
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.contract import Batch, KVLayout, Outputs
from penstock.compute.decoding.propose.contract import Draftable, Drafts, MissingHeadsError
from penstock.compute.decoding.propose.medusa import Medusa, best_tree
from penstock.compute.decoding.sampler import Sampler
from penstock.core.errors import UsageError

Array = Any


def combinations(heads: list[list[tuple[int, float]]]) -> dict[tuple[int, ...], float]:
    """Every beginning of every combination, with its log-probability."""
    found = {}
    for count in range(1, len(heads) + 1):
        for chosen in itertools.product(*heads[:count]):
            found[tuple(token for token, _ in chosen)] = sum(logprob for _, logprob in chosen)
    return found


def paths(drafts: Drafts) -> list[tuple[int, ...]]:
    assert drafts.parents is not None
    found: list[tuple[int, ...]] = []
    for token, parent in zip(drafts.tokens, drafts.parents, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_likeliest_combinations_are_offered(seed: int) -> None:
    rng = random.Random(seed)
    heads = []
    for _ in range(rng.randint(1, 4)):
        size = rng.randint(1, 5)
        heads.append(list(zip(rng.sample(range(100), size), sorted([-rng.expovariate(1) for _ in range(size)], reverse=True), strict=True)))
    known, room = combinations(heads), rng.randint(1, 30)
    found = paths(best_tree(heads, room))
    assert len(set(found)) == len(found) == min(room, len(known))
    expected = sorted(known.values(), reverse=True)[: len(found)]
    assert [known[path] for path in found] == pytest.approx(expected)


def test_nothing_to_combine_is_no_tree() -> None:
    assert best_tree([], 5).tokens == () and best_tree([[(1, -0.1)]], 0).tokens == ()


class Heads:
    """Two heads: what a row gets is its token plus its state, and one more."""

    layout = KVLayout(1, 4)

    def __init__(self) -> None:
        self.backend = self.loaded = self
        self.num_steps = 0

    def step(self, loaded: Any, batch: Batch) -> Outputs:
        self.num_steps += 1
        assert batch.wanted == ("logits1",)
        made = np.zeros((2, len(batch.tokens), 20), dtype=np.float32)
        for row, (token, state) in enumerate(zip(batch.tokens, batch.inputs["states"][:, 0], strict=True)):
            made[0, row, int(token + state)] = 9
            made[1, row, int(token + state) + 1] = 9
        return Outputs(made[0], {"logits1": made[1]})


class Host:
    max_num_seqs = 4
    sampler = Sampler([])
    held: tuple[str, ...] = ("medusa.0.up.weight", "medusa.1.up.weight", "medusa.1.down.weight", "medusa.token_norm.weight")

    def __init__(self) -> None:
        self.aux = Heads()

    def head_tensors(self, path: str | None, kind: str) -> tuple[str, ...]:
        return self.held

    def heads(self, path: str | None, kind: str, build: Any, kv_tokens: int) -> Heads:
        assert kind == "medusa"
        return self.aux


def row(seq_id: int, token: int, states: list[float] | None, room: int = 2) -> Draftable:
    given = None if states is None else np.array([[state] for state in states], dtype=np.float32).reshape(-1, 1)
    return Draftable(seq_id, [3, 3, token], 2, room, states=given)


def test_each_row_is_asked_about_its_last_state_and_newest_token() -> None:
    host = Host()
    heads = Medusa(Medusa.Options(heads=2, k=2), host)
    found = heads.propose([row(1, 5, [9, 1]), row(2, 6, None), row(3, 7, [4]), row(4, 7, [])])
    assert [drafts.tokens for drafts in found] == [(6, 7), (), (11, 12), ()]
    assert [drafts.parents for drafts in found] == [(-1, 0), None, (-1, 0), None]
    assert host.aux.num_steps == 1 and heads.propose([]) == []
    assert len(heads.propose([row(1, 5, [1], room=1)])[0].tokens) == 1


def test_all_heads_of_a_file_are_used_unless_fewer_are_asked_for() -> None:
    host = Host()
    unsaid, two = [Medusa(Medusa.Options(heads=heads, k=2), host).propose([row(1, 5, [1])]) for heads in (None, 2)]
    assert unsaid == two and len(two[0].tokens) == 2
    host.held = tuple([f"medusa.{number}.up.weight" for number in range(65)])
    with pytest.raises(UsageError, match="medusa: heads must be from 1 to 64, not 65"):
        Medusa(Medusa.Options(), host)


def test_options_without_sense_are_refused() -> None:
    for options in (Medusa.Options(heads=0), Medusa.Options(k=0), Medusa.Options(width=10**11)):
        with pytest.raises(UsageError, match="medusa: (heads|k|width) must be from 1 to"):
            Medusa(options, Host())


@pytest.mark.parametrize(("held", "told"), [
    (("medusa.0.up.weight", "medusa.0.down.weight", "medusa.1.up.weight", "medusa.token_norm.weight", "model.2.x"),
     "the file has no x: it holds 2 heads, 5 are asked for (heads=2 takes those)"),
    (("eagle.0.up.weight",), "the file has no x"), (tuple(f"medusa.{at}.up.weight" for at in range(5)), "the file has no x"),
])
def test_more_heads_than_a_file_holds_are_refused_with_how_many_it_does(held: tuple[str, ...], told: str) -> None:
    class Few(Host):
        def heads(self, path: str | None, kind: str, build: Any, kv_tokens: int) -> Heads:
            raise MissingHeadsError("the file has no x", held)

    with pytest.raises(UsageError) as refusal:
        Medusa(Medusa.Options(heads=5), Few())
    assert str(refusal.value) == told
