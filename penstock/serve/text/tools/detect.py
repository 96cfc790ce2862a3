"""Which format of tool calls a chat template asks for: that in which it writes earlier calls itself."""
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from penstock.core.errors import ModelError, RequestError
from penstock.core.prefix import num_common
from penstock.serve.text.answer import collect
from penstock.serve.text.chat import ChatTemplate
from penstock.serve.text.shown import ExceededError
from penstock.serve.text.tools.rules import Function

NAME = "weather"
MARK = "What is the weather like?"
PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}}
TRIED: Sequence[tuple[Mapping[str, Any], str]] = tuple(itertools.product(
    ({"place": "Oslo", "days": 3}, {}),  # arguments: some templates write those that are not empty as Python does
    ("weather:0", "weather00")))  # ids, of nine characters, as some templates demand: some show them as the call's name, or without marks
Detect = Callable[[ChatTemplate, Sequence[type[Any]]], type[Any] | None]


def detected(template: ChatTemplate, parsers: Sequence[type[Any]]) -> type[Any] | None:
    """The parser of tool calls that reads one as the template writes it, with the least text beside it. One that the template's source
    suits comes first, also where what the template writes begins no call of its format, but not where it begins one that is not read.
    None where there is none."""
    suited = [parser for parser in parsers if parser.suits("".join(template.sources.values()))]
    others: list[type[Any]] = []
    refuted: set[type[Any]] = set()
    for arguments, call_id in TRIED if any("tool_calls" in source for source in template.sources.values()) else ():
        try:
            answers = tuple(written(template, arguments, call_id))
        except ExceededError:  # which takes as long with other arguments
            break
        if found := reading(suited, answers, arguments):
            return found
        refuted.update(parser for parser in suited if any(tag in answer for tag, _ in parser.openings for answer in answers))
        others += filter(None, [reading(parsers, answers, arguments)])
    return next((parser for parser in (*suited, *others) if parser not in refuted), None)


def suiting(template: ChatTemplate, parsers: Sequence[type[Any]]) -> type[Any] | None:
    """The first parser, of calls or of reasoning, that suits the template's source."""
    source = "".join(template.sources.values())
    return next((parser for parser in parsers if parser.suits(source)), None)


def reading(parsers: Sequence[type[Any]], answers: Sequence[str], arguments: Mapping[str, Any]) -> type[Any] | None:
    """The one of these that reads the call in an answer, with the least text beside it."""
    found = [(rest, at) for at, parser in enumerate(parsers) for answer in answers
             if (rest := num_beside(parser, answer, arguments)) is not None]
    return parsers[min(found)[1]] if found else None


def written(template: ChatTemplate, arguments: Mapping[str, Any], call_id: str) -> Iterator[str]:
    """Answers that call the function with these arguments, as the template shows them: from where a prompt for them ends, and, since it may
    end otherwise, from the end of the question. Nothing where it shows none. Raises ExceededError."""
    function = {"name": NAME, "description": MARK, "parameters": PARAMETERS}
    call = {"id": call_id, "type": "function", "function": {"name": NAME, "arguments": json.dumps(arguments)}}
    question = {"role": "user", "content": MARK}
    tools = [{"type": "function", "function": function}]
    try:
        prompt = template.render([question], tools)
        text = template.render([question, {"role": "assistant", "content": None, "tool_calls": [call]}], tools, add_generation_prompt=False)
    except ExceededError:
        raise
    except (ModelError, RequestError):
        return
    for at in (num_common(prompt, text), text.rfind(MARK) + len(MARK)):
        if NAME in text[at:]:
            yield text[at:]


def num_beside(parser: type[Any], answer: str, arguments: Mapping[str, Any]) -> int | None:
    """Characters of the answer beside the one call; None where it is read otherwise."""
    reader = parser(functions=[Function(NAME, PARAMETERS)])
    found = collect([*reader.push(answer), *reader.finish()])
    try:
        calls = [(call.name, json.loads(call.arguments)) for call in found.tool_calls]
    except ValueError:  # of a call that goes on for long before it breaks
        return None
    return len(found.content or "") if calls == [(NAME, arguments)] else None
