"""Long requests are worked on beside the event loop, in time that grows with their length alone."""
import asyncio
import json
import platform
import re
import subprocess
import sys
import threading
from typing import Any

import httpx
import pytest

from penstock.core.errors import RequestError
from penstock.serve.api import values
from penstock.serve.api.calling import calling_of
from penstock.serve.api.encoding import parts
from penstock.serve.api.responses.transcript import transcribed
from penstock.serve.api.slo import MAX_TEXT
from penstock.serve.api.values import show
from penstock.serve.api.work import LARGE, LongWork
from penstock.serve.text.messages import with_single_calls
from penstock.serve.text.tokenizer import Tokenizer
from penstock.serve.text.tools.keywords import keywords
from penstock.serve.text.tools.rules import Function
from tests.guard import ends
from tests.serve.api.fakes import Running

MANY = 60_000
TAKES_MEMORY = """
import asyncio
from pathlib import Path
from penstock.compute.models.load.hub import HOME
from penstock.serve.api.work import LongWork
from penstock.serve.text.tokenizer import Tokenizer

def of(name):
    return next(int(line.split()[1]) << 10 for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))

text, encode = "fox " * (1 << 18), Tokenizer.load(HOME / "brook").encode
before = of("VmRSS:")
num_tokens = len(asyncio.run(LongWork().run(len(text), encode, text)))
print(num_tokens, before, of("VmHWM:"), of("VmRSS:"))
"""
PRIVATE = "".join(map(chr, range(0xE000, 0xF900)))


def test_a_bug_in_long_work_does_not_keep_its_place() -> None:
    """asyncio cannot take StopIteration out of a thread: whoever waited for it would wait for ever."""
    async def ask() -> None:
        work = LongWork(at_once=1, long=0)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="StopIteration"):
                await asyncio.wait_for(work.run(1, next, iter(())), timeout=10)
        assert await work.run(1, sum, (1, 2)) == 3

    asyncio.run(ask())


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others keep less")
def test_the_system_has_the_memory_back_that_a_large_prompt_took() -> None:
    """In a process of its own, where nothing else takes memory or gives it back."""
    done = subprocess.run([sys.executable, "-c", TAKES_MEMORY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    num_tokens, before, peak, after = map(int, done.stdout.split())
    assert num_tokens >= 1 << 18
    assert peak - before > 160 * num_tokens  # some 470 bytes a token, of which 430 would be kept
    assert after - before < 40 * num_tokens


class Panic(BaseException):
    """As native code may raise it."""


@pytest.mark.parametrize("prompt", ["fox", "fox " * 10_000])
def test_a_panic_is_told_as_any_failure(server: Running, monkeypatch: pytest.MonkeyPatch, prompt: str) -> None:
    def panic(*given: Any, **options: Any) -> Any:
        raise Panic("index out of bounds")

    with monkeypatch.context() as patched:
        patched.setattr(Tokenizer, "encode", panic)
        for path, body in (
                ("/v1/completions", {"prompt": prompt}), ("/tokenize", {"prompt": prompt}), ("/v1/embeddings", {"input": prompt}),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], "stream": True})):
            response = server.client.post(path, json=body)
            assert response.status_code == 500 and "its log says why" in response.json()["error"]["message"]
    assert server.client.post("/v1/completions", json={"prompt": "fox", "max_tokens": 2}).status_code == 200


@pytest.mark.parametrize("more", [
    {"continue_final_message": True}, {"cache_control": {"type": "ephemeral"}}])
def test_a_message_of_all_private_use_characters_is_refused(http: httpx.Client, more: dict[str, Any]) -> None:
    message = {"role": "user", "content": PRIVATE} | ({} if "continue_final_message" in more else more)
    body = {"messages": [message]} | (more if "continue_final_message" in more else {})
    response = http.post("/v1/chat/completions", json=body)
    assert response.status_code == 400 and "private-use characters" in response.json()["error"]["message"]


def test_no_more_of_a_value_is_written_than_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    value: Any = [1] * 8
    for _ in range(6):
        value = [value] * 8
    pieces = []
    monkeypatch.setattr(values, "_pieces", counting(values._pieces, pieces))
    assert show(value).startswith("[[[[[[[1, 1, ") and len(show(value)) == 60
    assert len(pieces) < 300
    assert show([[[[[1]], {}]], [], {"a": None, "b": [True, "x"]}]) == '[[[[[1]], {}]], [], {"a": null, "b": [true, "x"]}]'


def counting(write: Any, calls: list[Any]) -> Any:
    def counted(value: Any) -> Any:
        calls.append(None)
        return write(value)

    return counted


def test_many_calls_and_results_of_a_template_that_shows_the_first_call_alone() -> None:
    calls = [{"id": f"call{number}", "function": {"name": "f", "arguments": {}}} for number in range(MANY)]
    results = [{"role": "tool", "tool_call_id": f"call{number}", "content": str(number)} for number in range(MANY)]
    nameless = [{"role": "tool", "content": "x"}, {"role": "tool", "tool_call_id": "no such call", "content": "y"}]
    with ends():
        single = with_single_calls([{"role": "assistant", "tool_calls": calls}, *nameless, *results[::-1]])
    wanted = [each for call, result in zip(calls, results, strict=True) for each in ({"role": "assistant", "tool_calls": [call]}, result)]
    assert single == [*wanted[:-1], *nameless, wanted[-1]]


def test_many_messages_with_several_calls() -> None:
    message = {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]}
    with ends():
        assert len(with_single_calls([message] * 4 * MANY)) == 8 * MANY


def test_many_texts_of_the_model_become_one_message() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    items = [("", call), *[("", {"type": "message", "role": "assistant", "content": str(at)}) for at in range(4 * MANY)]]
    with ends():
        (message,) = transcribed(items, "system").messages
    assert [part["text"] for part in message["content"]] == [str(at) for at in range(4 * MANY)]
    assert items[1][1]["content"] == "0"


def test_many_functions_of_which_many_are_allowed() -> None:
    tools = [{"type": "function", "function": {"name": f"f{number}"}} for number in range(MANY)]
    with ends():
        calling = calling_of({"tool_choice": "x"}, tools, ("auto", [f"f{number}" for number in range(0, MANY, 2)]), ".function")
    assert calling.callable == tuple(range(0, MANY, 2))
    with pytest.raises(RequestError, match='names "g", which is not one of the tools: "f0", "f1"'):
        calling_of({"tool_choice": "x"}, tools, ("auto", ["g"]), ".function")


def test_many_required_arguments_of_a_function_called_with_keywords() -> None:
    names = [f"a{number}" for number in range(MANY)]
    schema = {"type": "object", "properties": dict.fromkeys(names, False), "required": names[::-1]}
    with ends():
        rules = keywords(Function("f", schema), "f")
    assert len(rules) == 3 * len(names) + 3


def test_objectives_are_a_short_text(http: httpx.Client) -> None:
    body = {"prompt": "the fox", "max_tokens": 1}
    padded = "ttft=1s" + " " * (MAX_TEXT - 7)
    assert http.post("/v1/completions", json={**body, "slo": padded}).status_code == 200
    response = http.post("/v1/completions", json={**body, "slo": padded + " "})
    assert response.status_code == 400 and f"slo has {MAX_TEXT + 1} characters; at most {MAX_TEXT}" in response.json()["error"]["message"]


TOKEN = {"token": "x", "logprob": -0.5, "bytes": [120]}


@pytest.mark.parametrize("answer", [
    {"object": "list", "data": [{"index": at, "embedding": [at + 0.5] * 3000} for at in range(40)], "usage": None},
    {"choices": [{"index": 0, "logprobs": {"content": [{**TOKEN, "top_logprobs": [TOKEN] * 20}] * 500, "refusal": None}}]},
    {"tokens": list(range(50_000)), "token_strs": ["\u00e9"] * 5000}, {str(number): [number] * 40 for number in range(400)}, [], {},
    {1: {2: [0.5] * 900, None: [1] * 900}, False: 3, 0.5: 4},
    {"a": [], "b": {}, "c": [[], {}, None, True], "d": "x" * 5000, "e": [{"f": [1] * 2000}]}])
def test_no_long_part_of_an_answer_is_written_in_one_go(answer: Any) -> None:
    """What is holds up all other threads."""
    written = list(parts(answer))
    assert "".join(written) == json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    assert max(part.count(",") for part in written) < 2000


def test_an_object_of_many_names_is_written_in_few_parts() -> None:
    answer = {f"token{number}": number for number in range(MANY)} | {"long": list(range(MANY)), "": {}}
    written = list(parts(answer))
    assert "".join(written) == json.dumps(answer, separators=(",", ":"))
    assert len(written) < MANY / 50


@pytest.mark.parametrize(("path", "body", "functions"), [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "fox"}], "logit_bias": {}}, ["check_params", "encoded"]),
    ("/v1/completions", {"prompt": "fox", "logit_bias": {}}, ["check_params"]),
    ("/v1/completions", {"prompt": "fox", "max_tokens": 200, "ignore_eos": True, "logprobs": 20}, ["encoded"]),
    ("/tokenize", {"prompt": "fox " * 6000}, ["encoded"]),
    ("/detokenize", {"tokens": [70] * 9000}, ["encoded"]),
])
def test_large_inputs_and_answers_are_not_worked_on_by_the_event_loop(
    server: Running, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], functions: list[str]
) -> None:
    import penstock.serve.api.completions as completions
    import penstock.serve.api.errors as errors
    import penstock.serve.api.wish as wish

    threads: dict[str, set[int | None]] = {}

    def noted(module: Any, name: str) -> None:
        function = getattr(module, name)

        def note(*args: Any, **kwargs: Any) -> Any:
            threads.setdefault(name, set()).add(threading.get_ident())
            return function(*args, **kwargs)

        monkeypatch.setattr(module, name, note)

    noted(wish, "check_params")
    noted(completions, "check_params")
    noted(errors, "encoded")
    if "logit_bias" in body:
        body = {**body, "logit_bias": {str(number): 1 for number in range(2, 300)}, "user": "x" * 20_000, "max_tokens": 1}
    assert server.client.post(path, json=body).status_code == 200
    for name in functions if "logit_bias" not in body else functions[:1]:
        assert threads[name] and server.thread.ident not in threads[name], name


LARGEST = "fox " * (LARGE // 4)


@pytest.mark.parametrize(("path", "body", "name", "most"), [
    ("/v1/completions", {"prompt": LARGEST}, "prompt", 255), ("/v1/completions", {"prompt": ["a", LARGEST]}, "prompt[1]", 255),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": LARGEST}]}, "messages", 255),
    ("/v1/embeddings", {"input": [LARGEST]}, "input", 256), ("/v1/responses", {"input": LARGEST}, "input", 255)])
def test_what_is_too_long_by_its_bytes_alone_is_not_tokenized(
        server: Running, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], name: str, most: int) -> None:
    monkeypatch.setattr(Tokenizer, "encode", lambda *given, **options: pytest.fail("tokenized"))
    response = server.client.post(path, json=body)
    error = response.json()["error"]
    assert response.status_code == 400 and error["code"] == "context_length_exceeded", error
    size, least, longest = map(int, re.findall(r"(\d+) (?:bytes|tokens)", error["message"])[:3])
    said, why = error["message"].split("; ")
    assert said == f"{name} has {size} bytes, at least {least} tokens, each of {longest} bytes at most"
    assert why.removesuffix(", one of which the answer needs") == f"at most {most} fit: the context is 256 tokens"
    assert size >= LARGE and least == -(-size // longest)


def test_what_is_too_long_for_the_context_can_be_tokenized(server: Running) -> None:
    for body in ({"prompt": LARGEST}, {"messages": [{"role": "user", "content": LARGEST}]}):
        assert server.client.post("/tokenize", json=body).json()["count"] > LARGE // 4


def test_a_large_text_that_may_fit_is_tokenized(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.desk.parts.engine, "max_model_len", LARGE // 5)
    error = server.client.post("/v1/embeddings", json={"input": LARGEST}).json()["error"]["message"]
    assert re.match(r"input has \d+ tokens; at most \d+ fit", error)
