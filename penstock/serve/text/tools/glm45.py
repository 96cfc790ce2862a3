"""GLM-4.5: `<tool_call>f` and for each argument `<arg_key>a</arg_key>` and `<arg_value>...</arg_value>`, each on a line of its own."""
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.markup import Openings
from penstock.serve.text.tools.rules import Function, Wanted
from penstock.serve.text.tools.tagged import TaggedParser
from penstock.serve.text.tools.tagged_rules import Tagged

OPEN, CLOSE = TaggedParser.markup
KEY, KEY_END, VALUE, VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"


class Glm45Parser(TaggedParser):
    """The line breaks may be missing, as they are in GLM-4.7's."""

    markup: ClassVar[tuple[str, ...]] = (OPEN, CLOSE, KEY, KEY_END, VALUE, VALUE_END)
    openings: ClassVar[Openings] = ((OPEN, ""),)
    key: ClassVar[str] = KEY
    key_end: ClassVar[str] = KEY_END
    values: ClassVar[Mapping[str, bool | None]] = MappingProxyType({VALUE: None})
    value_ends: ClassVar[tuple[str, ...]] = (VALUE_END,)
    ends: ClassVar[tuple[str, ...]] = (CLOSE,)

    @classmethod
    def suits(cls, template: str) -> bool:
        return KEY in template and VALUE in template

    @classmethod
    def rules(cls, wanted: Wanted) -> str:
        """Raises RequestError for parameters that cannot be written so."""
        def before(name: str) -> str:
            return f"{wanted.tag(KEY)} {literal(name)} {wanted.tag(KEY_END)} {literal(chr(10))} {wanted.tag(VALUE)}"

        def body(function: Function, arguments: str) -> str:
            name = literal(f"{function.name}\n")
            return f"{name} {arguments} {wanted.tag(CLOSE)}"

        return Tagged(wanted, before, VALUE_END, "", "\n").calls(OPEN, body)
