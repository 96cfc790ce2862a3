"""Events of an answer, joined and added up; and what every parser in the tables owes."""
import pytest

from penstock.core.registry import Table
from penstock.serve.text.answer import Answer, ContentDelta, ReasoningDelta, ToolCall, ToolCallArguments, ToolCallStart, collect, merged
from penstock.serve.text.reasoning import TABLE as REASONING
from penstock.serve.text.tools import TABLE as TOOLS

EVERY = [(table, name) for table in (TOOLS, REASONING) for name in table]


def test_neighbours_of_one_kind_are_joined() -> None:
    start = ToolCallStart(0, "a", "f")
    events = [ReasoningDelta("r"), ReasoningDelta("s"), ContentDelta("c"), ContentDelta("d"), start, ToolCallArguments(0, "{"),
              ToolCallArguments(0, "}"), ToolCallArguments(1, "{}"), start, start]
    assert merged(events) == [
        ReasoningDelta("rs"), ContentDelta("cd"), start, ToolCallArguments(0, "{}"), ToolCallArguments(1, "{}"), start, start]


def test_events_add_up_to_an_answer() -> None:
    events = [ContentDelta("a"), ToolCallStart(0, "x", "f"), ToolCallArguments(0, "{"), ContentDelta("b"), ToolCallArguments(0, "}")]
    assert collect(events) == Answer("ab", None, (ToolCall("x", "f", "{}"),))
    assert collect([]) == Answer()


@pytest.mark.parametrize(("table", "name"), EVERY, ids=[name for _, name in EVERY])
def test_every_parser_keeps_the_contract(table: Table, name: str) -> None:
    parser_class = table.load(name)
    assert isinstance(parser_class.markup, tuple) and all(len(behind) < 2 for _, behind in getattr(parser_class, "openings", ()))
    assert parser_class.suits("{{ message.content }}") is False
    parser = parser_class()
    plain = "An ordinary sentence, with (brackets) and 3 < 4."
    assert collect([*parser.push(plain), *parser.finish()]) == Answer(plain)
    assert parser.push("") == [] and parser.finish() == []
