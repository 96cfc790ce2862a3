"""Heads for another model are refused in words that say what to do."""
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.compute.models.heads import stamp
from penstock.core.errors import UsageError
from penstock.core.modelspec import LayerSpec, ModelSpec

SPEC = ModelSpec(4000, 64, 4, 2, 16, 96, (LayerSpec(),) * 3, 512)
OURS = "m (3 layers, hidden size 64, 4,000 tokens): `penstock train-heads m --kind eagle --text TEXTS --out FOLDER` makes some for it"


def test_heads_fit_the_model_they_were_trained_for_whatever_its_weights_are_stored_in() -> None:
    facts = {stamp.TARGET: stamp.fingerprint(SPEC)}
    stamp.check(facts, Path("a.safetensors"), "eagle", replace(SPEC, dtype="bfloat16"), "m")


def test_heads_of_another_kind_are_refused() -> None:
    with pytest.raises(UsageError, match="^a.safetensors holds medusa heads, not those of eagle$"):
        stamp.check({stamp.TARGET: stamp.fingerprint(SPEC), stamp.KIND: "medusa"}, Path("a.safetensors"), "eagle", SPEC, "m")


@pytest.mark.parametrize(("facts", "told"), [
    ({stamp.TARGET: "abc", stamp.MODEL: "n (5 layers, hidden size 288, 99 tokens)"}, "n (5 layers, hidden size 288, 99 tokens)"),
    ({stamp.TARGET: "abc"}, "a model of another shape"),
    ({"format": "pt"}, "no model that it tells of"),
])
def test_others_are_refused_with_both_models_and_what_makes_heads_for_this_one(facts: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as refusal:
        stamp.check(facts, Path("a.safetensors"), "eagle", SPEC, "m")
    assert str(refusal.value) == f"a.safetensors holds heads trained for {told}, but heads fit one model alone, here {OURS}"


def test_a_path_is_told_by_its_last_part(tmp_path: Path) -> None:
    folder = tmp_path / "some-model"
    folder.mkdir()
    assert stamp.described(SPEC, str(folder)) == "some-model (3 layers, hidden size 64, 4,000 tokens)"
    assert stamp.described(SPEC, "someone/some-model") == "someone/some-model (3 layers, hidden size 64, 4,000 tokens)"
