"""What a token of an answer costs does not grow with the answer, whatever a model, or who makes it write something, comes up with."""
import itertools
import json
from decimal import Decimal

import pytest

from penstock.core.types import SamplingParams
from penstock.serve.engine.choice import Choice
from penstock.serve.engine.requests import Delta
from penstock.serve.engine.selection import Collected
from penstock.serve.text.answer import Answer, AnswerParser, Parser, ToolCall, ToolCallArguments, ToolCallStart, collect, merged
from penstock.serve.text.detokenize import MAX_PIECES, Utf8Stream
from penstock.serve.text.reasoning.harmony import HarmonyParser
from penstock.serve.text.reasoning.think import ThinkParser
from penstock.serve.text.stops import Prefixes, StopChecker
from penstock.serve.text.tokenizer import Tokenizer
from penstock.serve.text.tools.deepseek_v3 import BEGIN, DeepSeekV3Parser
from penstock.serve.text.tools.deepseek_v3 import CALL as DEEPSEEK_CALL
from penstock.serve.text.tools.glm45 import Glm45Parser
from penstock.serve.text.tools.granite import GraniteParser
from penstock.serve.text.tools.harmony import HarmonyCallParser
from penstock.serve.text.tools.hermes import HermesParser
from penstock.serve.text.tools.lfm2 import Lfm2Parser
from penstock.serve.text.tools.llama3_json import Llama3JsonParser
from penstock.serve.text.tools.mistral import MistralParser
from penstock.serve.text.tools.pythonic import PythonicParser
from penstock.serve.text.tools.qwen3_coder import Qwen3CoderParser
from penstock.serve.text.tools.rules import Function
from tests.guard import ends
from tests.serve.text.makers import byte_level
from tests.serve.text.tools.reading import numbered

MANY = 120_000
MORE = 400_000  # where only copying grows
CALL = '{"name": "f", "arguments": {}}'


def answer(parser: AnswerParser, text: str, step: int) -> Answer:
    pushed = (parser.push(text[at : at + step]) for at in range(0, len(text), step))
    return collect([*itertools.chain.from_iterable(pushed), *parser.finish()])


@pytest.mark.parametrize(("parser", "before"), [
    (ThinkParser(), ""), (ThinkParser(), "<think>x"), (HermesParser(), "x")])
def test_white_space_that_waits_for_what_follows(parser: Parser, before: str) -> None:
    thinks = isinstance(parser, ThinkParser)
    blank = " \n" * (MORE // 2)
    with ends():
        found = answer(AnswerParser(parser, None) if thinks else AnswerParser(None, parser), f"{before}{blank}y", 1)
    text = f"{before.removeprefix('<think>')}{blank}y"
    assert found == (Answer(None, text) if before.startswith("<think>") else Answer(text))


@pytest.mark.parametrize(("parser", "text", "calls"), [
    (Llama3JsonParser(numbered()), "\n" * MANY, 0),
    (Llama3JsonParser(numbered()), '{"name": "f", "parameters": {}}' + ";" * MANY, 1),
    (PythonicParser(numbered()), " " * MANY, 0),
    (PythonicParser(numbered()), "[f()]" + " " * MANY, 1),
    (MistralParser(numbered()), f"[TOOL_CALLS] [{CALL}" + " " * MANY, 1),
    (GraniteParser(numbered()), "<|tool_call|>" + " " * MANY, 0),
    (GraniteParser(numbered()), f"<|tool_call|>{CALL}" + " " * MANY, 1),
    (Lfm2Parser(numbered()), "<|tool_call_start|>" + " " * MANY, 0),
    (DeepSeekV3Parser(numbered()), BEGIN + " " * MANY, 0),
    (DeepSeekV3Parser(numbered()), f"{BEGIN}{DEEPSEEK_CALL}function<｜tool▁sep｜>f\n{{}}" + "\n" * MANY, 1),
    (Qwen3CoderParser(numbered()), "<tool_call>" + " " * MANY, 0),
    (Qwen3CoderParser(numbered()), "<function=f>" + " " * MANY + "</function>", 1),
    (Glm45Parser(numbered()), "<tool_call>f" + " " * MANY + "</tool_call>", 1)])
def test_white_space_where_a_call_may_stand(parser: Parser, text: str, calls: int) -> None:
    with ends():
        found = answer(AnswerParser(None, parser), text, 4)
    assert len(found.tool_calls) == calls and (found.content is None) == bool(calls)


def test_a_call_with_very_many_keys() -> None:
    keys = ",".join([f'"a{number}":1' for number in range(MANY // 8)])
    with ends():
        found = answer(AnswerParser(None, HermesParser(numbered())), f'<tool_call>{{{keys},"name":"f","arguments":{{}}}}</tool_call>', 4)
    assert found == Answer(None, None, (ToolCall("id0", "f", "{}"),))


@pytest.mark.parametrize("kind", ["string", "array", ["string", "array"]])
@pytest.mark.parametrize("text", [
    "x" * MANY, "</parameter> " * (MANY // 12), '["' + "</parameter>" * (MANY // 12), "\n" * MANY, "\n<parameter=a>" * (MANY // 13),
    "\n<parameter=" * (MANY // 12), "0" * MANY + "x"])
def test_an_argument_between_tags(text: str, kind: str | list[str]) -> None:
    reader = Qwen3CoderParser(numbered(), functions=[Function("f", {"properties": {"a": {"type": kind}}})])
    with ends():
        found = answer(AnswerParser(None, reader), f"<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>", 4)
    assert json.loads(found.tool_calls[0].arguments) == {"a": text}


@pytest.mark.parametrize(("arguments", "written"), [
    ("#'\n\"" + '\\"' * (MANY // 2) + "'", None),  # a comment for Python, strings for who counts quotes
    ("a=[" + "1e999," * (MANY // 6) + "]", '{"a": [' + ", ".join(["1e999"] * (MANY // 6)) + "]}"),
    ("a=0x" + "f" * 1_200_000, None),
    ("a=0x" + "f" * 10_000, f'{{"a": {Decimal(16**10_000 - 1):f}}}'),
])
def test_pythonic_arguments(arguments: str, written: str | None) -> None:
    with ends():
        found = answer(AnswerParser(None, PythonicParser(numbered())), f"[f({arguments})]", 1024)
    assert [call.arguments for call in found.tool_calls] == ([] if written is None else [written])


@pytest.mark.parametrize("text", ["<|start|>" * MANY, "<|channel|>analysis<|message|>x<|end|>" * (MANY // 4)])
def test_an_answer_that_comes_in_one_piece_is_not_copied_at_each_tag(text: str) -> None:
    whole = answer(AnswerParser(HarmonyParser(), HarmonyCallParser()), text[:4000], 1)
    assert answer(AnswerParser(HarmonyParser(), HarmonyCallParser()), text[:4000], 4000) == whole
    with ends():
        answer(AnswerParser(HarmonyParser(), HarmonyCallParser()), text, len(text))


def test_long_arguments_in_many_pieces_are_joined_once() -> None:
    events = [ToolCallStart(0, "id", "f"), *[ToolCallArguments(0, "xyz" * 4)] * MORE]
    with ends():
        assert collect(events) == Answer(None, None, (ToolCall("id", "f", "xyz" * 4 * MORE),))
        assert merged(events) == [events[0], ToolCallArguments(0, "xyz" * 4 * MORE)]


def test_an_answer_that_is_held_back_until_it_is_chosen_is_joined_once() -> None:
    collected, delta = Collected(), Delta(0, "xyz" * 4)
    with ends():
        for _ in range(MORE):
            collected.add(delta)
    assert collected.candidate().text == collected.delta(0, False, None).text == "xyz" * 4 * MORE


def test_the_end_of_a_prompt_that_shows_is_found_once_for_all_answers() -> None:
    tokenizer = Tokenizer(byte_level())
    ids = [*tokenizer.encode("xé", add_special_tokens=False)[:-1], *[min(tokenizer.special_ids)] * 1000]
    end = tokenizer.shown_end(ids)
    assert 1 <= len(end) <= MAX_PIECES and tokenizer.special_ids.isdisjoint(end)
    rest = tokenizer.encode("xéy", add_special_tokens=False)[len(ids) - 1000 :]
    assert tokenizer.detokenizer(True, end).push(rest) == tokenizer.detokenizer(True, ids).push(rest) == "éy"
    assert tokenizer.shown_end(ids, skip_special_tokens=False) == tuple(ids[-MAX_PIECES:])
    assert tokenizer.shown_end(ids[-1000:]) == ()


def test_of_a_long_stop_string_no_more_is_prepared_than_is_met() -> None:
    long = "ab" * (1 << 20)
    with ends():
        choices = [Choice(Tokenizer(byte_level()), SamplingParams(stop=(long,)), ()) for _ in range(128)]
    assert len(choices) == 128
    prefixes = Prefixes(long)
    assert [prefixes.push(char) for char in "xababab"] == [False] * 7 and prefixes.length == 6
    assert len(prefixes._shorter) <= 8


def test_text_that_may_begin_a_long_stop_string_is_not_copied_at_each_token() -> None:
    checker, piece = StopChecker(("a" * 99 + "b",)), "aaa"
    assert [checker.push(piece) for _ in range(30)] == [("", None)] * 30
    assert all(held is piece for held in checker._held)
    assert checker.push("ca") == ("aaa" * 30 + "c", None)
    assert checker.finish() == "a"


@pytest.mark.parametrize("bytewise", [False, True])
def test_broken_characters_in_one_piece(bytewise: bool) -> None:
    stream = Utf8Stream(bytewise)
    with ends():
        assert stream.push(b"\xff" * 2 * MORE + "é".encode()[:1]) == "\ufffd" * 2 * MORE
        assert stream.push("é".encode()[1:]) == "é"
