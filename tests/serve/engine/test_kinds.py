"""Promise 1 for what test_identity.py does not ask: several answers, searches, votes, stops, filters, schemas and choices, in other
number formats, and embeddings."""
import random
from pathlib import Path
from typing import Any

import pytest

from penstock import LLM, SamplingParams, StructuredOutputsParams
from penstock.core.types import Output
from tests.serve.engine.crowds import crowded
from tests.tiny import write_model

WORDS = "the old fox went over a river to see his friend who lived by the sea and told him all".split()
SHAPE = {"hidden_size": 64, "intermediate_size": 96}  # as much as a group of int4 needs
SCHEMA = {
    "type": "object", "properties": {"name": {"enum": ["alpha", "beta"]}, "n": {"type": "integer"}}, "required": ["name", "n"]}
KINDS: list[dict[str, Any]] = [
    {"n": 3, "temperature": 0.9},
    {"n": 2, "best_of": 4, "temperature": 0.9},
    {"self_consistency": {"n": 3}, "temperature": 1.0},
    {"beam_width": 3, "n": 2, "temperature": 0.0},
    {"beam_width": 2, "n": 2, "temperature": 0.0, "length_penalty": 0.5},
    {"stop": ("e", "th"), "temperature": 1.0},
    {"stop_token_ids": (101, 32, 116), "n": 2, "temperature": 1.0},
    {"min_tokens": 5, "logit_bias": {97: 5.0, 257: 4.0}, "stop": ("e",), "temperature": 0.0},
    {"top_k": 5, "min_p": 0.05, "typical_p": 0.9, "presence_penalty": 0.5, "prompt_logprobs": 1, "temperature": 0.8},
    {"structured_outputs": StructuredOutputsParams(json=SCHEMA), "temperature": 1.3, "max_tokens": 60},
    {"structured_outputs": StructuredOutputsParams(choice=["yes it is", "yes it was", "no"]), "n": 3, "temperature": 1.0},
]
TIGHT: dict[str, Any] = {"kv_tokens": 256, "block_size": 4, "max_num_batched_tokens": 19}
NGRAM: dict[str, Any] = {"propose": "ngram:least=1", "draft_control": "always"}
CROWDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # what each says depends on the first, and not on the second
    "crowded": ({}, {}),
    "preempted, chunked and drafted": ({}, {**TIGHT, **NGRAM}),
    "int8 activations": ({"quant": "int8:activations=int8"}, {**TIGHT, **NGRAM}),
    "int4": ({"quant": "int4"}, {**TIGHT, **NGRAM}),
    "bfloat16": ({"dtype": "bfloat16"}, {**TIGHT, **NGRAM}),
}
ROOMS: dict[str, dict[str, Any]] = {
    "crowded": {}, "small chunks": {"max_num_batched_tokens": 7}, "in little room": TIGHT, "token by token": {"max_num_batched_tokens": 1}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"), **SHAPE)


def requests() -> list[tuple[str, SamplingParams]]:
    """One of each kind; half of them begin alike."""
    rng = random.Random(5)
    shared = " ".join(rng.choices(WORDS, k=12)) + " "
    return [
        (shared * (i % 2) + " ".join(rng.choices(WORDS, k=rng.randint(1, 10))),
         SamplingParams(**{"max_tokens": rng.randint(8, 20), "seed": i, "logprobs": 2, **kind}))
        for i, kind in enumerate(KINDS)]


def said(output: Output) -> Any:
    answers = [
        (answer.index, answer.text, answer.finish_reason, answer.stop_reason, answer.token_ids, answer.logprobs, answer.cumulative_logprob)
        for answer in output.outputs]
    return answers, output.prompt_logprobs


@pytest.mark.parametrize(("format", "room"), CROWDS.values(), ids=CROWDS.keys())
def test_same_bits_as_alone(folder: Path, format: dict[str, Any], room: dict[str, Any]) -> None:
    if "dtype" in format:
        pytest.importorskip("penstock._native")
    lonely = LLM(str(folder), threads=1, prefix_cache=False, **format)
    alone = [said(lonely.generate(prompt, params)[0]) for prompt, params in requests()]
    llm = LLM(str(folder), threads=1, **format, **room)
    for i, output in crowded(llm, requests()):
        assert said(output) == alone[i], KINDS[i]
    counters = llm._engine._scheduler.counters
    assert not room or (counters.preemptions and counters.accepted_tokens)


@pytest.mark.parametrize("room", ROOMS.values(), ids=ROOMS.keys())
def test_same_embeddings_as_alone(folder: Path, room: dict[str, Any]) -> None:
    rng = random.Random(1)
    prompts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 30))) for _ in range(12)]
    lonely = LLM(str(folder), threads=1, prefix_cache=False)
    alone = [lonely.embed(prompt)[0].embedding for prompt in prompts]
    llm = LLM(str(folder), threads=1, **room)
    llm.generate(prompts, SamplingParams(max_tokens=3))  # which leaves their keys and values in the cache
    assert [output.embedding for output in llm.embed(prompts)] == alone
    llm._engine.check_integrity()
