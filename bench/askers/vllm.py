"""`vllm bench serve`: its own code, in one process of the interpreter that has it, because importing it takes longer than a run."""
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from versus.processes import BENCH, Program

from askers.contract import MILLI, Found, Load, last_line
from askers.prompts import for_vllm

EVEN = 1e6  # its burstiness: gaps with a coefficient of variation of a thousandth
NAMES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2el"}


class Vllm:
    name = "vllm"

    def __init__(self, python: Path, home: Path) -> None:
        """Raises RuntimeError where it cannot be imported."""
        environ = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(home), "VLLM_LOGGING_LEVEL": "ERROR"}
        self._worker = Program([str(python), "-I", str(BENCH / "askers" / "vllm_worker.py")], environ, home / "vllm.log", talks=True)
        self._heard(self._worker.output.readline())  # importing takes processors, so nobody is measured meanwhile

    def ask(self, load: Load, folder: Path) -> Found:
        prompts = folder / "sharegpt.json"
        for_vllm(load.prompts, prompts)
        pace = ["--max-concurrency", str(load.users)] if load.users else ["--request-rate", f"{load.rate:g}", "--burstiness", f"{EVEN:g}"]
        words = [
            "--backend", "openai-chat" if load.chat else "openai", "--base-url", load.url, "--endpoint",
            "/v1/chat/completions" if load.chat else "/v1/completions", "--model", load.model, "--tokenizer", str(load.tokenizer),
            "--dataset-name", "sharegpt", "--dataset-path", str(prompts), "--sharegpt-output-len", str(load.output),
            "--disable-shuffle", "--num-prompts", str(load.requests), "--ignore-eos", "--percentile-metrics", "ttft,tpot,itl,e2el",
            "--disable-tqdm", *pace]
        return read(json.loads(self._say(json.dumps(words))))

    def _say(self, line: str) -> str:
        with contextlib.suppress(BrokenPipeError):
            self._worker.input.write(line + "\n")
            self._worker.input.flush()
        return self._heard(self._worker.output.readline())

    def _heard(self, said: str) -> str:
        if not said:
            raise RuntimeError(f"the process ended: {last_line(self._worker.log)}")
        return said

    def close(self) -> None:
        self._worker.end()


def read(told: Mapping[str, Any]) -> Found:
    if "error" in told:
        raise RuntimeError(told["error"])
    times = {f"{ours}_{ending}": told[f"{word}_{theirs}_ms"] * MILLI
             for ours, theirs in NAMES.items() for word, ending in (("median", "p50"), ("mean", "mean"))}
    times |= {f"{ours}_p99": told[f"p99_{NAMES[ours]}_ms"] * MILLI for ours in ("ttft", "tpot")}  # the only percentile it tells unasked
    return Found(int(told["completed"]), told["total_input_tokens"], told["total_output_tokens"], told["request_throughput"], **times)
