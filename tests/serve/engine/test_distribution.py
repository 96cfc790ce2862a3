"""What is drawn has the target's distribution, whoever drafts: chi-square over all answers of three tokens, of a model served whole."""
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from penstock import LLM, SamplingParams
from penstock.compute.decoding import propose
from tests.tiny import write_heads, write_model

NUM_ANSWERS, NUM_TOKENS, TOP_K = 1200, 3, 2
PROMPT = "abcabcabcabca"
ASKED = {"draft_model": ":model={folder}", "ngram": ":least=1,n=3", "suffix": ":likely=0"}  # so that something is drafted
PARAMS = SamplingParams(max_tokens=8, temperature=1.6, top_k=TOP_K, ignore_eos=True)  # those after the third make room for drafts
ROOM = {"lookahead": 20, "eagle": 20}  # tokens of an answer where drafts come in dozens, and where they are seldom accepted


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_heads(write_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def wanted(folder: Path) -> dict[tuple[int, ...], float]:
    """Probabilities of all answers, of the model's log-probabilities after each beginning."""
    llm = LLM(folder)
    prompt = llm.get_tokenizer().encode(PROMPT)
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(NUM_TOKENS):
        beginnings = [{"prompt_token_ids": [*prompt, *answer]} for answer in found]
        outputs = llm.generate(beginnings, SamplingParams(max_tokens=1, temperature=0, logprobs=TOP_K, ignore_eos=True))
        longer: dict[tuple[int, ...], float] = {}
        for (answer, share), output in zip(found.items(), outputs, strict=True):
            likeliest = sorted([(each.logprob, token) for token, each in output.outputs[0].logprobs[0].items()])[-TOP_K:]
            weights = np.exp(np.array([logprob for logprob, _ in likeliest]) / PARAMS.temperature)
            longer |= {(*answer, token): share * weight for (_, token), weight in zip(likeliest, weights / weights.sum(), strict=True)}
        found = longer
    return found


@pytest.mark.parametrize("proposer", [None, *propose.TABLE])
def test_answers_come_as_often_as_their_probabilities_say(
        folder: Path, wanted: dict[tuple[int, ...], float], proposer: str | None, first_seed: int) -> None:
    if proposer is not None and propose.TABLE.load(proposer).needs.tree_masks:
        pytest.importorskip("penstock._native", reason="trees of drafts are for the native kernels only")
    asked: dict[str, Any] = {} if proposer is None else {
        "propose": proposer + ASKED.get(proposer, "").format(folder=folder), "draft_control": "always"}
    llm = LLM(folder, **asked)
    params = replace(PARAMS, max_tokens=ROOM.get(proposer or "", PARAMS.max_tokens))
    outputs = llm.generate([PROMPT] * NUM_ANSWERS, [replace(params, seed=first_seed + i) for i in range(NUM_ANSWERS)])
    found = Counter(tuple(output.outputs[0].token_ids[:NUM_TOKENS]) for output in outputs)
    assert len(wanted) == TOP_K**NUM_TOKENS and found.keys() <= wanted.keys()
    assert chisquare([found[answer] for answer in wanted], [share * NUM_ANSWERS for share in wanted.values()]).pvalue > 1e-3
    assert (llm._engine._scheduler.counters.accepted_tokens > 0) is (proposer is not None)
