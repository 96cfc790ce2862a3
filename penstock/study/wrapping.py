"""Text in lines that a terminal has room for."""
import textwrap


def wrapped(text: str, width: int | None, indent: int = 0) -> str:
    """In lines of at most so many characters, the later ones indented; `width` None: as it is."""
    if width is None:
        return text
    return textwrap.fill(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False, replace_whitespace=False)
