"""LongCat Flash: the calls of Hermes within tags of its own."""
from typing import ClassVar

from penstock.serve.text.markup import Openings
from penstock.serve.text.tools.hermes import HermesParser

OPEN, CLOSE = "<longcat_tool_call>", "</longcat_tool_call>"


class LongCatParser(HermesParser):
    markup: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)
    openings: ClassVar[Openings] = ((OPEN, "{"),)
