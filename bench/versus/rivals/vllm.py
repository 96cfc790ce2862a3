"""vLLM's CPU build, offline: bf16, and W8A8 for eight bits. It compiles for minutes before it is ready."""
from typing import Any

from versus.contest import Contestant, Entry
from versus.library import Library, Recipe
from versus.place import Place, checkpoint
from versus.trace import WARM, Ask, drive
from versus.worker import Run, RunResult, Task, serve, vocab_size

FORMATS = {16: ("bf16", "bf16"), 8: ("w8a8", "int8")}  # bits -> (its format, type computed in)
GB = 10**9


def contestants(place: Place, bits: int) -> list[Contestant]:
    python = place.tool("vllm", "python")
    if python is None or bits not in FORMATS:
        return []
    format, computes = FORMATS[bits]
    converted = place.converted(f"vllm-{format}")
    model = str(converted) if converted is not None else checkpoint(place) if bits == 16 else None
    if model is None:
        return []
    environ = place.openmp() | {
        "VLLM_CPU_KVCACHE_SPACE": str(1 + -(-place.kv_tokens * place.shape.kv_bytes_per_token // GB)), "VLLM_CPU_OMP_THREADS_BIND": "all",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    recipe = Recipe("versus.rivals.vllm", place.task(model, format, ""), place.log("vllm", format), str(python), environ)
    return [Library(Entry("vLLM", format, "", bits, computes), recipe)]


def load(task: Task) -> tuple[str, Run]:
    """In the worker."""
    import vllm

    engine = vllm.LLM(
        task.model, dtype="bfloat16", max_model_len=-(-task.max_tokens // 128) * 128, enable_prefix_caching=task.keeps_prefixes,
        max_num_batched_tokens=4096, disable_log_stats=True).llm_engine
    size = vocab_size(task.model)

    def run(trace: list[Ask]) -> RunResult:
        return RunResult(drive(Steps(engine), trace, size))

    run([WARM])
    return str(vllm.__version__), run


class Steps:
    """trace.Stepper of vLLM's engine."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._keys: dict[str, int] = {}

    def add(self, key: int, prompt: list[int], num_new: int) -> None:
        import vllm
        from vllm.sampling_params import RequestOutputKind

        params = vllm.SamplingParams(
            max_tokens=num_new, ignore_eos=True, temperature=0, detokenize=False, output_kind=RequestOutputKind.DELTA)
        name = f"request-{key}"
        self._engine.add_request(name, {"prompt_token_ids": prompt}, params)
        self._keys[name] = key

    def step(self) -> dict[int, int]:
        return {self._keys[each.request_id]: len(each.outputs[0].token_ids) for each in self._engine.step() if each.outputs[0].token_ids}


if __name__ == "__main__":
    serve(load)
