"""MiniMax M2: calls between `<minimax:tool_call>` and its closing tag, `<invoke name="f">` and `<parameter name="a">...</parameter>`."""
from collections.abc import Mapping
from typing import ClassVar

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.markup import Openings
from penstock.serve.text.tools.rules import Function, Wanted
from penstock.serve.text.tools.tagged import TaggedParser
from penstock.serve.text.tools.tagged_rules import Tagged

OPEN, CLOSE = "<minimax:tool_call>", "</minimax:tool_call>"
INVOKE, INVOKE_END = '<invoke name="', "</invoke>"
PARAMETER, PARAMETER_END = '<parameter name="', "</parameter>"


class MiniMaxM2Parser(TaggedParser):
    """The tags around the calls may be missing, and so may the closing tag of a call before that of all."""

    markup: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)
    openings: ClassVar[Openings] = ((OPEN, "<"),)
    head: ClassVar[str] = INVOKE
    name_end: ClassVar[str] = '">'
    key: ClassVar[str] = PARAMETER
    key_end: ClassVar[str] = '">'
    value_ends: ClassVar[tuple[str, ...]] = (PARAMETER_END,)
    ends: ClassVar[tuple[str, ...]] = (INVOKE_END, CLOSE)
    several: ClassVar[bool] = True

    @classmethod
    def suits(cls, template: str) -> bool:
        return cls.markup[0] in template

    @classmethod
    def rules(cls, wanted: Wanted) -> str:
        """Raises RequestError for parameters that cannot be written so."""
        said: Mapping[bool | None, str] = {is_string: text for text, is_string in cls.values.items()}

        def before(name: str) -> str:
            return literal(f"{cls.key}{name}{cls.key_end}")

        def body(function: Function, arguments: str) -> str:
            head, tail = literal(f"{cls.head}{function.name}{cls.name_end}\n"), literal(f"{cls.ends[0]}\n")
            return f"{head} {arguments} {tail}"

        form = Tagged(wanted, before, cls.value_ends[0], "", "\n", (said.get(True, ""), said.get(False, "")), cls.key_end)
        return form.calls(cls.markup[0], body, cls.markup[1])
