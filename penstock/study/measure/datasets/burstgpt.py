"""BurstGPT's traces: Timestamp (seconds), Model, Request tokens, Response tokens, Total tokens, Log Type (Wang et al., "BurstGPT", 2024).

Requests that failed have no response tokens; they are left out, and told.
"""
import math

from penstock.core.errors import UsageError
from penstock.study.measure.datasets.traces import Recorded, Row, TraceOptions, in_order, table, whole
from penstock.study.measure.load import Writer

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


class BurstGpt(Recorded):
    Options = TraceOptions

    def __init__(self, options: TraceOptions, writer: Writer, seed: str) -> None:
        super().__init__(read(options.path), options, writer, seed)


def read(path: str, text: str | None = None) -> list[Row]:
    """`text`: of the file, where it was read already. Raises UsageError for another kind of file."""
    return in_order([
        Row(seconds(stamp, at), whole(asked, COLUMNS[1], at), whole(answered, COLUMNS[2], at))
        for at, (stamp, asked, answered) in table(path, "burstgpt", COLUMNS, text)
    ])


def seconds(stamp: str, at: str) -> float:
    try:
        value = float(stamp)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{at}: Timestamp must be a number of seconds, not {stamp!r}")
    return value
