"""What the rules of each format let a model write: its parser reads it back as calls of the functions, with arguments that fit."""
import json
import random
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import jsonschema
import pytest

from penstock.compute.decoding.grammar import TABLE as STRUCTURES
from penstock.compute.decoding.grammar.compiler import Compiler
from penstock.compute.decoding.grammar.vocabulary import Vocabulary
from penstock.core.types import Rules, StructuredOutputsParams
from penstock.serve.text.answer import Answer, AnswerParser, collect
from penstock.serve.text.harmony import CHANNEL, CONSTRAIN, MESSAGE, START
from penstock.serve.text.harmony import END as CLOSE
from penstock.serve.text.reasoning.harmony import HarmonyParser
from penstock.serve.text.reasoning.think import ThinkParser
from penstock.serve.text.tools import TABLE
from penstock.serve.text.tools.deepseek_v3 import DeepSeekV3Parser
from penstock.serve.text.tools.glm45 import Glm45Parser
from penstock.serve.text.tools.granite import TAG as GRANITE
from penstock.serve.text.tools.kimi_k2 import KimiK2Parser
from penstock.serve.text.tools.minimax_m2 import MiniMaxM2Parser
from penstock.serve.text.tools.pythonic import PythonicParser
from penstock.serve.text.tools.rules import NOTHING, Function, Wanted, rules_of
from tests.compute.decoding.grammar.tokens import MAX_LEN, TOKENS, WIDTH, matcher_of, write
from tests.serve.text.marked import Marked
from tests.serve.text.tools.reading import events_of, numbered, read

WEATHER: dict[str, Any] = {
    "type": "object", "properties": {"place": {"type": "string", "maxLength": 6}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["place"], "additionalProperties": False}
PAINT: dict[str, Any] = {
    "type": "object", "properties": {"colour": {"$ref": "#/$defs/c"}, "thick": {"type": "boolean"}}, "required": ["thick", "colour"],
    "additionalProperties": False, "$defs": {"c": {"enum": ["red", 'the "blue"', 7, None, ["it's", {"a": 1.5}]]}}}
FUNCTIONS = {"get.weather": Function("get.weather", WEATHER), "paint": Function("paint", PAINT), "now": Function("now")}
KNOWN = list(FUNCTIONS.values())

LONGEST = 800  # tokens of a text
MARKS = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", START, CHANNEL, CONSTRAIN, MESSAGE, CLOSE, *DeepSeekV3Parser.markup,
         *Glm45Parser.markup[2:], *KimiK2Parser.markup, *MiniMaxM2Parser.markup, GRANITE)
MARKED = Marked(MARKS, words=("</think>",), rare=(CLOSE, MiniMaxM2Parser.markup[1]))
VOCABULARIES = {"plain": (TOKENS, lambda text: None), "marked": (MARKED, MARKED.marks.get)}
COMPILERS = {name: Compiler({way: STRUCTURES.load(way)() for way in STRUCTURES}, Vocabulary(tokens, WIDTH), MAX_LEN)
             for name, (tokens, _) in VOCABULARIES.items()}
PAIRS = [(name, vocabulary) for name in TABLE for vocabulary in VOCABULARIES  # the marked one where a tag of the format is a token
         if vocabulary == "plain" or not {*MARKS}.isdisjoint(TABLE.load(name).markup)]


def texts(rules: str, start: str, vocabulary: str, count: int = 12, frame: Rules | None = None) -> list[str]:
    return list(written(rules, start, vocabulary, range(count), frame))


def written(rules: str, start: str, vocabulary: str, seeds: Iterable[int], frame: Rules | None = None) -> Iterator[str]:
    made = COMPILERS[vocabulary]
    wanted = StructuredOutputsParams(grammar=rules_of(f"start: {start}\n{rules}", list(FUNCTIONS.values())), frame=frame)
    found = (write(matcher_of(made, wanted), random.Random(seed), LONGEST, VOCABULARIES[vocabulary][0]) for seed in seeds)
    return (text for text in found if text is not None)


def check_calls(answer: Answer, many: bool) -> None:
    for called in answer.tool_calls:
        jsonschema.validate(json.loads(called.arguments), FUNCTIONS[called.name].document)
    assert many or len(answer.tool_calls) <= 1


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("name", "vocabulary"), PAIRS)
def test_what_is_demanded_is_read_as_calls_and_nothing_else(name: str, many: bool, vocabulary: str) -> None:
    parser = TABLE.load(name)
    rules = parser.rules(Wanted(list(FUNCTIONS.values()), many, VOCABULARIES[vocabulary][1]))
    answers = [read(parser(numbered(), functions=KNOWN), text) for text in texts(rules, "calls", vocabulary, 25)]
    assert len(answers) > 5
    for answer in answers:
        assert answer.tool_calls and not (answer.content or "").strip()
        check_calls(answer, many)
    assert {called.name for answer in answers for called in answer.tool_calls} == set(FUNCTIONS)
    more = (read(parser(numbered(), functions=KNOWN), text) for text in written(rules, "calls", vocabulary, range(25, 200)))
    assert not many or any(len(answer.tool_calls) > 1 for answer in chain(answers, more))


@pytest.mark.parametrize(("name", "vocabulary"), PAIRS)
def test_an_answer_may_be_text_and_a_call_in_it_is_valid(name: str, vocabulary: str) -> None:
    parser = TABLE.load(name)
    for many in (False, True):
        rules = parser.rules(Wanted(list(FUNCTIONS.values()), many, VOCABULARIES[vocabulary][1]))
        answers = [(text, read(parser(numbered(), functions=KNOWN), text)) for text in texts(rules, "answer", vocabulary, 20)]
        assert answers
        for text, answer in answers:
            check_calls(answer, many)
            assert answer.tool_calls or (answer.content or "") == text


@pytest.mark.parametrize("name", TABLE)
def test_a_sure_parser_tells_of_the_same_calls_at_any_length(name: str) -> None:
    """And of a call's name before it is complete, where it can."""
    parser = TABLE.load(name)
    rules = parser.rules(Wanted([FUNCTIONS["get.weather"]], True, lambda text: None))
    early = 0
    for at, text in enumerate(texts(rules, "calls", "plain")):
        whole = read(parser(numbered(), True, KNOWN), text)
        assert whole == read(parser(numbered(), functions=KNOWN), text)
        for end in range(at % 3, len(text), 3):  # of all texts together, any length
            begun = read(parser(numbered(), True, KNOWN), text[:end])
            for told, final in zip(begun.tool_calls, whole.tool_calls, strict=False):
                assert told.name == final.name and final.arguments.startswith(told.arguments)
            early += len(begun.tool_calls) == 1 and "}" not in begun.tool_calls[0].arguments
    assert early or issubclass(parser, PythonicParser)


THINK, HARMONY, ASSISTANT = "<assistant>", "<|start|>user<|message|>Hi<|end|>", "<|start|>assistant"
THINKING: dict[str, tuple[Any, str, str, bool]] = {  # parser, prompt, tool parser, whether something is thought
    "think": (ThinkParser, THINK, "hermes", False), "think, arguments between tags": (ThinkParser, THINK, "qwen3_coder", False),
    "think, opened": (ThinkParser, THINK + "<think>\n", "hermes", True),
    "think, calls with ids": (ThinkParser, THINK, "kimi_k2", False),
    "think, opened, one list": (ThinkParser, THINK + "<think>", "granite", True),
    "harmony": (HarmonyParser, HARMONY + ASSISTANT, "harmony", True),
    "harmony, opened": (HarmonyParser, HARMONY + ASSISTANT + CHANNEL + "analysis" + MESSAGE, "harmony", True),
}


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("reasoning", "prompt", "name", "thinks"), THINKING.values(), ids=THINKING.keys())
def test_reasoning_comes_before_the_calls(reasoning: Any, prompt: str, name: str, thinks: bool, many: bool) -> None:
    parser = TABLE.load(name)
    rules = parser.rules(Wanted(list(FUNCTIONS.values()), many, MARKED.marks.get))
    frame = Rules(f"frame: before_calls @body\n{reasoning.rules(prompt, MARKED.marks.get)}")
    answers = [collect(events_of(AnswerParser(reasoning(prompt), parser(numbered(), functions=KNOWN)), [text]))
               for text in texts(rules, "calls", "marked", 25, frame)]
    assert len(answers) > 10
    for answer in answers:
        assert answer.tool_calls and not answer.content
        check_calls(answer, many)
    assert any(len(answer.tool_calls) > 1 for answer in answers) is many
    assert any(answer.reasoning for answer in answers) is thinks  # what may be thought may be nothing


def test_the_parameters_stay_as_they_are_written_and_arguments_are_an_object() -> None:
    for parameters in (WEATHER, {}, {"type": ["object", "null"]}, {"$ref": "#/$defs/a", "$defs": {"a": {}}}):
        function = Function("f", parameters)
        assert function.arguments == '%json ["f", "#", {"type": "object"}]'
        assert rules_of("start: x", [function, Function("g")]).schemas == (("f", json.dumps(parameters)), ("g", json.dumps(NOTHING)))
