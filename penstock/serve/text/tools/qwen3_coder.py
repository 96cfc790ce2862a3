"""Qwen3-Coder: `<tool_call><function=f><parameter=a>...</parameter></function></tool_call>`, each tag and each text on lines of its own."""
from typing import ClassVar

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.markup import Openings
from penstock.serve.text.tools.rules import Function, Wanted
from penstock.serve.text.tools.tagged import TaggedParser
from penstock.serve.text.tools.tagged_rules import Tagged

FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"


class Qwen3CoderParser(TaggedParser):
    """The tags around the function may be missing, and so may the closing tag of the function before that of the call, of the last argument
    before both, and of another before the next, if that is one that the function has."""

    openings: ClassVar[Openings] = ((TaggedParser.markup[0], "<"), (FUNCTION, ""))
    head: ClassVar[str] = FUNCTION
    name_end: ClassVar[str] = ">"
    key: ClassVar[str] = PARAMETER
    key_end: ClassVar[str] = ">"
    before_text: ClassVar[str] = "\n"
    value_ends: ClassVar[tuple[str, ...]] = ("\n" + PARAMETER_END, PARAMETER_END)
    ends: ClassVar[tuple[str, ...]] = (FUNCTION_END, TaggedParser.markup[1])
    late_ends: ClassVar[tuple[str, ...]] = ("\n" + FUNCTION_END, FUNCTION_END)
    next_keys: ClassVar[tuple[str, ...]] = ("\n" + PARAMETER,)

    @classmethod
    def suits(cls, template: str) -> bool:
        return all(tag in template for tag in (cls.markup[0], FUNCTION, PARAMETER))

    @classmethod
    def rules(cls, wanted: Wanted) -> str:
        """Raises RequestError for parameters that cannot be written so."""
        (opening, close), gap = cls.markup, cls.before_text
        form = Tagged(wanted, lambda name: literal(f"{PARAMETER}{name}>{gap}"), PARAMETER_END, gap, "\n")

        def body(function: Function, arguments: str) -> str:
            head, tail = literal(f"\n{FUNCTION}{function.name}>\n"), literal(f"{FUNCTION_END}\n")
            return f"{head} {arguments} {tail} {wanted.tag(close)}"

        return form.calls(opening, body)
