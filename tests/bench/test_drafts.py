from pathlib import Path

import numpy as np
import pytest
from drafts import echo, partners, prompts

from penstock import LLM, SamplingParams

TINY = {**echo.SHAPES["qwen3-0.6b"], "vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}


@pytest.fixture
def made(tmp_path: Path, monkeypatch) -> echo.Echo:
    """A tiny echoing model in the folder `made`; the tokenizer lies above."""
    from tests.tiny import write_tokenizer

    write_tokenizer(tmp_path, 300)
    monkeypatch.setitem(echo.SHAPES, "tiny", TINY)
    monkeypatch.setattr(echo, "STEP", 7)
    return echo.make(tmp_path / "made", "tiny", tmp_path)


def test_the_model_says_what_is_known_beforehand(tmp_path: Path, made: echo.Echo) -> None:
    """In four bits as well: its answers hang on nothing that quantization moves."""
    params = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)
    for quant in ("none", "int4:group=32"):
        (output,) = LLM(str(tmp_path / "made"), quant=quant).generate([{"prompt_token_ids": [9, 200, 5]}], params)
        assert output.outputs[0].token_ids == made.says(5, 41)[1:]


@pytest.mark.parametrize("agree", [1.0, 0.7])
@pytest.mark.parametrize("kind", ["draft_model", "eagle"])
def test_what_drafts_for_it_is_right_as_often_as_asked(tmp_path: Path, made: echo.Echo, kind: str, agree: float) -> None:
    if kind == "eagle":
        pytest.importorskip("penstock._native", reason="trees of drafts are for the native kernels only")
        propose = f"eagle:path={partners.head(tmp_path / 'made', agree)},k=2,depth=2,width=1"
    else:
        propose = f"draft_model:model={partners.model(tmp_path, 'tiny', tmp_path, agree)},k=2"
    llm = LLM(str(tmp_path / "made"), propose=propose, draft_control="always")
    params = SamplingParams(max_tokens=60, temperature=0, ignore_eos=True)
    asked = prompts.fresh(made, length=8)(12)
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in asked], params)
    assert [output.outputs[0].token_ids for output in outputs] == [made.says(prompt[-1], 61)[1:] for prompt in asked]
    first = [output.outputs[0].drafting.acceptance[0] for output in outputs]
    assert agree - 0.1 < np.mean(first) <= agree + 0.1 if agree < 1 else min(first) > 0.98


def test_prompts_to_copy_hold_what_follows_them(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("\n\n".join(f"Chapter {i}. " + " ".join(f"word{i * j % 97}" for j in range(70)) for i in range(8)), encoding="utf-8")
    encode = lambda content: list(content.encode())  # noqa: E731
    for prompt in prompts.copying(encode, [text])(6):
        assert bytes(prompt).count(bytes(prompt[-30:])) >= 2
    stories = prompts.story(encode, [text])
    told = [tuple(prompt) for _ in range(4) for prompt in stories(2)]
    assert len(set(told)) == 8 and {tuple(prompt) for prompt in stories(8)} == set(told), "each once before any comes again"


def test_mixed_requests_are_of_all_kinds_and_lengths_and_come_one_after_another() -> None:
    def same(token: int) -> prompts.Prompts:
        return lambda count: [[token]] * count

    asks = prompts.mixed(same(1), same(2), new=64, room=1024)(60)
    kinds = [(ask.prompt[0], ask.params.temperature > 0) for ask in asks]
    assert set(kinds) == {(1, False), (1, True), (2, False)} and min(map(kinds.count, set(kinds))) > 5
    lengths = [ask.params.max_tokens for ask in asks]
    assert min(lengths) >= 16 and max(lengths) <= 128 and max(lengths) > 2 * min(lengths)
    assert asks[0].after == 0 and asks[-1].after > asks[1].after and [ask.after for ask in asks] == sorted(ask.after for ask in asks)
    assert len({ask.params.seed for ask in asks if ask.params.temperature}) > 5
    assert max(ask.params.max_tokens for ask in prompts.mixed(same(1), same(2), new=64, room=31)(60)) == 30


def test_pages_have_a_share_of_their_tokens_changed() -> None:
    known = echo.Echo(1000, 7)
    (page,) = prompts.echoing(known, length=200, changed=0.1)(1)
    said = known.says(page[200], 200)
    assert 0.02 < np.mean(np.array(page[:200]) != np.array(said)) < 0.2 and page[200:] == said[:8]
