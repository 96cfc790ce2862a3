"""What somebody writes with the `openai` package: stream, look at the clock at each chunk. Also the program that does it."""
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from versus.processes import said_by, with_bench

from askers.contract import Found, Load


class Plain:
    name = "openai"

    def ask(self, load: Load, folder: Path) -> Found:
        told = asdict(load) | {"tokenizer": str(load.tokenizer), "prompts": str(load.prompts)}
        said = said_by([sys.executable, "-m", "askers.plain", json.dumps(told)], with_bench(), folder / "log", 300.0)
        return Found(**json.loads(said.splitlines()[-1]))

    def close(self) -> None:
        pass


@dataclass(slots=True)
class Seen:
    """One answer: when it was asked for and when each chunk with text came."""

    begun_s: float
    chunk_s: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    output_tokens: int = 0


def summed(seen: Sequence[Seen]) -> Found:
    """All of them were answered. The rate is over the time from the first request to the last token."""
    def both(name: str, values: list[float]) -> dict[str, float]:
        if not values:
            return {}
        found = {f"{name}_p50": statistics.median(values), f"{name}_mean": statistics.fmean(values)}
        if name in ("ttft", "tpot"):
            found[f"{name}_p99"] = statistics.quantiles(values, n=100, method="inclusive")[98] if len(values) > 1 else values[0]
        return found

    seconds = max(each.chunk_s[-1] for each in seen) - min(each.begun_s for each in seen)
    return Found(
        len(seen), sum(each.prompt_tokens for each in seen), sum(each.output_tokens for each in seen), len(seen) / seconds,
        **both("ttft", [each.chunk_s[0] - each.begun_s for each in seen]),
        **both("tpot", [(each.chunk_s[-1] - each.chunk_s[0]) / (each.output_tokens - 1) for each in seen if each.output_tokens > 1]),
        **both("itl", [later - earlier for each in seen for earlier, later in zip(each.chunk_s, each.chunk_s[1:], strict=False)]),
        **both("e2e", [each.chunk_s[-1] - each.begun_s for each in seen]))


async def one(client: Any, load: Load, prompt: str, seen: list[Seen]) -> None:
    asked: dict[str, Any] = {"model": load.model, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": load.output,
                             "extra_body": {"ignore_eos": True}}
    mine = Seen(time.perf_counter())
    if load.chat:
        stream = await client.chat.completions.create(messages=[{"role": "user", "content": prompt}], **asked)
    else:
        stream = await client.completions.create(prompt=prompt, **asked)
    async for chunk in stream:
        if chunk.choices and (chunk.choices[0].delta.content if load.chat else chunk.choices[0].text):
            mine.chunk_s.append(time.perf_counter())
        if chunk.usage is not None:
            mine.prompt_tokens, mine.output_tokens = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
    seen.append(mine)


async def run(load: Load) -> Found:
    from openai import AsyncOpenAI

    seen: list[Seen] = []
    prompts = [json.loads(line)["prompt"] for line in load.prompts.read_text(encoding="utf-8").splitlines()]
    async with AsyncOpenAI(base_url=f"{load.url}/v1", api_key="none", max_retries=0) as client, asyncio.TaskGroup() as group:
        if load.users:
            left = iter(prompts)
            for _ in range(load.users):
                group.create_task(user(client, load, left, seen))
        else:
            begun_s = time.perf_counter()
            for number, prompt in enumerate(prompts):
                await asyncio.sleep(begun_s + number / (load.rate or 1.0) - time.perf_counter())
                group.create_task(one(client, load, prompt, seen))
    return summed(seen)


async def user(client: Any, load: Load, left: Iterator[str], seen: list[Seen]) -> None:
    for prompt in left:
        await one(client, load, prompt, seen)


def main() -> None:
    load = Load(**json.loads(sys.argv[1]))
    print(json.dumps(asyncio.run(run(replace(load, tokenizer=Path(load.tokenizer), prompts=Path(load.prompts)))).as_json()))


if __name__ == "__main__":
    main()
