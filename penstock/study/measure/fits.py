"""Whether the requests of a recording fit the context that they are to be put to: found out from their lengths, before one is sent."""
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile

from penstock.core.errors import UsageError
from penstock.study.measure.client.drive import Extent, output_of, shorter
from penstock.study.measure.client.openai import Wish
from penstock.study.measure.load import Part, Prompt, Session, num_tokens


class Lengths:
    """A Writer of prompts that are not there."""

    def __init__(self) -> None:
        self.num_written = 0

    def write(self, parts: Sequence[Part]) -> Prompt:
        self.num_written += 1
        return ""

    def count(self, text: str) -> int | None:
        return None


def check_fits(schedule: Iterator[tuple[float, Session]], extent: Extent, most: int, wish: Wish) -> None:
    """Raises UsageError where the longest request that the extent has time for takes more tokens than `most`. `wish`: what
    every request asks for."""
    def needed(session: Session) -> int:
        return num_tokens(session.turns[0].num_prompt, output_of(wish, session.turns[0]))

    due = takewhile(lambda each: extent.seconds is None or each[0] < extent.seconds, islice(schedule, extent.num_sessions))
    longest = max((session for _, session in due), key=needed, default=None)
    if longest is not None and needed(longest) > most:
        turn = longest.turns[0]
        answer = output_of(wish, turn)
        raise UsageError(
            f"the longest request of the trace has a prompt of {turn.num_prompt:,} tokens and an answer of {answer or 1:,}, which are "
            f"{needed(longest):,}; the context holds {most:,}; {shorter(longest, most, answer)}")
