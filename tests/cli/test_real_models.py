"""`generate` and `chat` to a good end with real models, in this process."""
import json
from pathlib import Path
from typing import Any

import pytest

from penstock import LLM, SamplingParams
from tests.tiny import write_model

PARAMS = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
FLAGS = ["--temperature", "0", "--max-tokens", "12", "--threads", "1"]
ROOM = ["--kv-tokens", "512"]


@pytest.fixture(autouse=True)
def no_limits_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def expected(model: str, prompt: Any) -> Any:
    return LLM(model, threads=1).generate(prompt, PARAMS)[0]


def test_generate_streams_what_the_default_model_says(penstock: Any) -> None:
    status, out, err = penstock(["generate", "-p", "Once upon a time", "--ignore-eos", *FLAGS, *ROOM])
    want = expected("brook", "Once upon a time").outputs[0].text
    assert (status, out, err) == (0, want + "\n", "") and want.strip()


@pytest.mark.parametrize("drafts", [[], ["--propose", "ngram:least=1", "--draft-control", "always"]], ids=["plain", "drafted"])
def test_generate_tells_a_models_answer_as_json(penstock: Any, folder: Path, drafts: list[str]) -> None:
    status, out, _ = penstock(["generate", str(folder), "-p", "fox fox fox", "--json", "--logprobs", "2", "--ignore-eos", *FLAGS, *drafts])
    told, want = json.loads(out), expected(str(folder), "fox fox fox")
    answer = want.outputs[0]
    assert status == 0 and (told["text"], told["token_ids"], told["finish_reason"]) == (answer.text, answer.token_ids, "length")
    assert (told["prompt_tokens"], told["completion_tokens"]) == (len(want.prompt_token_ids), 12)
    assert [row["token_id"] for row in told["logprobs"]] == answer.token_ids
    assert all(row["rank"] == 1 and row["logprob"] == row["top"][0]["logprob"] and len(row["top"]) == 2 for row in told["logprobs"])
    assert told["ttft_s"] > 0 and told["decode_tokens_per_s"] > 0 and bool(told["drafted"]) == bool(drafts)


def test_chat_remembers_until_it_is_told_to_forget(penstock: Any, folder: Path, pipe: Any) -> None:
    pipe(b"hello\nand then?\n/reset\nhello\n/quit\nnever asked\n")
    status, out, err = penstock(["chat", str(folder), *FLAGS])
    assert status == 0 and err == ""
    llm, talk = LLM(str(folder), threads=1), []
    answers = []
    for question in ("hello", "and then?"):
        talk.append({"role": "user", "content": question})
        answers.append(llm.chat(talk, SamplingParams(temperature=0, max_tokens=12))[0].outputs[0].text)
        talk.append({"role": "assistant", "content": answers[-1]})
    first, second, again, *rest = out.split("\n[TTFT ")
    assert first == again.partition("]\n")[2] == answers[0] and second.partition("]\n")[2] == answers[1] != answers[0]
    assert len(rest) == 1 and rest[0].endswith("]\n")
