"""gpt-oss as it is published, with experts in MXFP4: the numbers, logits and greedy tokens of transformers, on every backend."""
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.contract import Backend, KVLayout
from penstock.compute.backends.cpu.backend import Cpu, CpuOptions
from penstock.compute.backends.reference.backend import Reference
from penstock.compute.models.load.checkpoint import open_checkpoint
from penstock.compute.models.load.weights import load_weights
from penstock.compute.quant.codes import Coding
from penstock.compute.quant.int8 import Int8
from penstock.compute.quant.microscaled import DOUBLED
from penstock.core.errors import ModelError
from tests.contract.participants import native_kernels
from tests.golden.oracle import logits, model_of, save, seeded, some_ids
from tests.golden.paged import BLOCK_SIZE, NUM_BLOCKS, batch, read
from tests.golden.variants import VARIANTS

torch = pytest.importorskip("torch", reason="transformers computes with torch, an extra: pip install '.[torch]'")
safetensors = pytest.importorskip("safetensors.torch")
mxfp4 = pytest.importorskip("transformers.integrations.mxfp4")
QUANTIZATION = {"quant_method": "mxfp4", "modules_to_not_convert": [
    "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
MADE = 20  # tokens


def published(folder: Path, variant: str = "gpt-oss", exponents: tuple[int, int] = (119, 124)) -> Any:
    """Writes a checkpoint with random codes, and powers of two from and below these; returns transformers' model of the same."""
    theirs = model_of(VARIANTS[variant])
    tensors = {}
    with seeded(3), torch.no_grad():
        for name, values in theirs.state_dict().items():
            tensors[name] = values.contiguous()
            if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                del tensors[name]
                count, inner, rows = values.shape
                packed = torch.randint(0, 256, (count, rows, inner // 32, 16), dtype=torch.uint8)
                scales = torch.randint(*exponents, (count, rows, inner // 32), dtype=torch.uint8)
                tensors |= {name + "_blocks": packed, name + "_scales": scales}
                values.copy_(mxfp4.convert_moe_packed_tensors(packed, scales, dtype=torch.float32))
    safetensors.save_file(tensors, folder / "model.safetensors")
    config = {**json.loads(theirs.config.to_json_string(use_diff=False)), "architectures": ["GptOssForCausalLM"], "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": QUANTIZATION}))
    return theirs


def backends() -> list[Any]:
    found = [pytest.param(Reference, id="reference")]
    return found + [pytest.param(lambda name=name: Cpu(CpuOptions(kernels=name), "float32"), id=name) for name in native_kernels()]


def feed(backend: Backend, folder: Path, ids: list[int], steps: int) -> tuple[np.ndarray, list[int]]:
    """(logits of all rows of a prompt and of `steps` greedy tokens behind it, these tokens)."""
    checkpoint = open_checkpoint(folder)
    _, program = read(checkpoint.config)
    loaded = backend.load(program, load_weights(program, checkpoint, "float32"), KVLayout(NUM_BLOCKS, BLOCK_SIZE))
    blocks = np.random.default_rng(5).permutation(NUM_BLOCKS)
    found = [backend.step(loaded, batch([(ids, 0, blocks)])).logits]
    made: list[int] = []
    for at in range(steps):
        made.append(int(found[-1][-1].argmax()))
        found.append(backend.step(loaded, batch([([made[-1]], len(ids) + at, blocks)])).logits)
    return np.concatenate(found), made


@pytest.mark.parametrize("make", backends())
@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize("variant", ["gpt-oss", "gpt-oss-square"])
def test_logits_and_greedy_tokens(tmp_path: Path, make: Any, variant: str, coded: bool) -> None:
    theirs, ids = published(tmp_path, variant) if coded else model_of(VARIANTS[variant]), some_ids(130)
    if not coded:
        save(theirs, tmp_path)
    found, made = feed(make(), tmp_path, ids, MADE)
    expected = logits(theirs, ids + made)
    rounded = coded and make is not Reference  # natively, codes are multiplied with rows of bfloat16
    bound = (1e-2 if rounded else 2e-5) * np.abs(expected).max()
    assert np.abs(found - expected).max() < bound
    chosen = expected[len(ids) - 1 : -1]
    assert (chosen.max(1) - chosen[range(MADE), made] < 2 * bound).all()
    if not rounded:
        with torch.no_grad():
            told = theirs.generate(torch.tensor([ids]), max_new_tokens=MADE, do_sample=False, eos_token_id=None)
        assert told[0, len(ids) :].tolist() == made


@pytest.mark.parametrize(("exponents", "scales"), [((119, 124), "float16"), ((104, 144), "float16"), ((103, 120), "float32"),
                                                   ((130, 145), "float32"), ((0, 253), "float32")])
def test_codes_are_kept_and_mean_the_same_numbers(tmp_path: Path, exponents: tuple[int, int], scales: str) -> None:
    theirs = published(tmp_path, exponents=exponents)
    checkpoint = open_checkpoint(tmp_path)
    _, program = read(checkpoint.config)
    weights = load_weights(program, checkpoint, "bfloat16")
    for role, name in (("expert_gate_up", "gate_up_proj"), ("expert_down", "down_proj")):
        found = weights[f"layers.1.{role}"]
        assert found.form == Coding(4, 32, scales, False, DOUBLED)
        turned = getattr(theirs.model.layers[1].mlp.experts, name).detach().numpy().swapaxes(1, 2)
        expected = np.concatenate([turned[:, 0::2], turned[:, 1::2]], axis=1) if role == "expert_gate_up" else turned
        np.testing.assert_array_equal(found.numbers(np.float32), expected)
    assert weights["layers.1.qkv"].form == "bfloat16" and weights["layers.1.expert_down_bias"].form == "float32"


def test_they_are_rounded_as_any_other_numbers(tmp_path: Path) -> None:
    theirs = published(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    _, program = read(checkpoint.config)
    down = load_weights(program, checkpoint, "float32", Int8())["layers.0.expert_down"]
    turned = theirs.model.layers[0].mlp.experts.down_proj.detach().numpy().swapaxes(1, 2)
    expected = Int8().quantize(turned.reshape(-1, turned.shape[-1]), Coding(8, turned.shape[-1], "float32")).dequantize()
    np.testing.assert_array_equal(down.numbers(np.float32), expected.reshape(turned.shape))


@pytest.mark.parametrize("lacking", ["gate_up_proj", "down_proj", "gate_up_proj_bias"])
def test_a_missing_tensor_is_told_by_its_name(tmp_path: Path, lacking: str) -> None:
    save(model_of(VARIANTS["gpt-oss"]), tmp_path)
    for file in tmp_path.glob("*.safetensors"):
        kept = safetensors.load_file(file)
        kept.pop(f"model.layers.2.mlp.experts.{lacking}", None)
        safetensors.save_file(kept, file)
    index = tmp_path / "model.safetensors.index.json"
    told = json.loads(index.read_text())
    told["weight_map"].pop(f"model.layers.2.mlp.experts.{lacking}")
    index.write_text(json.dumps(told))
    checkpoint = open_checkpoint(tmp_path)
    with pytest.raises(ModelError, match=rf"model\.layers\.2\.mlp\.experts\.{lacking} is missing from"):
        load_weights(read(checkpoint.config)[1], checkpoint, "float32")


@pytest.mark.parametrize("spoil", ["scales", "shape", "exponent", "type"])
def test_a_broken_checkpoint_is_refused(tmp_path: Path, spoil: str) -> None:
    published(tmp_path)
    tensors = safetensors.load_file(tmp_path / "model.safetensors")
    name = "model.layers.2.mlp.experts.down_proj_scales"
    if spoil == "scales":
        del tensors[name]
    elif spoil == "shape":
        tensors[name] = tensors[name][:, :-1].contiguous()
    elif spoil == "exponent":
        tensors[name][1, 2, 0] = 255
    else:
        tensors[name] = tensors[name].float()
    safetensors.save_file(tensors, tmp_path / "model.safetensors")
    told = {"scales": "down_proj_scales is missing from", "shape": r"down_proj_blocks in .* has the shape \[6, 64, 3, 16\], but",
            "exponent": "holds 255, but 252 is the largest exponent", "type": r"stored as F32, where bytes \(U8\) are needed"}[spoil]
    with pytest.raises(ModelError, match=told):
        checkpoint = open_checkpoint(tmp_path)
        load_weights(read(checkpoint.config)[1], checkpoint, "float32")
