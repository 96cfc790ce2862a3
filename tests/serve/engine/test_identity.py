"""Promise 1: a request's tokens and log-probabilities are the same bits, alone and crowded, however its prompt was cut, whatever the
prefix cache held, and whether it was preempted."""
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import LLM, SamplingParams, StructuredOutputsParams
from penstock.compute.decoding import propose
from penstock.compute.decoding.control.contract import Always
from penstock.compute.decoding.propose.contract import Draftable, Drafts
from penstock.compute.runner.drafter import Drafter
from penstock.core.clock import MonotonicClock
from penstock.core.errors import RequestError
from penstock.core.needs import Needs
from penstock.core.types import Output
from penstock.serve.engine.requests import Request
from tests.serve.engine.crowds import crowded
from tests.tiny import write_heads, write_model

WORDS = "the old fox went over a river to see his friend who lived by the sea and told him all".split()
TIGHT: dict[str, Any] = {"kv_tokens": 256, "block_size": 4, "max_num_batched_tokens": 19}
ALWAYS = {"draft_control": "always"}
ASKED = {"draft_model": ":model={other}"}  # what a proposer must be told
CROWDED: dict[str, dict[str, Any]] = {
    "crowded": {},
    "small chunks": {"max_num_batched_tokens": 7},
    "odd chunks": {"max_num_batched_tokens": 33, "max_num_seqs": 5},
    "no prefix cache": {"prefix_cache": False},
    "preempted": {"kv_tokens": 256, "block_size": 4},
    "preempted and chunked": {"kv_tokens": 288, "block_size": 16, "max_num_batched_tokens": 19, "evict": "lfu"},
    "large blocks": {"block_size": 64},
    "static batches": {"batching": "static:size=5"},
    "shortest first": {"order": "shortest", "max_num_seqs": 3},
    **{f"drafted by {name}": {"propose": name + ASKED.get(name, ""), **ALWAYS} for name in propose.TABLE},
    **{f"drafted by {name}, preempted and chunked": {"propose": name + ASKED.get(name, ""), **ALWAYS, **TIGHT} for name in propose.TABLE},
    "drafted by the model itself": {"propose": "draft_model:model={folder},k=3", **ALWAYS},
    "drafted by the model itself, in little room": {"propose": "draft_model:model={folder},k=3,kv_tokens=64", **ALWAYS, **TIGHT},
    "drafted as far as it pays": {"propose": "auto"},
    "drafted by a model as far as it pays": {"propose": "draft_model:model={folder},k=3", **TIGHT},
    "drafted freely": {"propose": "suffix:likely=0", **ALWAYS},
    "drafted from little, preempted and chunked": {"propose": "ngram:least=1,n=3", **ALWAYS, **TIGHT},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_heads(write_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same tokens, which seldom agrees."""
    return write_model(tmp_path_factory.mktemp("other"), seed=1)


def requests() -> list[tuple[str, SamplingParams]]:
    rng = random.Random(5)
    shared = " ".join(rng.choices(WORDS, k=20))
    made = []
    for number in range(24):
        prompt = (shared + " " if number % 3 == 0 else "") + " ".join(rng.choices(WORDS, k=rng.randint(1, 25)))
        hot = number % 2 == 0
        params = SamplingParams(
            max_tokens=rng.randint(1, 24), temperature=0.9 if hot else 0.0, top_p=0.8 if number % 4 == 0 else 1.0, seed=number, logprobs=3)
        if number % 6 == 1:
            params = replace(params, repetition_penalty=1.2, frequency_penalty=0.3)
        if number % 6 == 5:
            params = replace(params, prompt_logprobs=1)
        if number % 6 == 3:
            params = replace(params, structured_outputs=StructuredOutputsParams(regex="(old|grey) (fox|king), [a-z ]+"))
        made.append((prompt, params))
    return made


def said(output: Output) -> Any:
    answer = output.outputs[0]
    return answer.text, answer.finish_reason, answer.token_ids, answer.logprobs, answer.cumulative_logprob, output.prompt_logprobs


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[Any]:
    llm = LLM(str(folder), prefix_cache=False)
    return [said(llm.generate(prompt, params)[0]) for prompt, params in requests()]


@pytest.mark.parametrize("options", CROWDED.values(), ids=CROWDED.keys())
def test_same_bits_as_alone(folder: Path, other: Path, alone: list[Any], options: dict[str, Any]) -> None:
    if "propose" in options:
        options = {**options, "propose": options["propose"].format(folder=folder, other=other)}
    llm = LLM(str(folder), **options)
    for i, output in crowded(llm, requests()):
        assert said(output) == alone[i], f"request {i}"
    if "kv_tokens" in options:
        assert llm._engine._scheduler.counters.preemptions > 0


class Knowing:
    """Drafts the true continuation, up to a token that is wrong here and there."""

    needs = Needs(tree_masks=True)

    def __init__(self, truths: list[list[int]], num_prompt: dict[int, int], branches: bool) -> None:
        self.branches = branches
        self.truths = {tuple(tokens[: num_prompt[i]]): tokens for i, tokens in enumerate(truths)}
        self.rng = random.Random(11)

    def lookahead(self) -> int:
        return 6

    def propose(self, rows: list[Draftable]) -> list[Drafts]:
        guesses = [self.guess(list(row.tokens)) for row in rows]
        return [self.tree(guess) if self.branches else Drafts(guess) for guess in guesses]

    def forget(self, seq_id: int) -> None:
        pass

    def guess(self, tokens: list[int]) -> tuple[int, ...]:
        found = [truth for prompt, truth in self.truths.items()
                 if tuple(tokens[: len(prompt)]) == prompt and truth[: len(tokens)] == tokens]
        rest = found[0][len(tokens) : len(tokens) + self.rng.randint(0, 6)] if found else [1, 2]
        return tuple([token if self.rng.random() < 0.8 else 3 for token in rest])

    def tree(self, guess: tuple[int, ...]) -> Drafts:
        """With wrong siblings before, after and below what is guessed."""
        tokens: list[int] = []
        parents: list[int] = []
        trunk = -1
        for token in guess:
            before = self.rng.randint(0, 2)
            children = [4 + i for i in range(before)] + [token] + [9][: self.rng.randint(0, 1)]
            tokens += children
            parents += [trunk] * len(children)
            trunk = len(tokens) - len(children) + before
        return Drafts(tuple(tokens), tuple(parents))


@pytest.mark.parametrize("branches", [False, True], ids=["chains", "trees"])
@pytest.mark.parametrize("options", [{}, TIGHT], ids=["roomy", "tight"])
def test_accepted_drafts_change_no_bit(folder: Path, alone: list[Any], options: dict[str, Any], branches: bool) -> None:
    llm = LLM(str(folder), **options)
    made = requests()
    plain = llm.generate([prompt for prompt, _ in made], [params for _, params in made])
    truths = [[*output.prompt_token_ids, *output.outputs[0].token_ids] for output in plain]
    llm = LLM(str(folder), **options)
    knowing = Knowing(truths, {i: len(output.prompt_token_ids) for i, output in enumerate(plain)}, branches)
    llm._engine._runner._drafter = Drafter(knowing, Always(knowing.lookahead()), MonotonicClock(), llm._built.spec.vocab_size)
    outputs = llm.generate([prompt for prompt, _ in made], [params for _, params in made])
    assert [said(output) for output in outputs] == alone
    counters = llm._engine._scheduler.counters
    assert 0 < counters.accepted_tokens < counters.drafted_tokens
    assert not options or counters.preemptions
    llm._engine.check_integrity()


def test_same_bits_on_torch(folder: Path) -> None:
    pytest.importorskip("torch")
    backend = "reference:arrays=torch"
    lonely = LLM(str(folder), backend=backend, prefix_cache=False, threads=1)
    expected = [said(lonely.generate(prompt, params)[0]) for prompt, params in requests()[:10]]
    llm = LLM(str(folder), backend=backend, max_num_batched_tokens=11, kv_tokens=256, block_size=4, threads=1)
    made = requests()[:10]
    outputs = llm.generate([prompt for prompt, _ in made], [params for _, params in made])
    assert [said(output) for output in outputs] == expected


def test_cached_prefix_gives_the_same_bits(folder: Path) -> None:
    llm = LLM(str(folder))
    prompt, params = "one two three four five six seven eight nine", SamplingParams(max_tokens=8, temperature=0, logprobs=2)
    first, second = llm.generate(prompt, params)[0], llm.generate(prompt, params)[0]
    assert second.num_cached_tokens >= 32 and first.num_cached_tokens == 0
    assert said(first) == said(second)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_an_embedding_behind_a_cached_prefix_has_the_same_bits(folder: Path, backend: str) -> None:
    beginning = "one two three four five six seven eight nine "
    llm, without = (LLM(str(folder), backend=backend, prefix_cache=cached) for cached in (True, False))
    llm.embed(beginning + "and a half")
    for prompt in (beginning + "ten", beginning + "and a half"):
        found, wanted = llm.embed(prompt)[0], without.embed(prompt)[0]
        assert found.num_cached_tokens >= 32 and wanted.num_cached_tokens == 0 and found.embedding == wanted.embedding


def test_a_token_that_the_model_does_not_have_is_refused(folder: Path) -> None:
    """Tokenizers may know more tokens than the embedding has rows."""
    engine = LLM(str(folder))._engine
    size = engine.facts.vocab_size
    engine.check(Request("fits", (1, size - 1), SamplingParams()))
    with pytest.raises(RequestError, match=f"token {size}, which the tokenizer has but the model, with {size} tokens, does not"):
        engine.check(Request("too large", (1, size, 2), SamplingParams()))
