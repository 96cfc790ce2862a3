"""guidellm, by its executable."""
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from versus.processes import said_by

from askers.contract import MILLI, Found, Load
from askers.prompts import for_guidellm


class Guidellm:
    """`home`: a folder for the caches of what it uses."""

    name = "guidellm"

    def __init__(self, executable: Path, home: Path) -> None:
        self._executable = executable
        self._environ = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(home), "GUIDELLM__MAX_WORKER_PROCESSES": "1", "PYTHONPATH": ""}

    def ask(self, load: Load, folder: Path) -> Found:
        prompts, report = folder / "prompts.jsonl", folder / "report.json"
        for_guidellm(load.prompts, prompts)
        path = "/v1/chat/completions" if load.chat else "/v1/completions"
        profile = f"kind=concurrent,streams={load.users}" if load.users else f"kind=constant,rate={load.rate:g}"
        said_by(
            [str(self._executable), "run", "--backend", f"kind=openai_http,target={load.url},request_format={path},model={load.model}",
             "--profile", profile, "--constraint", f"kind=max_requests,count={load.requests}",
             "--tokenizer", f"kind=huggingface_auto,model={load.tokenizer}", "--data", f"kind=json_file,path={prompts}",
             "--disable-console", "--output", f"kind=json,path={report}"], self._environ, folder / "log", 300.0)
        return read(json.loads(report.read_text(encoding="utf-8")))

    def close(self) -> None:
        pass


def read(told: Mapping[str, Any]) -> Found:
    """Of its report's only benchmark. Its inter-token latency is our TPOT; it tells no single gaps."""
    metrics = told["benchmarks"][0]["metrics"]
    of = {name: (metrics[name] or {}).get("successful") or {} for name in (
        "time_to_first_token_ms", "inter_token_latency_ms", "request_latency", "requests_per_second", "prompt_token_count",
        "output_token_count")}
    ttft, tpot, e2e = of["time_to_first_token_ms"], of["inter_token_latency_ms"], of["request_latency"]
    answered = metrics["request_totals"]["successful"]
    return Found(
        answered, of["prompt_token_count"]["mean"] * answered, of["output_token_count"]["mean"] * answered,
        of["requests_per_second"]["mean"], ttft["median"] * MILLI, ttft["mean"] * MILLI, tpot["median"] * MILLI, tpot["mean"] * MILLI,
        e2e_p50=e2e["median"], e2e_mean=e2e["mean"],
        ttft_p99=ttft["percentiles"]["p99"] * MILLI, tpot_p99=tpot["percentiles"]["p99"] * MILLI)
