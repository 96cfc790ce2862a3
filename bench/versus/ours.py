"""Penstock as a contestant: the engine in its own process, as `serve/engine/build.py` wires it, and over HTTP."""
import statistics
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.core.config import EngineConfig
from penstock.serve.engine.build import choose, choose_backend, find
from versus.contest import Contestant, Entry
from versus.library import Library, Recipe
from versus.place import Place
from versus.served import Route, Served
from versus.trace import WARM, Ask, drive
from versus.worker import Run, RunResult, Task, serve

# format -> (bits of a weight, fields of EngineConfig); of files as they are in FILES
FORMATS: Mapping[str, tuple[int, dict[str, Any]]] = {
    "bf16": (16, {"quant": "none"}),
    "int8": (8, {"quant": "int8"}),
    "int4": (4, {"quant": "int4:group=32"}),
    "int8a8": (8, {"quant": "int8:activations=int8"}),
    "int4a8": (4, {"quant": "int4:group=32,activations=int8"}),
    "int4g128": (4, {"quant": "int4:group=128"}),
    "int4g128a8": (4, {"quant": "int4:group=128,activations=int8"}),
}
FILES: Mapping[str, int] = {"Q8_0": 8, "Q4_0": 4, "Q4_K_M": 4}  # GGUF, opened as it is: llama.cpp's name -> bits of a weight
ALL = (*FORMATS, *FILES)
BLOCK = 16  # tokens


def bits_of(format: str) -> int:
    return FILES[format] if format in FILES else FORMATS[format][0]


def contestants(place: Place, formats: tuple[str, ...]) -> list[Contestant]:
    """In process for every question; also over HTTP where requests are served together. Formats whose file is not there are left out."""
    found: list[Contestant] = []
    for format in formats:
        model = place.file(format) if format in FILES else place.shape.path
        if model is None:
            continue
        bits, fields = bits_of(format), {} if format in FILES else FORMATS[format][1]
        task = place.task(str(model), format, "", **(fields | dict(place.options)))
        computes = computed_in(task)
        entry = Entry("penstock", format, "", bits, computes, ours=True)
        found.append(Library(entry, Recipe("versus.ours", task, place.log("penstock", format))))
        served = Entry("penstock serve", format, "", bits, computes, ours=True)
        route = Route(command(task), place.shape.spec.vocab_size, version(), {}, place.log("penstock-serve", format))
        if any(point.question in ("streams", "mixed") for point in place.points):
            found.append(Served(served, route, ("streams", "mixed")))
    return found


def computed_in(task: Task) -> str:
    """The type whose rate bounds the products."""
    config, _ = choose_backend(EngineConfig(model=task.model, **settings(task)))
    return choose(config, find(config)).holding.held.compute_type


def settings(task: Task) -> dict[str, Any]:
    """Fields of EngineConfig beside the model. The KV cache is as large as the questions need, and keeps prefixes where that of others
    does; all else is as by default."""
    blocks = -(-task.kv_tokens // BLOCK) + 1
    return {
        "dtype": "bfloat16", "threads": task.threads, "kv_tokens": blocks * BLOCK, "block_size": BLOCK, "max_model_len": task.max_tokens,
        "prefix_cache": task.keeps_prefixes, **task.options}


def command(task: Task) -> tuple[str, ...]:
    """`penstock serve`, but for its port."""
    options = [flag for name, value in settings(task).items() for flag in flags(name.replace("_", "-"), value)]
    return (sys.executable, "-m", "penstock", "serve", task.model, *options, "--log-level=warning")


def flags(name: str, value: Any) -> Iterator[str]:
    """Without one, `penstock serve` chooses for itself."""
    if isinstance(value, bool):
        yield f"--{name}" if value else f"--no-{name}"
    elif value is not None:
        yield f"--{name}={value}"


def version() -> str:
    import penstock

    return penstock.__version__


def load(task: Task) -> tuple[str, Run]:
    """In the worker."""
    from penstock.core.config import EngineConfig
    from penstock.serve.engine.build import build
    from penstock.serve.engine.utilization import Recorder

    recorder = Recorder()
    built = build(EngineConfig(model=task.model, **settings(task)), recorder)

    def run(trace: list[Ask]) -> RunResult:
        with recorder.recording() as records:
            times = drive(Steps(built.engine), trace, built.spec.vocab_size)
        return RunResult(times, figures(records))

    run([WARM])
    return version(), run


class Steps:
    """trace.Stepper of an Engine."""

    def __init__(self, engine: Any) -> None:
        from penstock.core.types import SamplingParams
        from penstock.serve.engine.requests import Request

        self._engine = engine
        self._params = SamplingParams
        self._request = Request

    def add(self, key: int, prompt: list[int], num_new: int) -> None:
        params = self._params(temperature=0.0, max_tokens=num_new, ignore_eos=True)
        self._engine.add(self._request(str(key), tuple(prompt), params))

    def step(self) -> dict[int, int]:
        return {int(key): len(delta.token_ids) for key, delta in self._engine.step() or () if delta.token_ids}


def figures(records: list[Any]) -> dict[str, float]:
    """Of a run's StepRecords: medians over the steps that only decode, sums over those that prefill."""
    decodes = [each for each in records if not each.num_prefill_tokens]
    prefills = [each for each in records if each.num_prefill_tokens]
    found: dict[str, float] = {"steps": len(records), "host_s": median([each.seconds - each.compute_seconds for each in records])}
    if decodes:
        found |= {
            "decode_step_s": median([each.seconds for each in decodes]),
            "decode_host_s": median([each.seconds - each.compute_seconds for each in decodes]),
            "decode_bytes": median([each.weight_bytes + each.kv_bytes for each in decodes])}
    if prefills:
        found |= {
            "prefill_s": sum(each.seconds for each in prefills),
            "prefill_operations": sum(each.operations for each in prefills)}
    return found


def median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


if __name__ == "__main__":
    serve(load)
