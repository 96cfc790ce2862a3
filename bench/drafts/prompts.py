"""Workloads: prompts whose answers repeat what they hold, and prompts whose answers do not."""
import json
import random
from collections.abc import Callable
from pathlib import Path

from drafts.echo import Echo

Prompts = Callable[[int], list[list[int]]]  # how many -> token ids
WORDS = ("the north gate", "a brass lamp", "seven barrels", "the old miller", "a letter from home", "the cellar door", "two silver spoons",
         "the ferry", "a grey horse", "the second bell", "a sack of flour", "the window seat")


def story(encode: Callable[[str], list[int]], texts: list[Path], seed: int = 0) -> Prompts:
    """Openings of paragraphs: nothing to copy."""
    numbers = random.Random(seed)
    paragraphs = [part for text in texts for part in text.read_text(encoding="utf-8").split("\n\n") if 300 < len(part) < 2000]

    def make(count: int) -> list[list[int]]:
        return [encode(part)[:48] for part in numbers.sample(paragraphs, count)]

    return make


def copying(encode: Callable[[str], list[int]], texts: list[Path], seed: int = 0) -> Prompts:
    """Edits, quotes and JSON echoes in turn: something of a page, once or twice, and its beginning again."""
    numbers = random.Random(seed)
    paragraphs = [part for text in texts for part in text.read_text(encoding="utf-8").split("\n\n") if 300 < len(part) < 900]

    def quote(number: int) -> str:
        part = paragraphs[numbers.randrange(len(paragraphs))]
        return f"{part}\n\n{part}\n\n{part[: len(part) // 8]}"

    def edit(number: int) -> str:
        part = paragraphs[numbers.randrange(len(paragraphs))]
        words = part.split(" ")
        changed = [numbers.choice(words) if numbers.random() < 0.05 else word for word in words]
        return f"{' '.join(changed)}\n\n{part}\n\n{' '.join(words[: len(words) // 8])}"

    def echo(number: int) -> str:
        rows = [{"id": number * 10 + i, "what": numbers.choice(WORDS), "count": numbers.randrange(90)} for i in range(6)]
        text = json.dumps(rows, indent=1)
        return f"{text}\n\n{text}\n\n{text[: len(text) // 8]}"

    forms = (quote, edit, echo)

    def make(count: int) -> list[list[int]]:
        return [encode(forms[number % len(forms)](number)) for number in range(count)]

    return make


def echoing(echo: Echo, length: int = 256, changed: float = 0.1, seed: int = 0) -> Prompts:
    """What the echoing model will say, with some tokens changed, and the beginning of it: a text that is to be corrected."""
    numbers = random.Random(seed)

    def make(count: int) -> list[list[int]]:
        found = []
        for _ in range(count):
            said = echo.says(numbers.randrange(echo.vocab_size), length)
            page = [numbers.randrange(echo.vocab_size) if numbers.random() < changed else token for token in said]
            found.append([*page, *said[:8]])
        return found

    return make
