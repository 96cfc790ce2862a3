"""Mistral: `[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]`, and since 2025 `[TOOL_CALLS]name[ARGS]{...}` for each call."""
import re
import secrets
import string
from collections.abc import Sequence
from typing import ClassVar

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.calls import NewId
from penstock.serve.text.json_object import BLANK
from penstock.serve.text.markup import Openings
from penstock.serve.text.tools.listed import ListedParser, listed
from penstock.serve.text.tools.rules import Function, Wanted

TAG, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"


def new_call_id() -> str:
    """Nine letters and digits: the chat templates refuse any other."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))


class MistralParser(ListedParser):
    """Its tags are special tokens."""

    markup: ClassVar[tuple[str, ...]] = (TAG, CALL_ID, ARGS)
    openings: ClassVar[Openings] = ((TAG, ""),)
    begins: ClassVar[tuple[str, ...]] = (TAG,)
    header: ClassVar[re.Pattern[str]] = re.compile(r"\s*(?:(?P<bracket>\[\s*)|(?P<name>[\w.-]+)(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*)")
    header_chars: ClassVar[frozenset[str]] = frozenset(string.ascii_letters + string.digits + "_.-[]" + BLANK)

    def __init__(self, new_id: NewId = new_call_id, sure: bool = False, functions: Sequence[Function] = ()) -> None:
        super().__init__(new_id, sure, functions)

    @classmethod
    def rules(cls, wanted: Wanted) -> str:
        """In the newer form where the model has its second tag."""
        def named(function: Function) -> str:
            return f"{literal(function.name)} {wanted.tag(ARGS)} {function.arguments}"

        newer = wanted.special(ARGS) is not None
        rest = wanted.repeated("call", wanted.tag(TAG)) if newer else f'" "? "[" {wanted.repeated("call", literal(", "))} "]"'
        return "\n".join([
            f"calls: {wanted.tag(TAG)} rest", f"rest: {rest}", f"call: {wanted.one_of(named if newer else listed)}",
            "answer: opening rest | TEXT?", *wanted.until(TAG, "opening")])
