"""`penstock bench URL`."""
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from versus.processes import said_by

from askers.contract import Found, Load
from askers.prompts import for_penstock

NAMES = ("ttft", "tpot", "itl", "e2e")


class Ours:
    name = "penstock"

    def ask(self, load: Load, folder: Path) -> Found:
        prompts = folder / "prompts.jsonl"
        for_penstock(load.prompts, prompts, load.chat)
        arrivals = f"closed:users={load.users}" if load.users else f"constant:rate={load.rate:g}"
        said = said_by(
            [sys.executable, "-m", "penstock", "bench", load.url, "--served-model-name", load.model, "--arrivals", arrivals,
             "--dataset", f"jsonl:path={prompts}", "--requests", str(load.requests), "--warmup", "0", "--json"], {}, folder / "log", 300.0)
        return read(json.loads(said.splitlines()[-1]))

    def close(self) -> None:
        pass


def read(told: Mapping[str, Any]) -> Found:
    """Of the object that `--json` prints. Token rates times the window are tokens."""
    seconds = told["window"]["seconds"]
    found = {f"{name}_mean": told[f"{name}_s"]["mean"] for name in NAMES}
    found |= {f"{name}_p50": told[f"{name}_s"]["p50"]["value"] for name in NAMES}
    found |= {f"{name}_p99": told[f"{name}_s"]["p99"]["value"] for name in ("ttft", "tpot")}
    return Found(told["requests"]["completed"], told["input_tokens_per_s"] * seconds, told["output_tokens_per_s"] * seconds,
                 told["requests_per_s"], **found)
