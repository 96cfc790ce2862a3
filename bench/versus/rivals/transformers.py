"""transformers in bf16: one static batch of prompts of equal length."""
from typing import Any

from versus.contest import Contestant, Entry
from versus.library import Library, Recipe
from versus.place import Place, checkpoint
from versus.trace import WARM, Ask, Times
from versus.worker import Run, RunResult, Task, serve, vocab_size


def contestants(place: Place, bits: int) -> list[Contestant]:
    python, model = place.tool("transformers", "python"), checkpoint(place)
    if python is None or model is None or bits != 16:
        return []
    recipe = Recipe(
        "versus.rivals.transformers", place.task(model, "bf16", ""), place.log("transformers", "bf16"), str(python), place.openmp(),
        ("decode", "prefill", "streams"))
    return [Library(Entry("transformers", "bf16", "", 16, "bf16"), recipe)]


def load(task: Task) -> tuple[str, Run]:
    """In the worker."""
    import torch
    import transformers

    torch.set_num_threads(task.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(task.model, dtype=torch.bfloat16).eval()
    model.generation_config.eos_token_id = None
    size = vocab_size(task.model)

    def run(trace: list[Ask]) -> RunResult:
        return generate(model, trace, size)

    run([WARM])
    return f"{transformers.__version__}, torch {torch.__version__}", run


def generate(model: Any, trace: list[Ask], size: int) -> RunResult:
    """All prompts at once; a streamer of one sequence is told of its tokens, a batch only of its end."""
    import time

    import torch

    ids = torch.tensor([ask.prompt(size) for ask in trace])
    stamps: list[float] = []

    class Stamps:
        def put(self, value: Any) -> None:
            stamps.append(time.perf_counter())

        def end(self) -> None:
            pass

    began = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=trace[0].num_new, do_sample=False,
            streamer=Stamps() if len(trace) == 1 else None)
    ended = time.perf_counter()
    first = stamps[1] if len(stamps) > 1 else ended  # the prompt is put first
    num_new = out.shape[1] - ids.shape[1]
    return RunResult([Times(0.0, first - began, (stamps[-1] if len(stamps) > 1 else ended) - began, num_new) for _ in trace])


if __name__ == "__main__":
    serve(load)
