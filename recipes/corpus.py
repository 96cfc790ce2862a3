"""The text that the bundled models are made of: a folder of plain-text books, whole books held out for validation.

A book is a list of paragraphs. `passages` cuts books where a chapter or tale begins, so that a passage starts as a story does.
"""
import random
import re
from pathlib import Path

HELD_OUT = (  # whole books, never trained on
    "the-tale-of-tommy-fox-pg5955",
    "five-children-and-it",
    "english-fairy-tales-pg7439",
    "the-emerald-city-of-oz-pg517",
    "the-bobbsey-twins-at-school-pg6063",
)
TITLE = re.compile(r"^[A-Z0-9][A-Z0-9 ,.'!?;:\"()_-]{2,80}$")


def read_book(path: Path) -> list[str]:
    """Paragraphs of one book; underscores that marked italics are dropped."""
    text = path.read_text(encoding="utf-8").replace("_", "")
    return [p.strip() for p in text.split("\n\n") if p.strip()]


def is_heading(paragraph: str) -> bool:
    return bool(re.match(r"^chapter\b.{0,80}$", paragraph, re.IGNORECASE) or TITLE.match(paragraph))


def passages(paragraphs: list[str]) -> list[str]:
    """Chapters and tales: text between headings, each a string of paragraphs set apart by an empty line."""
    parts: list[list[str]] = [[]]
    for paragraph in paragraphs:
        if is_heading(paragraph):
            if parts[-1]:
                parts.append([])
        else:
            parts[-1].append(paragraph)
    return ["\n\n".join(part) for part in parts if sum(map(len, part)) > 200]


def split(folder: Path) -> tuple[list[str], list[str]]:
    """(training passages, held-out passages), in the order of the books' names."""
    books = sorted(folder.glob("*.txt"))
    if not books:
        raise SystemExit(f"no .txt files in {folder}; pass the folder of books with --corpus")
    if missing := [name for name in HELD_OUT if name not in {book.stem for book in books}]:
        raise SystemExit(f"{folder} lacks books that are held out, which may be there under other names: {', '.join(missing)}")
    train: list[str] = []
    held_out: list[str] = []
    for book in books:
        (held_out if book.stem in HELD_OUT else train).extend(passages(read_book(book)))
    return train, held_out


def shuffled(items: list[str], seed: int) -> list[str]:
    items = list(items)
    random.Random(seed).shuffle(items)
    return items
