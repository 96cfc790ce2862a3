"""What happened when, in bins of equal length: for plots."""
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.study.measure.samples import Sample

MAX_BINS = 100
WIDTHS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Series:
    width_s: float
    input_tokens_per_s: tuple[float, ...]
    output_tokens_per_s: tuple[float, ...]
    requests_per_s: tuple[float, ...]  # completed
    running: tuple[float, ...]  # in flight on average

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def series(samples: Sequence[Sample], cut_s: float | None = None, per_chunk: float = 1.0) -> Series:
    """Of the whole run, warm-up included. `cut_s`: when it was cut short, if it was; a piece of what was in flight then has `per_chunk`
    tokens."""
    ends = max([sample.end_s for sample in samples if sample.end_s is not None], default=0.0) if cut_s is None else cut_s
    width = next((width for width in WIDTHS_S if ends / width <= MAX_BINS), ends / MAX_BINS)
    size = max(1, int(ends / width) + 1)
    read, written, completed, running = ([0.0] * size for _ in range(4))
    for sample in samples:
        end_s = cut_s if sample.end_s is None else sample.end_s
        if end_s is None:
            continue
        _occupy(running, sample.due_s, end_s, width)
        if sample.error is not None:
            continue
        begun_s, times, num_output = sample.first_s, sample.chunk_s or [end_s], float(sample.num_output or 0)
        if sample.ok:
            completed[int(end_s / width)] += 1 / width
            begun_s = end_s if begun_s is None else begun_s
        else:
            num_output = per_chunk * len(sample.chunk_s)
        if begun_s is not None:
            read[int(begun_s / width)] += (sample.num_prompt or 0) / width
        for at_s in times:
            written[int(at_s / width)] += num_output / len(times) / width
    return Series(width, tuple(read), tuple(written), tuple(completed), tuple(running))


def _occupy(bins: list[float], begin_s: float, end_s: float, width: float) -> None:
    """Adds to each bin the share of it that lies between two times."""
    for at in range(max(0, int(begin_s / width)), min(len(bins) - 1, int(end_s / width)) + 1):
        bins[at] += max(0.0, min(end_s, (at + 1) * width) - max(begin_s, at * width)) / width
