"""Mooncake's traces: an object a line with timestamp (ms), input_length, output_length and hash_ids, one for each 512 tokens of the prompt
(Qin et al., "Mooncake", FAST 2025). Equal ids are equal blocks after equal prefixes; prompts are synthesized accordingly.
"""
import math
from typing import Any

from penstock.core.errors import UsageError
from penstock.study.measure.datasets.jsonl import Lines
from penstock.study.measure.datasets.traces import MOST, Recorded, Row, TraceOptions, in_order
from penstock.study.measure.load import Writer

BLOCK_SIZE = 512  # tokens
LENGTHS = ("timestamp", "input_length", "output_length")


class Mooncake(Recorded):
    Options = TraceOptions

    def __init__(self, options: TraceOptions, writer: Writer, seed: str) -> None:
        super().__init__(read(options.path), options, writer, seed)


def read(path: str, text: str | None = None) -> list[Row]:
    """`text`: of the file, where it was read already. Raises UsageError for another kind of file."""
    return in_order([row(told, at) for at, told in Lines(path, "mooncake", text)])


def row(told: Any, at: str) -> Row:
    given: list[Any] = [told.get(name) if isinstance(told, dict) else None for name in LENGTHS]
    if not all(isinstance(each, int | float) and not isinstance(each, bool) and 0 <= each <= MOST for each in given):
        raise UsageError(f"{at}: a line of a mooncake trace has numbers called {', '.join(LENGTHS)}, not {told!r:.60}")
    if parted := [f"{name} {each}" for name, each in zip(LENGTHS[1:], given[1:], strict=True) if each != int(each)]:
        raise UsageError(f"{at}: tokens are whole numbers, not {parted[0]}")
    blocks = told.get("hash_ids")
    if not isinstance(blocks, list) or not all(type(each) is int for each in blocks):
        raise UsageError(f"{at}: hash_ids are a list of whole numbers, not {blocks!r:.60}")
    stamp, num_prompt, num_output = given
    if len(blocks) < (needed := math.ceil(num_prompt / BLOCK_SIZE)):
        raise UsageError(f"{at}: hash_ids are one for each {BLOCK_SIZE} tokens, {needed:,} for {num_prompt:,}, not {len(blocks):,}")
    return Row(stamp / 1000, int(num_prompt), int(num_output), tuple(blocks), BLOCK_SIZE)
