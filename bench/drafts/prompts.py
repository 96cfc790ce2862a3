"""Workloads: prompts whose answers repeat what they hold, and prompts whose answers do not."""
import json
import random
from collections.abc import Callable
from pathlib import Path

from drafts.echo import Echo
from drafts.turns import Ask
from penstock.core.errors import UsageError
from penstock.core.types import SamplingParams

Prompts = Callable[[int], list[list[int]]]  # how many -> token ids
Asks = Callable[[int], list[Ask]]
TOLD, COPIED = (300, 2000), (300, 900)  # characters of a paragraph that is told on, and of one that is copied
OPENING = 48  # tokens of a paragraph
WORDS = ("the north gate", "a brass lamp", "seven barrels", "the old miller", "a letter from home", "the cellar door", "two silver spoons",
         "the ferry", "a grey horse", "the second bell", "a sack of flour", "the window seat")


def paragraphs(texts: list[Path], lengths: tuple[int, int]) -> list[str]:
    """With more characters than the first length, and fewer than the second."""
    return [part for text in texts for part in text.read_text(encoding="utf-8").split("\n\n") if lengths[0] < len(part) < lengths[1]]


def check(texts: list[Path], lengths: tuple[int, int], least: int) -> None:
    """Raises UsageError for a text with fewer paragraphs than are asked for at once."""
    if (found := len(paragraphs(texts, lengths))) < least:
        between = " and ".join(f"{length:,}" for length in lengths)
        raise UsageError(f"--text has {found:,} paragraphs of between {between} characters, parted by blank lines, and must have at least "
                         f"{least:,}")


def greedy(prompts: Prompts, new: int) -> Asks:
    """All at once, for `new` tokens each."""
    params = SamplingParams(max_tokens=new, temperature=0, ignore_eos=True)
    return lambda count: [Ask(prompt, params) for prompt in prompts(count)]


def mixed(stories: Prompts, copies: Prompts, new: int, room: int, seed: int = 0) -> Asks:
    """A third copies, a third tells stories, a third draws its tokens; for a quarter of `new` to twice `new` tokens each, as far as there
    is room for so many with the prompt, and one after another: half of them come while others are being answered."""
    numbers = random.Random(seed)

    def make(count: int) -> list[Ask]:
        found, after = [], 0
        for i, (story, copy) in enumerate(zip(stories(count), copies(count), strict=True)):
            kind = (i + numbers.randrange(3)) % 3
            prompt = copy if kind == 0 else story
            length = min(int(new * 2 ** numbers.uniform(-2, 1)), room - len(prompt))
            drawn = SamplingParams(max_tokens=length, temperature=0.8, top_p=0.95, seed=numbers.randrange(1 << 30), ignore_eos=True)
            chosen = SamplingParams(max_tokens=length, temperature=0, ignore_eos=True)
            found.append(Ask(prompt, drawn if kind == 2 else chosen, after))
            after += numbers.randrange(new) if i % 2 else 0
        return found

    return make


def story(encode: Callable[[str], list[int]], texts: list[Path], seed: int = 0) -> Prompts:
    """Openings of paragraphs: nothing to copy. Each is told on once before any is a second time: `auto` remembers answers."""
    numbers = random.Random(seed)
    found = paragraphs(texts, TOLD)
    left: list[str] = []

    def make(count: int) -> list[list[int]]:
        if count > len(found):
            raise ValueError(f"{count:,} paragraphs are asked for at once, and the text has {len(found):,}: give more text, or more --new")
        if count > len(left):
            left[:] = numbers.sample(found, len(found))
        return [encode(left.pop())[:OPENING] for _ in range(count)]

    return make


def copying(encode: Callable[[str], list[int]], texts: list[Path], seed: int = 0) -> Prompts:
    """Edits, quotes and JSON echoes in turn: something of a page, once or twice, and its beginning again."""
    numbers = random.Random(seed)
    found = paragraphs(texts, COPIED)

    def quote(number: int) -> str:
        part = found[numbers.randrange(len(found))]
        return f"{part}\n\n{part}\n\n{part[: len(part) // 8]}"

    def edit(number: int) -> str:
        part = found[numbers.randrange(len(found))]
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


def fresh(echo: Echo, length: int = 64, seed: int = 0) -> Prompts:
    """Tokens at random: what the echoing model will say to the last of them stands nowhere before."""
    numbers = random.Random(seed)
    return lambda count: [[numbers.randrange(echo.vocab_size) for _ in range(length)] for _ in range(count)]
