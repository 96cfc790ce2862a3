"""A context-free grammar, in Lark or in EBNF as llama.cpp writes it (GBNF)."""
import re
from typing import Any

from penstock.compute.decoding.grammar.syntax import HEADER
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams

EBNF = re.compile(r"^\s*[\w-]+\s*::=", re.MULTILINE)


class Lark:
    def checked(self, value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise RequestError(f"grammar is {value!r:.80}, but must be a grammar as text", "grammar")
        return value

    def grammar(self, wanted: StructuredOutputsParams) -> str:
        text = wanted.grammar or ""
        return HEADER + (from_ebnf(text) if EBNF.search(text) else text)


def from_ebnf(text: str) -> str:
    """Raises RequestError for what is no EBNF."""
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return gbnf_to_lark(text)
    except Exception as error:  # the converter raises bare Exceptions
        raise RequestError(f"grammar is not EBNF that can be read: {' '.join(str(error).split())}", "grammar") from None
