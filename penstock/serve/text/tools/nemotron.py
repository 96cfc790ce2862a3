"""Nemotron: a JSON list of calls between `<TOOLCALL>` and `</TOOLCALL>`."""
from typing import ClassVar

from penstock.serve.text.markup import Openings
from penstock.serve.text.tools.listed import ListedParser

OPEN, CLOSE = "<TOOLCALL>", "</TOOLCALL>"


class NemotronParser(ListedParser):
    markup: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)
    openings: ClassVar[Openings] = ((OPEN, "["),)
    begins: ClassVar[tuple[str, ...]] = (OPEN,)
    ends: ClassVar[tuple[str, ...]] = (CLOSE,)
