"""Azure's LLM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens (Patel et al., "Splitwise", ISCA 2024)."""
import re
from datetime import datetime

from penstock.core.errors import UsageError
from penstock.study.measure.datasets.traces import Recorded, Row, TraceOptions, in_order, table, whole
from penstock.study.measure.load import Writer

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
STAMP = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d(?::?\d\d)?)?")


class Azure(Recorded):
    Options = TraceOptions

    def __init__(self, options: TraceOptions, writer: Writer, seed: str) -> None:
        super().__init__(read(options.path), options, writer, seed)


def read(path: str, text: str | None = None) -> list[Row]:
    """`text`: of the file, where it was read already. Raises UsageError for another kind of file."""
    return in_order([
        Row(seconds(stamp, at), whole(context, COLUMNS[1], at), whole(generated, COLUMNS[2], at))
        for at, (stamp, context, generated) in table(path, "azure", COLUMNS, text)
    ])


def seconds(stamp: str, at: str) -> float:
    """Since 1970; in UTC where no offset is told. Fractions have seven digits, one more than Python reads."""
    found = STAMP.fullmatch(stamp.strip())
    try:
        if found is None:
            raise ValueError
        whole_seconds, fraction, offset = found.groups(default="")
        begun = datetime.fromisoformat(whole_seconds + (offset or "Z"))
        return begun.timestamp() + float(f"0.{fraction or 0}")
    except ValueError:
        raise UsageError(f"{at}: TIMESTAMP must be like 2023-11-16 18:17:03.9799600, not {stamp!r}") from None
