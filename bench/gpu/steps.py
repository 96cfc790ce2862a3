"""Steps of whole models: how long torch takes for them, and how long the planner's roofline says."""
import gc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from gpu.decoder import Decoder
from gpu.shapes import MODELS
from gpu.timing import seconds
from penstock.compute.steptime import Roofline
from penstock.core.catalogue.part import Part
from penstock.core.work import StepWork
from penstock.serve.engine.build import parse_quant
from penstock.study.plan.model import AUTO, Model, weight_format
from penstock.study.plan.request import model_of

DECODES = tuple((count, depth) for depth in (512, 2048, 8192) for count in (1, 4, 16, 64, 256) if count * depth <= 131072)
PROMPTS = (64, 128, 512, 2048, 8192)  # tokens
FREE_SHARE = 0.8  # of the memory that is free, for keys and values


def works() -> Iterator[tuple[str, StepWork]]:
    for count, depth in DECODES:
        yield f"decode {count} x {depth}", StepWork(((1, depth),) * count, num_logits=count)
    for rows in PROMPTS:
        yield f"prefill {rows}", StepWork(((rows, rows),), num_logits=1)


def steps(name: str, part: Part) -> Iterator[dict[str, Any]]:
    model = model_of(name, "bfloat16")
    roofline = _roofline(model, part)
    decoder = Decoder(model.spec, MODELS[name])
    for told, work in works():
        rows, depth = work.contexts[0]
        cached = work.num_seqs * depth * model.spec.kv_bytes_per_token(2)
        if cached > FREE_SHARE * torch.cuda.mem_get_info()[0]:
            continue
        caches = decoder.caches(work.num_seqs, depth)
        tokens = torch.randint(0, model.spec.vocab_size, (work.num_seqs, rows), device="cuda")
        with torch.inference_mode():
            taken = seconds(partial(decoder.step, tokens, caches))
        predicted = roofline.told(work)
        yield {"model": name, "point": told, "seconds": taken, "predicted": replace(predicted, host=0.0).seconds,
               "of": {field: getattr(predicted, field) for field in ("compute", "weights", "kv", "activations", "kernels")}}
        del caches
        gc.collect()
        torch.cuda.empty_cache()


def _roofline(model: Model, part: Part) -> Roofline:
    stored = model.stored(weight_format("none", parse_quant), AUTO)
    return Roofline(stored.program, stored.numbers, part)
