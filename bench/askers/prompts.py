"""The same prompts for all clients, a JSON object a line: `prompt`, and `output_tokens` of its answer. Each client has its own names."""
import json
import random
from pathlib import Path

WORDS = ("river stone light autumn paper window garden letter winter morning silver music harbor evening forest candle bridge mountain "
         "story kitchen summer market island shadow village").split()


def write_prompts(path: Path, requests: int, lengths: tuple[int, int], output: int, seed: str) -> None:
    """Prompts of `lengths` words, both ends included: not all alike, and the same for the same seed."""
    rng = random.Random(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(requests):
            text = " ".join(rng.choices(WORDS, k=rng.randint(*lengths)))
            file.write(json.dumps({"prompt": text, "output_tokens": output}) + "\n")


def for_guidellm(path: Path, to: Path) -> None:
    with path.open(encoding="utf-8") as lines, to.open("w", encoding="utf-8") as file:
        for told in map(json.loads, lines):
            file.write(json.dumps({"prompt": told["prompt"], "output_tokens_count": told["output_tokens"]}) + "\n")


def for_penstock(path: Path, to: Path, chat: bool) -> None:
    with path.open(encoding="utf-8") as lines, to.open("w", encoding="utf-8") as file:
        for told in map(json.loads, lines):
            asked = {"messages": [{"role": "user", "content": told["prompt"]}]} if chat else {"prompt": told["prompt"]}
            file.write(json.dumps({**asked, "max_tokens": told["output_tokens"]}) + "\n")


def for_vllm(path: Path, to: Path) -> None:
    """As conversations of ShareGPT, the only file that it reads without further packages."""
    with path.open(encoding="utf-8") as lines:
        asked = [json.loads(line)["prompt"] for line in lines]
    to.write_text(json.dumps([{"conversations": [{"value": prompt}, {"value": "an answer"}]} for prompt in asked]), encoding="utf-8")
