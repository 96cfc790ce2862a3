"""A really started `penstock serve brook`, driven by OpenAI's own client."""
import asyncio
import time
from collections.abc import Iterator

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.serve.engine.machine import has_native
from tests.started import start, stop

PROMPTS = [
    f"The {what} went down to the {where} and {then}" for what in ("old king", "sly fox", "girl", "miller")
    for where in ("river", "town", "wood", "sea") for then in ("there", "saw", "said", "met")]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server, address = start("--max-num-batched-tokens", "96", "--kv-tokens", "1536")
    yield address
    said = stop(server)
    assert "options    --max-num-batched-tokens 96, --kv-tokens 1536, " in said and "; otherwise defaults" in said
    assert "parameters; matrices: 33 in " in said and "; 1 sequence of that length fits" in said
    assert f"backend    {'cpu: the native kernels' if has_native() else 'reference: the native module was not built'}" in said
    assert "KV cache   1,536 tokens" in said and "curl http://127.0.0.1" in said, said


def metric(url: str, name: str) -> float:
    families = text_string_to_metric_families(httpx.get(url + "/metrics").text)
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


def test_64_streams_say_what_each_says_alone(url: str) -> None:
    async def main() -> None:
        client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)

        async def stream(prompt: str) -> str:
            parts = []
            async for chunk in await client.completions.create(model="brook", prompt=prompt, max_tokens=24, temperature=0, stream=True):
                parts += [choice.text for choice in chunk.choices]
            return "".join(parts)

        together = await asyncio.gather(*map(stream, PROMPTS))
        alone = [await stream(prompt) for prompt in PROMPTS]
        assert together == alone and all(together)

    asyncio.run(main())
    assert metric(url, "penstock_num_requests_running") == metric(url, "penstock_kv_cache_usage_ratio") == 0


def test_counters_add_up_to_the_usages(url: str) -> None:
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)
    names = ("penstock_prompt_tokens_total", "penstock_generation_tokens_total")
    before = [metric(url, name) for name in names]
    asked = [{"role": "user", "content": "Tell me about a clever fox."}]
    usages = [client.chat.completions.create(model="brook", messages=asked, max_tokens=9, n=n, seed=n).usage for n in (1, 3)]
    grown = [metric(url, name) - old for name, old in zip(names, before, strict=True)]
    assert grown == [sum(usage.prompt_tokens for usage in usages), sum(usage.completion_tokens for usage in usages)]
    assert metric(url, "penstock_step_bytes_total") > 0 and metric(url, "penstock_step_operations_total") > 0


def test_a_client_that_hangs_up_frees_its_blocks(url: str) -> None:
    body = {"prompt": PROMPTS[0], "max_tokens": 900, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", url + "/v1/completions", json=body, timeout=60) as response:
        lines = response.iter_lines()
        next(lines)
        assert metric(url, "penstock_num_requests_running") == 1
    until = time.monotonic() + 30
    while metric(url, "penstock_kv_cache_usage_ratio") and time.monotonic() < until:
        time.sleep(0.05)
    assert metric(url, "penstock_kv_cache_usage_ratio") == metric(url, "penstock_num_requests_running") == 0
