"""How much memory loading takes at its worst, and what stays: 1.3 and 1.05 times the packed weights, beside what any model takes."""
import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.tiny import CONFIG, write_model, write_tokenizer

pytest.importorskip("penstock._native")

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
HIDDEN, INNER, LAYERS = 1024, 3072, 5
SHAPE = {
    **CONFIG, "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 64, "torch_dtype": "bfloat16"}
CONSTANT = 12 << 20  # buffers for a step, threads, what the system has not taken back yet; about 5 MiB were found
PROGRAM = """
import json, sys
from pathlib import Path
from penstock import LLM, SamplingParams

def told(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))

small, large, quant = sys.argv[1:]
LLM(small, threads=1, kv_tokens=256).generate("a", SamplingParams(max_tokens=2))
base = told("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
llm = LLM(large, threads=1, kv_tokens=256, quant=quant)
peak = told("VmHWM") - base
llm.generate("some prompt", SamplingParams(max_tokens=4, ignore_eos=True))
print(json.dumps([llm._built.weight_bytes, peak, told("VmRSS") - base]))
"""


def can_reset() -> bool:
    """Whether the system forgets on demand how large this process has been."""
    try:
        RESET.write_text("5")
    except OSError:
        return False
    return "VmHWM" in STATUS.read_text()


pytestmark = pytest.mark.skipif(not can_reset(), reason="/proc/self/clear_refs cannot be written, or tells no peak")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """126 MB of bfloat16, the same values again and again."""
    folder = tmp_path_factory.mktemp("large")
    (folder / "config.json").write_text(json.dumps(SHAPE))
    values = (np.random.default_rng(0).standard_normal(1 << 16) * 0.03).astype(ml_dtypes.bfloat16)
    shapes = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (512, HIDDEN), "self_attn.v_proj": (512, HIDDEN),
              "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN),
              "mlp.down_proj": (HIDDEN, INNER), "input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,)}
    weights = {"model.embed_tokens.weight": np.resize(values, (300, HIDDEN)), "model.norm.weight": np.resize(values, (HIDDEN,))}
    for layer in range(LAYERS):
        weights |= {f"model.layers.{layer}.{name}.weight": np.resize(values, shape) for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors")
    write_tokenizer(folder, SHAPE["vocab_size"])
    return folder


@pytest.mark.parametrize(("quant", "num_bits"), [("none", 16), ("int8", 8), ("int4", 4)])
def test_weights_are_held_once_and_hardly_more_while_they_are_loaded(large: Path, tmp_path: Path, quant: str, num_bits: int) -> None:
    small = write_model(tmp_path / "small")
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(small), str(large), quant], env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    packed, peak, after = json.loads(done.stdout.splitlines()[-1])
    assert packed == pytest.approx((large / "model.safetensors").stat().st_size * num_bits / 16, rel=0.15)
    assert peak < 1.3 * packed + CONSTANT
    assert after < 1.05 * packed + CONSTANT
