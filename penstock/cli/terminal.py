"""How wide the output may be."""
import os
import shutil
from typing import TextIO


def columns(stream: TextIO) -> int | None:
    """Of the terminal that it goes to, or as COLUMNS says; None where a program reads it: a line is then as long as it is."""
    return shutil.get_terminal_size().columns if stream.isatty() or os.environ.get("COLUMNS") else None
