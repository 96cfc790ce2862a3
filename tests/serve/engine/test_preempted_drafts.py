"""Promise 1 where it is hardest: sequences that lose their blocks while they are drafted for, and are drafted for again when they are back.
Drafts of every proposer are accepted in such sequences, and answers have the same bits as alone without drafts."""
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock import LLM, SamplingParams, StructuredOutputsParams
from penstock.compute.decoding import propose
from penstock.core.types import Output, PlannedSeq

SHARED = "An old man and his wife lived in a house at the edge of the wood"  # the beginning of some
OPENINGS = (
    "The wind blew all night, and in the morning the boat was", "\"Who has taken my shoes?\" cried the", "There was once a king who",
    "The little hen ran to the barn and", "Down in the deep blue sea there lived a", "Nobody knew where the path went, but the girl")
OBJECT = {
    "type": "object", "properties": {"name": {"type": "string", "maxLength": 24}, "coat": {"enum": ["red", "deep blue"]}},
    "required": ["name", "coat"], "additionalProperties": False}
ROOMS: dict[str, dict[str, Any]] = {  # in which not all that run find room
    "few at once": {"max_num_seqs": 3, "kv_tokens": 96, "block_size": 4, "max_num_batched_tokens": 29},
    "many at once": {"max_num_seqs": 8, "kv_tokens": 144, "block_size": 16, "max_num_batched_tokens": 120},
}


def greedy(number: int) -> SamplingParams:
    return SamplingParams(max_tokens=24 + number, temperature=0, logprobs=1, ignore_eos=True)


def sampled(number: int) -> SamplingParams:
    return SamplingParams(
        max_tokens=24 + number, temperature=(0.3, 0.8)[number % 2], top_p=(1.0, 0.9)[number % 3 == 0], top_k=(0, 20)[number % 5 == 0],
        seed=number, logprobs=1, n=1 + (number == 4), ignore_eos=True)


def restricted(number: int) -> SamplingParams:
    """By penalties, grammars, stop strings, biases."""
    plain = (sampled, greedy)[number % 4 > 1](number)
    return (
        replace(plain, prompt_logprobs=1, stop=("zz",)), replace(plain, structured_outputs=StructuredOutputsParams(regex="[a-z ,.]+")),
        replace(plain, stop=("gh", ". The"), min_tokens=9), replace(plain, frequency_penalty=0.1, logit_bias={97: 2.0}),
        replace(plain, structured_outputs=StructuredOutputsParams(json=OBJECT)), replace(plain, repetition_penalty=1.1),
    )[number % 6]


KINDS: dict[str, Callable[[int], SamplingParams]] = {"greedy": greedy, "sampled": sampled, "restricted": restricted}


def requests(kind: str) -> list[tuple[str, SamplingParams]]:
    rng = random.Random(kind)
    made = []
    for number in range(8):
        opening = OPENINGS[number % 6]
        beginning = f"{SHARED}, with a {rng.choice(('dog', 'pig', 'cow'))}. " if number % 3 == 0 else f"{opening} " * (number % 3)
        made.append((beginning + opening, KINDS[kind](number)))
    return made


def said(output: Output) -> Any:
    answers = [(each.text, each.finish_reason, each.stop_reason, each.token_ids, each.logprobs) for each in output.outputs]
    return answers, output.prompt_logprobs


@pytest.fixture(scope="module")
def alone() -> dict[str, list[Any]]:
    llm = LLM("brook", prefix_cache=False, threads=1)
    return {kind: [said(llm.generate(prompt, params)[0]) for prompt, params in requests(kind)] for kind in KINDS}


def accepted_afterwards(llm: LLM) -> list[int]:
    """Is filled with the number of the proposer's drafts that are accepted in each pass of a sequence that has been preempted."""
    drafter, seqs, found = llm._engine._runner._drafter, llm._engine._scheduler._seqs, []
    record = drafter.record_verified

    def watched(planned: PlannedSeq, rows: list[int], choices: list[int | None]) -> None:
        if planned.seq_id in drafter._proposed and seqs[planned.seq_id].num_preemptions:
            found.append(len(rows) - 1)
        record(planned, rows, choices)

    drafter.record_verified = watched
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("room", ROOMS.values(), ids=ROOMS.keys())
@pytest.mark.parametrize("proposer", [*propose.TABLE, *propose.TABLE.also])
def test_drafts_accepted_after_preemption_change_no_bit(
    alone: dict[str, list[Any]], proposer: str, room: dict[str, Any], kind: str
) -> None:
    llm = LLM("brook", propose=proposer, draft_control="always", max_model_len=96, threads=1, **room)
    accepted = accepted_afterwards(llm)
    outputs = llm.generate([prompt for prompt, _ in requests(kind)], [params for _, params in requests(kind)])
    assert [said(output) for output in outputs] == alone[kind]
    llm._engine.check_integrity()
    counters = llm._engine._scheduler.counters
    assert counters.preemptions and counters.drafted_tokens > counters.accepted_tokens
    assert sum(accepted) and not llm._engine._runner._drafter.has_failed
