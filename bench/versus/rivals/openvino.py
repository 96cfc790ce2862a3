"""OpenVINO GenAI: the pipeline with continuous batching, and the one for single sequences. Its KV cache has 8 bits by default, and rows
are quantized by default where weights are."""
from typing import Any

from versus.contest import Contestant, Entry
from versus.library import QUESTIONS, Library, Recipe
from versus.place import Place, questions
from versus.trace import WARM, Ask, Times, drive
from versus.worker import Run, RunResult, Task, serve, vocab_size

FORMATS = {16: ("fp16", "bf16"), 8: ("int8", "int8"), 4: ("int4", "int8")}  # bits -> (its format, type computed in)
SETTINGS = {"batching": QUESTIONS, "single": ("decode", "prefill")}
GB = 10**9


def contestants(place: Place, bits: int) -> list[Contestant]:
    format, computes = FORMATS[bits]
    python, model = place.tool("openvino", "python"), place.converted(f"openvino-{format}")
    if python is None or model is None:
        return []
    found: list[Contestant] = []
    for setting, able in SETTINGS.items():
        if set(able) & set(questions(place.points)):
            recipe = Recipe("versus.rivals.openvino", place.task(str(model), format, setting), place.log("openvino", format, setting),
                            str(python), place.openmp(spins=False), able)
            found.append(Library(Entry("OpenVINO", format, setting, bits, computes), recipe))
    return found


def load(task: Task) -> tuple[str, Run]:
    """In the worker."""
    import openvino_genai

    run = batching(task) if task.setting == "batching" else single(task)
    run([WARM])
    return str(openvino_genai.__version__), run


def greedy(num_new: int) -> Any:
    import openvino_genai

    return openvino_genai.GenerationConfig(
        max_new_tokens=num_new, min_new_tokens=num_new, ignore_eos=True, do_sample=False, apply_chat_template=False)


def tensor(prompt: list[int]) -> Any:
    import numpy
    import openvino

    return openvino.Tensor(numpy.array([prompt], numpy.int64))


def batching(task: Task) -> Run:
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 1 + -(-task.kv_tokens * task.kv_bytes_per_token // GB)
    scheduler.max_num_batched_tokens, scheduler.max_num_seqs = 2048, 64
    scheduler.enable_prefix_caching = task.keeps_prefixes
    pipe = openvino_genai.ContinuousBatchingPipeline(task.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": task.threads})
    size = vocab_size(task.model)
    return lambda trace: RunResult(drive(Steps(pipe), trace, size))


class Steps:
    """trace.Stepper of a pipeline with continuous batching."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self._handles: dict[int, Any] = {}
        self._missing: dict[int, int] = {}

    def add(self, key: int, prompt: list[int], num_new: int) -> None:
        self._handles[key] = self._pipe.add_request(key, tensor(prompt), greedy(num_new))
        self._missing[key] = num_new

    def step(self) -> dict[int, int]:
        self._pipe.step()
        gained: dict[int, int] = {}
        for key, handle in list(self._handles.items()):
            while handle.can_read():
                gained[key] = gained.get(key, 0) + sum(len(each.generated_ids) for each in handle.read().values())
            self._missing[key] -= gained.get(key, 0)
            if self._missing[key] <= 0:
                del self._handles[key]
        return gained


def single(task: Task) -> Run:
    """One sequence at a time; the streamer is told of every token. It has no cache of prefixes, so that a deep context is computed anew."""
    import time

    import openvino_genai

    pipe = openvino_genai.LLMPipeline(task.model, "CPU", INFERENCE_NUM_THREADS=task.threads)
    size = vocab_size(task.model)

    class Stamps(openvino_genai.StreamerBase):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.at: list[float] = []

        def write(self, token: Any) -> Any:
            self.at += [time.perf_counter()] * (1 if isinstance(token, int) else len(token))
            return openvino_genai.StreamingStatus.RUNNING

        def end(self) -> None:
            pass

    def run(trace: list[Ask]) -> RunResult:
        (ask,) = trace
        stamps, prompt = Stamps(), tensor(ask.prompt(size))
        began = time.perf_counter()
        pipe.generate(prompt, greedy(ask.num_new), stamps)
        return RunResult([Times(0.0, stamps.at[0] - began, stamps.at[-1] - began, len(stamps.at))])

    return run


if __name__ == "__main__":
    serve(load)
