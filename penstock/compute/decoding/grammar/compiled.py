"""A grammar as the compiler leaves it."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.types import StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance import LLMatcher


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Compiled:
    """A grammar, ready for sequences. Whoever holds it may be sure that nobody compiles it again."""

    wanted: StructuredOutputsParams  # checked
    size: int  # characters
    start: LLMatcher
