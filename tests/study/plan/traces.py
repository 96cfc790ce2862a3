"""Traces that tests make up, in Mooncake's format, with no prefix that two prompts share."""
import json
from collections.abc import Callable
from pathlib import Path

COUNT = 200


def in_bursts(file: Path) -> str:
    """Forty requests at once, once a minute: one every one and a half seconds on average."""
    return written(file, lambda at: (60_000 * (at // 40), 1000, 60))


def some_long(file: Path) -> str:
    """One of five prompts is fifteen times as long as the others, which come at their ease."""
    return written(file, lambda at: (4000 * at, 200 if at % 5 else 3000, 4))


def written(file: Path, each: Callable[[int], tuple[int, int, int]]) -> str:
    """`each`: milliseconds, tokens of the prompt and of the answer."""
    lines = []
    for at in range(COUNT):
        stamp, num_prompt, num_output = each(at)
        ids = list(range(100 * at, 100 * at + -(-num_prompt // 512)))
        lines.append(json.dumps({"timestamp": stamp, "input_length": num_prompt, "output_length": num_output, "hash_ids": ids}) + "\n")
    file.write_text("".join(lines))
    return str(file)
