"""What the tests of parsers share: an answer read whole or in pieces, with ids that can be compared."""
import itertools
import json
from collections.abc import Callable, Iterable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.serve.text.answer import Answer, AnswerParser, Event, Parser, ToolCall, collect, merged
from penstock.serve.text.calls import HOLD

MakeParser = Callable[[], Parser]
cuts = st.lists(st.integers(0, 400), max_size=12)


def numbered() -> Callable[[], str]:
    ids = itertools.count()
    return lambda: f"id{next(ids)}"


def events_of(parser: Parser, chunks: Iterable[str]) -> list[Event]:
    return [*(event for chunk in chunks for event in parser.push(chunk)), *parser.finish()]


def pushed(parser: Parser, text: str) -> list[Event]:
    """What comes at once."""
    return merged(parser.push(text))


def read(parser: Parser, *chunks: str) -> Answer:
    return collect(events_of(parser, chunks))


def pieces(text: str, at: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(edge % (len(text) + 1) for edge in at)})
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def check_any_cut(make: MakeParser, text: str, at: list[int]) -> Answer:
    """In one piece, in characters, in any pieces: the same answer, which is returned."""
    whole = read(make(), text)
    assert read(make(), *text) == whole
    assert read(make(), *pieces(text, at)) == whole
    assert read(AnswerParser(None, make()), *pieces(text, at)) == whole
    return whole


def check_unchanged(make: MakeParser, text: str) -> Answer:
    """The answer, which has all of a text without a call as its content."""
    return check_nothing_lost(read(make(), text), text)


def check_nothing_lost(answer: Answer, text: str) -> Answer:
    if not answer.tool_calls:
        assert (answer.content or "") == text
    return answer


def check_texts(make: MakeParser, snippets: Sequence[str], most: int = 10) -> None:
    """Any text of so many of the snippets: cut anywhere it is the same answer, without a call it is content, a short call is valid."""
    @settings(max_examples=300)
    @given(st.lists(st.sampled_from(snippets), max_size=most).map("".join), cuts)
    def check(text: str, at: list[int]) -> None:
        for each in check_nothing_lost(check_any_cut(make, text, at), text).tool_calls:
            assert len(each.arguments) >= HOLD or isinstance(json.loads(each.arguments), dict)

    check()


def call(number: int, name: str, arguments: str) -> ToolCall:
    return ToolCall(f"id{number}", name, arguments)
