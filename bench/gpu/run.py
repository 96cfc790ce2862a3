"""Everything that `gpu_limits.py` measures, in its order; printed as it comes."""
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from gpu import probes, steps
from gpu.decoder import check
from gpu.power import sampling
from gpu.shapes import MODELS
from penstock.core.catalogue.part import Part
from penstock.core.modelspec import ModelSpec
from penstock.study.measure.energy import nvml
from penstock.study.plan.request import model_of

MOST_OFF = {"products": 0.01, "decoder": 1e-4}  # of a norm; bf16, and float32
ENERGY_S = 4.0
SMALL: dict[str, Any] = {"num_heads": 8, "hidden_size": 512, "intermediate_size": 1024, "vocab_size": 1000}


def small(spec: ModelSpec) -> ModelSpec:
    """Of the same kind, with two layers, and no scaling of positions: the timing decoder has none."""
    rope = spec.layers[0].rope
    plain = replace(spec.layers[0], rope=rope and replace(rope, scaling="none"))
    return replace(spec, layers=(plain,) * 2, num_kv_heads=2, **SMALL)


def checked(models: list[str]) -> dict[str, float]:
    """How far results are from what they should be. Ends the program where one is too far."""
    found = {"products": probes.right()}
    found |= {f"decoder {name}": check(small(model_of(name).spec), MODELS[name]) for name in models}
    for name, off in found.items():
        print(f"off by {off:.2g} of the norm: {name}")
        if not off <= MOST_OFF[name.split()[0]]:
            raise SystemExit(f"{name} is off by {off:.3g} of the norm, more than {MOST_OFF[name.split()[0]]}: nothing is timed")
    return found


def energy() -> dict[str, Any]:
    """Joules of products for some seconds, by NVML's counter, and by the power that nvidia-smi samples."""
    meter = nvml()
    if meter is None:
        return {"failure": "NVML counts no energy here"}
    w, x = probes.normal(8192, 8192), probes.normal(8192, 8192)

    def working(begin: float) -> None:
        while time.perf_counter() - begin < ENERGY_S:
            for _ in range(50):
                torch.mm(x, w)
            torch.cuda.synchronize()

    idle_from, idle_begin = meter.joules(), time.perf_counter()
    time.sleep(ENERGY_S / 2)
    idle = (meter.joules() - idle_from) / (time.perf_counter() - idle_begin)
    first, begin = meter.joules(), time.perf_counter()
    with sampling() as sampled:
        working(begin)
        joules, taken = meter.joules() - first, time.perf_counter() - begin
    return {"idle_watts": idle, "busy_watts": joules / taken, **sampled.told()}


def limits(layers: list[str], part_ops: dict[str, float]) -> dict[str, Any]:
    found: dict[str, Any] = {"failures": {}}

    def tried(name: str, make: Callable[[], Any]) -> None:
        try:
            found[name] = make()
        except Exception as error:  # a kernel that torch lacks is a row less
            found["failures"][name] = f"{type(error).__name__}: {error}"[:300]
        torch.cuda.empty_cache()

    tried("copies", lambda: list(probes.copies()))
    tried("kernel_s", probes.kernel_s)
    tried("token_s", probes.token_s)
    tried("host_copies", probes.host_copies)
    tried("prompts", lambda: list(probes.prompts()))
    tried("caches", lambda: list(probes.caches()))
    for layer in layers:
        for form in probes.FORMATS:
            for rows in probes.rows_of(form):
                tried(f"products {layer} {form} {rows}", partial(probes.products, form, layer, rows))
    for name, told in found.items():
        print(name, _shares(name, told, part_ops))
    return found


def _shares(name: str, told: Any, part_ops: dict[str, float]) -> Any:
    if not name.startswith("products"):
        return told
    form = name.split()[2]
    rate, read = told
    return f"{rate / 1e12:8.1f} Tops/s, {rate / part_ops['bf16' if form == 'int4' else form]:.3f} of the peak; {read / 1e12:.2f} TB/s"


def everything(part: Part, layers: list[str], models: list[str]) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    told: dict[str, Any] = {
        "bench": "gpu_limits", "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": properties.name,
        "memory": properties.total_memory, "torch": torch.__version__, "part": part.name, "checks": checked(models),
        "energy": energy(), "limits": limits(layers, dict(part.ops)), "steps": []}
    print(told["energy"])
    for name in models:
        for row in steps.steps(name, part):
            told["steps"].append(row)
            print(f"{row['model']:14} {row['point']:18} {row['seconds'] * 1e3:9.3f} ms, predicted {row['predicted'] * 1e3:9.3f}, "
                  f"{row['predicted'] / row['seconds']:.2f}", flush=True)
    return told
