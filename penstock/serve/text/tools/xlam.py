"""xLAM: the answer is a JSON list of calls and nothing else, `[{"name": ..., "arguments": {...}}, ...]`."""
from typing import ClassVar

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.json_object import BLANK
from penstock.serve.text.tools.listed import listed
from penstock.serve.text.tools.llama3_json import Llama3JsonParser
from penstock.serve.text.tools.rules import Wanted, not_begun_by


class XlamParser(Llama3JsonParser):
    """The brackets may be missing."""

    begin: ClassVar[str] = "["
    separators: ClassVar[str] = BLANK + ","
    end: ClassVar[str] = "]"

    @classmethod
    def suits(cls, template: str) -> bool:
        return '"tool_call_name"' in template

    @classmethod
    def rules(cls, wanted: Wanted) -> str:
        return "\n".join([
            f'calls: "[" {wanted.repeated("call", literal(", "))} "]"', f"call: {wanted.one_of(listed)}", "answer: calls | TEXT?",
            f"TEXT: {not_begun_by('[{')}"])
