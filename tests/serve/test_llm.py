"""Offline use: what is no prompt, no parameter, no conversation or no option is refused in one sentence; threads take turns."""
import importlib.util
import json
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import LLM, SamplingParams, StructuredOutputsParams
from penstock.compute.native import NAME
from penstock.core.config import EngineConfig
from penstock.core.errors import RequestError, UsageError
from penstock.core.hardware import FORMAT, limits_file
from penstock.serve.engine import build
from penstock.serve.engine.machine import UNBUILT, has_native, processor
from penstock.serve.llm import as_options
from penstock.serve.spans import Span
from penstock.serve.text.tokenizer import Tokenizer
from penstock.study.doctor.examine import this_host
from tests.tiny import write_model

SHORT = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return LLM(folder)


@pytest.mark.parametrize("prompts", [
    None, 5, b"text", [None], [b"text"], [1, 2], {}, {"prompt": 5}, {"prompt": None}, {"prompt_token_ids": None}, {"prompt_token_ids": 5},
    {"prompt_token_ids": "abc"}, {"prompt_token_ids": [1.0]}, {"prompt_token_ids": [-1]}, {"prompt": "a", "salt": "b"}])
def test_what_is_no_prompt_is_refused(llm: LLM, prompts: Any) -> None:
    with pytest.raises(RequestError, match="prompt"):
        llm.generate(prompts, SHORT)
    with pytest.raises(RequestError, match="prompt"):
        llm.embed(prompts)


@pytest.mark.parametrize("params", [{"max_tokens": 2}, 5, [5], "greedy"])
def test_what_is_no_sampling_params_is_refused(llm: LLM, params: Any) -> None:
    with pytest.raises(RequestError, match="sampling_params"):
        llm.generate(["hi"], params)


@pytest.mark.parametrize("messages", [None, "hi", [5], [[]], [{"role": "user"}], [{"content": "hi"}], [{"role": 5, "content": "hi"}]])
def test_what_is_no_conversation_is_refused(llm: LLM, messages: Any) -> None:
    with pytest.raises(RequestError, match="message"):
        llm.chat(messages, SHORT)


@pytest.mark.parametrize(("name", "value"), [
    ("model", 5), ("block_size", "16"), ("kv_tokens", 1.5), ("max_num_seqs", True), ("prefix_cache", "no"), ("evict", 5), ("seed", "x")])
def test_options_of_another_type_are_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} must be of type .*, not {value!r}"):
        LLM(**{name: value})


def test_no_proposer_is_called_none_as_on_the_command_line(folder: Path) -> None:
    assert LLM(folder, propose="none").generate("a", SamplingParams(max_tokens=1))[0].drafting.passes == 0


def test_all_times_are_told_in_order(llm: LLM) -> None:
    best_of = SamplingParams(max_tokens=3, temperature=1.0, n=1, best_of=3, ignore_eos=True)
    beams = SamplingParams(max_tokens=3, n=2, beam_width=2, ignore_eos=True)
    for output in [*llm.generate(["a", "b", "c"], [SHORT, best_of, beams]), *llm.embed("d")]:
        times = [output.arrival_s, output.first_scheduled_s, output.first_token_s, output.finished_s]
        assert None not in times and times == sorted(times, key=float), times  # type: ignore[arg-type]


@pytest.mark.parametrize("more", [{"n": 2, "best_of": 3}, {"n": 2, "beam_width": 3, "temperature": 0}])
def test_rates_of_answers_that_are_told_at_the_end_are_those_of_their_steps(
        llm: LLM, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    engine, ends = llm._engine, []
    step = engine.step

    def timed() -> Any:
        deltas = step()
        ends.append(engine.clock.now())
        return deltas

    monkeypatch.setattr(engine, "step", timed)
    output, timings = llm.complete("a hill", SamplingParams(max_tokens=5, ignore_eos=True, **more))
    assert output.first_token_s is not None and output.first_token_s <= ends[0] < ends[-1] <= (output.finished_s or 0.0)
    assert timings.decode_tokens_per_s is not None and timings.decode_tokens_per_s <= 8 / (ends[-1] - ends[0])


def test_of_a_prompt_that_is_cached_whole_one_token_is_computed(llm: LLM) -> None:
    for _ in range(2):
        output, timings = llm.complete({"prompt_token_ids": [7] * 32}, SHORT)
    assert output.num_cached_tokens == 32 and (timings.prefill_tokens_per_s or 0) > 0


def test_threads_take_turns(llm: LLM) -> None:
    prompts = [f"story {number}" for number in range(6)]
    alone = [llm.generate(prompt, SHORT)[0].outputs[0].token_ids for prompt in prompts]
    found: dict[int, list[int]] = {}

    def ask(number: int) -> None:
        found[number] = llm.generate(prompts[number], SHORT)[0].outputs[0].token_ids

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found.get(number) for number in range(6)] == alone


def test_a_thread_that_has_generated_waits_for_one_that_is_about_to(llm: LLM) -> None:
    alone = llm.generate("a", SHORT)[0].outputs[0].token_ids
    llm._lock.acquire()  # as another thread does
    other = threading.Timer(0.05, llm._lock.release)
    other.start()
    assert llm.generate("a", SHORT)[0].outputs[0].token_ids == alone
    other.join()


def test_a_callback_that_asks_for_more_is_refused(llm: LLM) -> None:
    def on_delta(_: object) -> None:
        llm.generate("c", SHORT)

    alone = llm.generate("a", SHORT)[0].outputs[0].token_ids
    for ask in (lambda: llm.generate(["a", "b"], SHORT, on_delta=on_delta), lambda: llm.complete("a", SHORT, on_text=on_delta)):
        with pytest.raises(UsageError, match="^this LLM is generating, and its callbacks cannot ask it for more"):
            ask()
        assert llm.generate("a", SHORT)[0].outputs[0].token_ids == alone


def test_shares_of_the_limits_need_limits(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bare = LLM(folder)
    _, timings = bare.complete("hi", SHORT)
    assert bare.hardware is None and (timings.mfu, timings.mbu) == (None, None)
    file = limits_file(tmp_path / "penstock", processor())
    file.parent.mkdir(parents=True)
    slowest = {"format": FORMAT, "machine": "box", "read_bytes_per_s": {"1": 1e-3}, "ops_per_s": {"fp32": 1e-3}}
    file.write_text(json.dumps(slowest))
    _, timings = LLM(folder).complete("hi", SHORT)
    assert timings.mfu is not None and timings.mfu > 1 and timings.mbu is not None and timings.mbu > 1


def test_refusals_name_options_as_python_does(folder: Path) -> None:
    with pytest.raises(UsageError, match="^kv_tokens 3 is less than one block of 16 tokens$"):
        LLM(folder, kv_tokens=3)
    assert as_options("--no-prefix-cache, --max-num-seqs 4 and penstock limits --fresh") == (
        "prefix_cache=False, max_num_seqs 4 and penstock limits --fresh")


@pytest.mark.parametrize("built", [True, False])
def test_what_is_slow_is_told(folder: Path, built: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(build, "has_native", lambda: built)
    assert build.choose_backend(EngineConfig(device="cuda:0"))[1] == "the native kernels do not compute on cuda:0"
    if not built:
        monkeypatch.setitem(sys.modules, "penstock._native", None)
        monkeypatch.delattr("penstock._native", raising=False)
        with pytest.raises(UsageError, match="^backend cpu: the native module was not built here"):
            LLM(folder, backend="cpu")
        LLM(folder)
    elif has_native():
        LLM(folder)
    LLM(folder, backend="reference")
    said = [record.message for record in caplog.records if "native module" in record.message]
    assert said == ([] if built else [UNBUILT])


def test_a_native_module_that_was_cut_short_is_told_of(
        folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "_native.so").write_bytes(b"")
    spec = importlib.util.spec_from_file_location(NAME, tmp_path / "_native.so")
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    cut = f"{tmp_path / '_native.so'} is cut short: it has 0 bytes of 64; install Penstock again"
    config, why = build.choose_backend(EngineConfig())
    assert (config.backend, why) == ("reference", f"the native module cannot be imported, so this will be slow: {cut}")
    LLM(folder)
    assert [record.message for record in caplog.records if "native module" in record.message] == [why]
    with pytest.raises(UsageError) as caught:
        LLM(folder, backend="cpu")
    assert str(caught.value) == f"backend cpu: the native module cannot be imported: {cut}; backend reference needs none"
    assert this_host().native_error == cut


def test_an_answer_is_bound_by_what_the_context_and_the_cache_leave_to_it(folder: Path) -> None:
    params, told = SamplingParams(max_tokens=None, temperature=0, ignore_eos=True), []

    def bound(room: int) -> int:
        told.append(room)
        return room - 1

    for options, most in ({"max_model_len": 64}, 64), ({"kv_tokens": 32, "max_model_len": 64}, 33):
        llm = LLM(folder, threads=1, **options)
        prompt = {"prompt_token_ids": [97] * 10}
        assert len(llm.complete(prompt, params, bound=bound)[0].outputs[0].token_ids) == most - 11 and told.pop() == most - 10
        assert len(llm.complete(prompt, replace(params, max_tokens=2), bound=bound)[0].outputs[0].token_ids) == 2 and not told
        with pytest.raises(RequestError, match="leaves|would"):
            llm.complete(prompt, params, bound=lambda room: room + 1)
        with pytest.raises(RequestError, match="the prompt has 100 tokens, but"):
            llm.complete({"prompt_token_ids": [97] * 100}, params, bound=bound)
        assert told.pop() == most - 100


def test_a_conversation_is_rendered_and_read_once_and_has_one_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm, talk, encoded, told = LLM(folder, threads=1, max_model_len=64), [{"role": "user", "content": "hi"}], [], []
    tokenizer, template, params = llm.get_tokenizer(), llm.chat_template(None, ""), SamplingParams(max_tokens=None, ignore_eos=True)

    def encode(text: str, **how: Any) -> list[int]:
        encoded.append(text)
        return Tokenizer.encode(tokenizer, text, **how)

    def bound(room: int) -> int:
        told.append(room)
        return 2

    monkeypatch.setattr(tokenizer, "encode", encode)
    output, _ = llm.converse(talk, params, None, template, bound)
    assert encoded == [template.render(talk)] and told == [64 - len(output.prompt_token_ids)] and len(output.outputs[0].token_ids) == 2
    with pytest.raises(RequestError, match="^a conversation goes on with one answer, but n is 2$") as raised:
        llm.converse(talk, SamplingParams(n=2))
    assert raised.value.param == "n"


def test_a_conversation_shows_reasoning_and_keeps_none(tmp_path: Path) -> None:
    """The model answers with what a grammar makes it say."""
    folder = write_model(tmp_path)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": "{{ messages[-1].content }}{# <think> #}"}))
    llm = LLM(folder, threads=1)
    spans: list[Span] = []
    params = SamplingParams(max_tokens=60, structured_outputs=StructuredOutputsParams(choice=["<think>hm</think>yes"]))
    output, _ = llm.converse([{"role": "user", "content": "hi"}], params, on_span=spans.append)
    assert "".join(span.text for span in spans if span.reasoning) == "hm"
    assert output.outputs[0].text == "".join(span.text for span in spans if not span.reasoning) == "yes"
    (tmp_path / "plain.jinja").write_text("{{ messages[-1].content }}")
    given = llm.chat_template(tmp_path / "plain.jinja", "")
    assert llm.converse([{"role": "user", "content": "hi"}], params, template=given)[0].outputs[0].text == "<think>hm</think>yes"


def test_a_model_without_a_template_is_told_what_there_is_instead(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": None}))
    llm = LLM(folder, threads=1)
    with pytest.raises(RequestError, match="^the model has no chat template: render the messages yourself, and give the text to generate$"):
        llm.chat([{"role": "user", "content": "hi"}], SHORT)
    with pytest.raises(RequestError, match="^the model has no chat template: do this$"):
        llm.chat_template(None, "do this")
