"""How long a step may take before the engine says that it is wedged, and what else makes it say so."""
import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.compute.models import families, hf
from penstock.compute.models.decoder import build as build_program
from penstock.compute.program import Program
from penstock.core.config import EngineConfig
from penstock.core.types import SamplingParams
from penstock.serve.engine.build import build
from penstock.serve.engine.loop import Loop
from penstock.serve.engine.patience import longest_step_s, patience_s
from penstock.serve.engine.requests import Delta, Request
from penstock.serve.engine.selecting import Selecting
from tests.tiny import CONFIG, write_model

QWEN_14B = {
    "vocab_size": 152064, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 48, "num_attention_heads": 40,
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 32768, "tie_word_embeddings": False}
CHUNK_S = 95.0  # that 512 rows of it took on a slow processor of two threads


def program_of(**changes: object) -> Program:
    config = {**CONFIG, **changes}
    family = families.TABLE.load(hf.architecture(config, families.TABLE))
    return build_program(family.spec(config), family.names, config["max_position_embeddings"])


def asked(max_tokens: int = 8) -> Request:
    return Request("r", tuple(range(10, 30)), SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def loop(folder: Path) -> Iterator[Loop]:
    made = Loop(build(EngineConfig(model=str(folder), max_num_seqs=8)).engine, wedged_s=0.5)
    made.start()
    yield made
    made.stop()


def test_a_small_model_has_a_minute(folder: Path) -> None:
    assert patience_s(build(EngineConfig(model=str(folder)))) == 60.0


def test_a_large_model_has_ten_times_what_a_slow_machine_takes() -> None:
    program, config = program_of(**QWEN_14B), EngineConfig(threads=2, max_model_len=2048)
    longest_s = longest_step_s(program, config, "cpu")
    assert 10 * CHUNK_S < longest_s < 3600
    assert longest_step_s(program, EngineConfig(threads=4, max_model_len=2048), "cpu") == pytest.approx(longest_s / 2)
    assert longest_step_s(program, EngineConfig(threads=2, max_model_len=32768), "cpu") > 1.2 * longest_s  # attention
    assert longest_step_s(program, config, "cuda:0") == 60.0


def test_a_request_that_gets_no_step_is_not_healthy_even_where_the_scheduler_has_nothing_to_do(loop: Loop) -> None:
    loop._engine._answers["lost"] = None  # type: ignore[assignment]
    end_s = time.monotonic() + 10
    while loop.health().ok and time.monotonic() < end_s:
        time.sleep(0.05)
    assert "requests wait, but no step could be planned" in loop.health().reason
    del loop._engine._answers["lost"]
    assert loop.health().ok


def test_a_batch_that_waits_for_company_is_no_reason_to_worry(folder: Path) -> None:
    batching = "dynamic:size=8,window_ms=1500"
    loop = Loop(build(EngineConfig(model=str(folder), batching=batching)).engine, wedged_s=1.0)
    loop.start()

    async def main() -> None:
        waiting = asyncio.ensure_future(anext(loop.submit(asked())))
        began_s = time.monotonic()
        while not waiting.done():
            assert loop.health().ok
            await asyncio.sleep(0.02)
        assert time.monotonic() - began_s > 1.4 and (await waiting).token_ids

    try:
        asyncio.run(main())
    finally:
        loop.stop()


def test_answers_of_which_the_best_are_being_chosen_are_no_reason_to_worry(loop: Loop) -> None:
    class Slow:
        request, waits_for = asked(), ""

        def take(self, delta: Delta) -> None:
            pass

        def chosen(self) -> list[Delta]:
            time.sleep(1.0)
            assert loop.health().ok
            return [Delta(0, token_ids=(1, 2), done=True)]

    class Always:
        def of(self, request: Request) -> Slow:
            return Slow()

    async def main() -> None:
        assert [delta.token_ids async for delta in Selecting(loop, Always()).submit(asked())] == [(1, 2)]  # type: ignore[arg-type]

    asyncio.run(main())
