"""The models that come along: they load, they are small, brook writes English, rill would often choose as brook does."""
import math
from pathlib import Path

import pytest

import penstock
from penstock import LLM, SamplingParams
from penstock.core.drafting import together
from penstock.serve.text.chat import ChatTemplate
from penstock.serve.text.tokenizer import Tokenizer

HOME = Path(penstock.__file__).parent / "bundled"
PROMPTS = (
    "Once upon a time there was a miller who had three sons, and the youngest of them was called",
    "The rabbit sat in the long grass and listened. Something was coming down the path, and",
    "\"I shall never find my way home,\" said the boy, and he sat down upon a stone and began to",
    "Far away over the hills the old woman kept a garden, and in the middle of it stood a tree whose",
    "When the bear woke up in the spring he was very hungry, so he went down to the river and",
)
COMMON = {"the", "and", "a", "to", "of", "he", "was", "said", "in", "that", "his", "it", "i", "you", "her", "she", "had", "not", "for"}


@pytest.fixture(scope="module")
def brook() -> LLM:
    return LLM("brook")


def test_they_are_small_and_speak_the_same_tokens() -> None:
    assert sum(file.stat().st_size for file in HOME.rglob("*") if file.is_file()) < 22_000_000
    assert (HOME / "brook/tokenizer.json").read_bytes() == (HOME / "rill/tokenizer.json").read_bytes()
    assert Tokenizer.load(HOME / "brook").vocab_size == 4096


def test_heads_fit_in_four_megabytes() -> None:
    assert 0 < sum((HOME / f"brook/{kind}.safetensors").stat().st_size for kind in ("eagle", "medusa")) <= 4_000_000


def test_brook_writes_english(brook: LLM) -> None:
    """Its greedy text is likely to itself and made of words; that of a broken model is neither."""
    for output in brook.generate(list(PROMPTS), SamplingParams(temperature=0, max_tokens=40, logprobs=0, ignore_eos=True)):
        answer = output.outputs[0]
        words = [word.strip(".,;:!?\"'").lower() for word in answer.text.split()]
        assert sum(word in COMMON for word in words) > len(words) / 5, answer.text
        assert math.exp(-answer.cumulative_logprob / len(answer.token_ids)) < 8


def test_brook_goes_on_behind_a_space(brook: LLM) -> None:
    output = brook.generate("The king had a daughter who lived in a high ", SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))[0]
    assert output.outputs[0].text.strip()[:1].isalpha(), output.outputs[0].text


def test_rill_chooses_as_brook_does(brook: LLM) -> None:
    rill = LLM("rill")
    same = total = 0
    for output in brook.generate(list(PROMPTS), SamplingParams(temperature=0, max_tokens=48, ignore_eos=True)):
        ids, made = output.prompt_token_ids, output.outputs[0].token_ids
        scored = rill.generate({"prompt_token_ids": ids + made}, SamplingParams(max_tokens=1, prompt_logprobs=0))[0].prompt_logprobs
        same += sum(scored[len(ids) + i][token].rank == 1 for i, token in enumerate(made))
        total += len(made)
    assert same / total >= 0.55


def test_the_chat_template_opens_a_story() -> None:
    template = ChatTemplate.of(Tokenizer.load(HOME / "brook"))
    asked = [{"role": "system", "content": "It was winter."}, {"role": "user", "content": "Tell me about an old fox."}]
    opening = '"Tell me about an old fox." said the little girl.\n\nOnce upon a time there was an old fox.'
    assert template.render(asked) == f"<|begin|>It was winter.\n\n{opening}"
    going_on = [{"role": "user", "content": "Once upon a time"}, {"role": "assistant", "content": " there was a goat."},
                {"role": "user", "content": "And then?"}]
    assert template.render(going_on) == '<|begin|>Once upon a time\n\nthere was a goat.\n\n"And then?" asked the little girl.'


@pytest.mark.parametrize(("propose", "least"), [("eagle", 2.8), ("medusa", 2.3)])
def test_heads_guess_what_brook_says(brook: LLM, propose: str, least: float) -> None:
    """Openings that nobody trained on; the same answers in fewer passes."""
    params = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
    drafted = LLM("brook", propose=propose, draft_control="always").generate(list(PROMPTS), params)
    assert [each.outputs[0].token_ids for each in drafted] == [each.outputs[0].token_ids for each in brook.generate(list(PROMPTS), params)]
    total = together(each.drafting for each in drafted)
    assert total.tokens_per_draft_pass is not None and total.tokens_per_draft_pass > least
