"""`<seed:think>...</seed:think>` before the answer, as Seed-OSS writes it."""
from typing import ClassVar

from penstock.serve.text.reasoning.think import ThinkParser


class SeedThinkParser(ThinkParser):
    """Its tags are special tokens."""

    markup: ClassVar[tuple[str, ...]] = ("<seed:think>", "</seed:think>")
