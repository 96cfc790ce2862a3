"""Recorded traffic without its text: when each request came, how long it and its answer were, and which blocks of it were seen before.

Prompts are synthesized: equal block ids give equal tokens, so that a prefix cache finds what it would have found. A trace of larger
models' traffic is made to fit a smaller context by `scale`, which shortens prompts, answers and blocks alike.
"""
import csv
import io
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.core.errors import UsageError
from penstock.study.measure.datasets.jsonl import read_text
from penstock.study.measure.load import Part, Session, Turn, Writer

MOST = 1e15  # tokens, or milliseconds: above it a number is a mistake
CACHED_BLOCK = 16  # tokens in a block of a prefix cache, unless its server was told otherwise: Penstock's and vLLM's


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a trace. `blocks` are ids of its prompt's blocks of `block_size` tokens, the last one perhaps not full."""

    at_s: float
    num_prompt: int
    num_output: int
    blocks: tuple[int, ...] = ()
    block_size: int = 0


@dataclass(frozen=True, slots=True)
class TraceOptions:
    path: str = ""
    scale: float = 1.0  # multiplies lengths
    start: float = 0.0  # seconds of the recording that are skipped
    seconds: float = 0.0  # of the recording that are taken; 0: all
    max_input: int = 0  # prompts that are longer, once scaled, are left out, and told; 0: none is
    max_output: int = 0  # likewise


@dataclass(slots=True)
class Left:
    """Requests that were left out, by reason."""

    reasons: dict[str, int] = field(default_factory=dict)

    def out(self, reason: str) -> None:
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def told(self) -> list[str]:
        return [f"{count:,} {reason}" for reason, count in self.reasons.items()]


def cut(rows: Sequence[Row], options: TraceOptions, left: Left) -> Iterator[Row]:
    """The rows within the options, scaled, from 0 s on. Rows must be in order of time."""
    first = rows[0].at_s if rows else 0.0
    for row in rows:
        at_s = row.at_s - first - options.start
        if at_s < 0:
            left.out(f"before start={options.start:g}")
            continue
        if options.seconds and at_s >= options.seconds:
            left.out(f"after seconds={options.seconds:g}")
            continue
        if row.num_prompt < 1 or row.num_output < 1:
            left.out("without a prompt or an answer")
            continue
        scaled = Row(
            at_s, scaled_by(options.scale, row.num_prompt), scaled_by(options.scale, row.num_output), row.blocks,
            scaled_by(options.scale, row.block_size) if row.blocks else 0)
        if options.max_input and scaled.num_prompt > options.max_input:
            left.out(f"with a prompt of more than max_input={options.max_input} tokens")
        elif options.max_output and scaled.num_output > options.max_output:
            left.out(f"with an answer of more than max_output={options.max_output} tokens")
        else:
            yield scaled


def scaled_by(scale: float, length: int) -> int:
    return max(1, round(length * scale))


def parts(row: Row, seed: str, number: int) -> list[Part]:
    """A prompt's parts: its blocks as far as they reach, the rest its own."""
    found, open_tokens = [], row.num_prompt
    for block in row.blocks:
        if open_tokens > 0:
            found.append(Part(f"{seed}/block/{block}", min(row.block_size, open_tokens)))
            open_tokens -= row.block_size
    if open_tokens > 0:
        found.append(Part(f"{seed}/prompt/{number}", open_tokens))
    return found


def sessions(rows: Iterator[Row], writer: Writer, seed: str, scale: float = 1.0) -> Iterator[Session]:
    """`scale`: what the lengths of the rows were multiplied with."""
    for number, row in enumerate(rows):
        prompt = writer.write(parts(row, seed, number))
        yield Session((Turn(prompt, num_prompt=row.num_prompt, num_output=row.num_output),), row.at_s, scale)


class Recorded:
    """A trace whose rows are `read`: what the formats have in common."""

    has_times = True

    def __init__(self, rows: Sequence[Row], options: TraceOptions, writer: Writer, seed: str) -> None:
        check(options)
        self._rows, self._options, self._writer, self._seed = rows, options, writer, seed
        self._left = Left()

    def sessions(self) -> Iterator[Session]:
        self._left = Left()
        found = sessions(cut(self._rows, self._options, self._left), self._writer, self._seed, self._options.scale)
        if (first := next(found, None)) is None:
            told = ", ".join(self._left.told())
            raise UsageError(f"{self._options.path} has no requests" + (f" but those that are left out: {told}" if told else ""))
        return itertools.chain([first], found)

    def anew(self, writer: Writer, seed: str) -> "Recorded":
        return Recorded(self._rows, self._options, writer, seed)

    def notes(self) -> list[str]:
        told = self._left.told()
        return [*([f"requests of the trace that were left out: {', '.join(told)}"] if told else []), *self._small_blocks()]

    def _small_blocks(self) -> Iterator[str]:
        """A note, where blocks were scaled to less than those that prefix caches keep."""
        size = max((row.block_size for row in self._rows if row.blocks), default=0)
        if size >= CACHED_BLOCK > (small := scaled_by(self._options.scale, size)):
            yield (f"blocks of {size} tokens that requests share became {small}: a prefix cache with larger blocks ({CACHED_BLOCK} tokens "
                   f"by default; `--block-size {small}` makes them as small) finds only what fills them")


def check(options: TraceOptions) -> None:
    if not 0 < options.scale < math.inf:
        raise UsageError(f"scale must be more than 0 and finite, not {options.scale:g}")
    for name in ("start", "seconds", "max_input", "max_output"):
        value = getattr(options, name)
        if not 0 <= value < math.inf:
            raise UsageError(f"{name} of a trace must be 0 or more and finite, not {value:g}")


def table(path: str, owner: str, columns: Sequence[str], text: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """(where it stands, these columns' fields) of each line of a CSV file with a head. `text`: of the file, where it was read already.
    Raises UsageError where a column is missing."""
    reader = csv.DictReader(io.StringIO(read_text(path, owner) if text is None else text))
    try:
        missing = [name for name in columns if name not in (reader.fieldnames or ())]
    except csv.Error as error:
        raise UsageError(f"{path} is no {owner} trace: {error}") from None
    if missing:
        raise UsageError(f"{path} is no {owner} trace: it has no column {missing[0]!r}, but {', '.join(reader.fieldnames or ()) or 'none'}")
    try:
        for row in reader:
            if None in row:
                count = len(reader.fieldnames or ())
                raise UsageError(f"{path}:{reader.line_num} has {count + len(row[None])} fields under {count} headings")
            yield f"{path}:{reader.line_num}", [row[name] or "" for name in columns]
    except csv.Error as error:
        raise UsageError(f"{path}:{reader.line_num} is no line of a {owner} trace: {error}") from None


def whole(text: str, name: str, at: str) -> int:
    """A number of tokens. Raises UsageError for what is none."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MOST or not value.is_integer():
        raise UsageError(f"{at}: {name} must be a whole number from 0 to {MOST:g}, not {text!r:.60}")
    return int(value)


def in_order(rows: list[Row]) -> list[Row]:
    """By time: recordings of several machines are not always."""
    return sorted(rows, key=lambda row: row.at_s)
