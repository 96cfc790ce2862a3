"""Several answers to one prompt: the prompt is computed once, and its keys and values are held once."""
from pathlib import Path
from typing import Any

import pytest

from penstock import LLM, SamplingParams
from penstock.compute.runner.runner import Runner
from penstock.core.events import StepRecord
from penstock.core.types import StepPlan, StepResult
from tests.tiny import write_model

PROMPT = {"prompt_token_ids": [1 + i % 200 for i in range(128)]}  # 8 blocks of 16
NUM = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def run(folder: Path, params: SamplingParams, **options: Any) -> list[StepRecord]:
    llm = LLM(folder, prefix_cache=False, max_num_batched_tokens=512, **options)
    with llm._recorder.recording() as records:
        llm.generate(PROMPT, params)
    assert llm._engine.gauges().kv_blocks_used == 0
    llm._engine.check_integrity()
    return records


@pytest.mark.parametrize("params", [
    SamplingParams(n=NUM, temperature=1, seed=1, max_tokens=8, ignore_eos=True),
    SamplingParams(n=1, best_of=NUM, temperature=1, seed=1, max_tokens=8, ignore_eos=True),
    SamplingParams(self_consistency={"n": NUM}, temperature=1, seed=1, max_tokens=8, ignore_eos=True)], ids=["n", "best_of", "votes"])
def test_answers_share_the_prompt(folder: Path, params: SamplingParams) -> None:
    records = run(folder, params)
    # The others compute the prompt's last token for themselves: from there on they may differ.
    assert sum(record.num_prefill_tokens for record in records) == 128 + NUM - 1
    assert sum(record.num_decode_tokens for record in records) == NUM * 7
    assert max(record.kv_blocks_used for record in records) <= 8 + (NUM - 1) * 2 + 1  # each writes the prompt's last block and one more


@pytest.mark.parametrize("more", [{}, {"prompt_logprobs": 0}])
def test_answers_share_the_prompt_though_the_first_ends_with_its_first_token(folder: Path, more: dict[str, int]) -> None:
    records = run(folder, SamplingParams(n=NUM, temperature=1, seed=1, max_tokens=1, ignore_eos=True, **more))
    assert sum(record.num_prefill_tokens for record in records) == 128 + NUM - 1 and len(records) == 2


@pytest.mark.parametrize("params", [SamplingParams(n=NUM, max_tokens=8), SamplingParams(beam_width=NUM, temperature=0, max_tokens=8)])
def test_the_runner_is_told_of_one_prompt(folder: Path, params: SamplingParams, monkeypatch: pytest.MonkeyPatch) -> None:
    told, execute = [], Runner.execute

    def watched(runner: Runner, plan: StepPlan) -> StepResult:
        told.extend([planned.new for planned in plan.seqs if planned.new is not None])
        return execute(runner, plan)

    monkeypatch.setattr(Runner, "execute", watched)
    run(folder, params)
    assert len(told) == NUM and len({id(info.prompt) for info in told}) == 1 and told[0].prompt == tuple(PROMPT["prompt_token_ids"])


def test_without_sharing_it_would_be_more(folder: Path) -> None:
    """What the numbers above are to be compared with: as many requests of their own."""
    llm = LLM(folder, prefix_cache=False, max_num_batched_tokens=512)
    with llm._recorder.recording() as records:
        llm.generate([PROMPT] * NUM, SamplingParams(temperature=1, max_tokens=8, ignore_eos=True))
    assert sum(record.num_prefill_tokens for record in records) == 128 * NUM
    assert max(record.kv_blocks_used for record in records) >= 8 * NUM


@pytest.mark.parametrize("block_size", [4, 16])
def test_beams_share_all_that_they_have_in_common(folder: Path, block_size: int) -> None:
    width, length = 4, 24
    params = SamplingParams(beam_width=width, n=width, temperature=0, max_tokens=length, ignore_eos=True)
    records = run(folder, params, block_size=block_size)
    assert sum(record.num_prefill_tokens for record in records) == 128
    # One token for each beam in each step after the first: no beam computes anything of its past again.
    assert [record.num_decode_tokens for record in records[1:]] == [width] * (len(records) - 1)
    own = -(-length // block_size) + 1
    assert max(record.kv_blocks_used for record in records) <= 128 // block_size + width * own
