"""Phi-4-mini and Firefunction: a JSON list of calls behind the word `functools`."""
from typing import ClassVar

from penstock.serve.text.markup import Openings
from penstock.serve.text.tools.listed import ListedParser


class Phi4MiniParser(ListedParser):
    """Without its bracket the word is a word."""

    markup: ClassVar[tuple[str, ...]] = ()
    openings: ClassVar[Openings] = (("functools[", "{"),)
    begins: ClassVar[tuple[str, ...]] = ("functools",)

    @classmethod
    def suits(cls, template: str) -> bool:
        return "functools[" in template
