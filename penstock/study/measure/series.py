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


def series(samples: Sequence[Sample], cut_s: float | None = None) -> Series:
    """Of the whole run, warm-up included. `cut_s`: when it was cut short, if it was."""
    ends = max([sample.end_s for sample in samples if sample.end_s is not None], default=0.0) if cut_s is None else cut_s
    width = next((width for width in WIDTHS_S if ends / width <= MAX_BINS), ends / MAX_BINS)
    size = max(1, int(ends / width) + 1)
    read, written, completed, running = ([0.0] * size for _ in range(4))
    for sample in samples:
        if sample.end_s is None:
            if cut_s is not None:
                _occupy(running, sample.due_s, cut_s, width)
            continue
        _occupy(running, sample.due_s, sample.end_s, width)
        if not sample.ok:
            continue
        completed[int(sample.end_s / width)] += 1 / width
        read[int((sample.end_s if sample.first_s is None else sample.first_s) / width)] += (sample.num_prompt or 0) / width
        times = sample.chunk_s or [sample.end_s]
        for at_s in times:
            written[int(at_s / width)] += (sample.num_output or 0) / len(times) / width
    return Series(width, tuple(read), tuple(written), tuple(completed), tuple(running))


def _occupy(bins: list[float], begin_s: float, end_s: float, width: float) -> None:
    """Adds to each bin the share of it that lies between two times."""
    for at in range(max(0, int(begin_s / width)), min(len(bins) - 1, int(end_s / width)) + 1):
        bins[at] += max(0.0, min(end_s, (at + 1) * width) - max(begin_s, at * width)) / width
