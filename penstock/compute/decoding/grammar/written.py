"""A grammar in llguidance's language, and where its parts come from, so that errors can name places in the user's own text."""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.compute.decoding.grammar.schema.emit import Writer
    from penstock.compute.decoding.grammar.schema.places import Place


class Forcing(Enum):
    """How the tokens that must come next are found, to be drafted."""

    PARSER = auto()  # by llguidance
    MASKS = auto()  # where masks leave one choice: see Ahead
    OFF = auto()


@dataclass(frozen=True, slots=True)
class Written:
    """`text`: the grammar. `source`: the user's text, if parts of the grammar are copied from it. `copied`: for each copied part, its index
    in the grammar and in the source.

    `tokens`: references to tokens, <|name|> or <[3-7,12]>, each with its index in the grammar.

    `schemas`: the writer of each JSON schema's definitions, by the prefix of their names. `has_json`: the grammar contains JSON, so the
    options for white space apply. `places`: where its items must be compared while they are written; none where they need not be.
    """

    text: str
    source: str = ""
    copied: tuple[tuple[int, int], ...] = ()  # characters
    tokens: tuple[tuple[int, str], ...] = ()
    schemas: Mapping[str, Writer] = field(default_factory=dict)
    has_json: bool = False
    forcing: Forcing = Forcing.PARSER
    places: tuple[Place, ...] = ()

    def source_place(self, line: int, column: int) -> tuple[int, int] | None:
        """The line and column (in characters) in the user's text of a place in the grammar, given as line and column (in bytes). All count
        from 1. None if nothing was copied from the user's text."""
        if not self.copied:
            return None
        lines = self.text.split("\n")
        here = lines[line - 1] if line <= len(lines) else ""
        at = sum(len(each) + 1 for each in lines[: line - 1]) + len(here.encode()[: column - 1].decode(errors="ignore"))
        piece = max(bisect_right(self.copied, at, key=lambda each: each[0]) - 1, 0)
        begins, source_begins = self.copied[piece]
        source_ends = self.copied[piece + 1][1] if piece + 1 < len(self.copied) else len(self.source.rstrip())
        return line_and_column(self.source, min(max(source_begins, source_begins + at - begins), source_ends))

    def schema_place(self, definition: str) -> tuple[str, list[str]]:
        """Where in its schema a definition comes from, as a reference, and the keywords there; ("", []) if unknown."""
        writer = self.schemas.get(definition.rstrip("0123456789"))
        return writer.place_of(definition) if writer is not None else ("", [])


def line_and_column(text: str, at: int) -> tuple[int, int]:
    """Line and column of the character at index `at`; both count from 1."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
