"""A file's prompts for runs that follow one another on one server: what was asked before, its prefix cache would know."""
from collections.abc import Callable, Iterator

from penstock.study.measure.fits import Lengths
from penstock.study.measure.load import Dataset, Session, Writer

REPEATED = ("the dataset was used up, and its prompts were sent again, which a prefix cache knows: give a longer file, or start the server "
            "without its prefix cache")


class Onward:
    """A Dataset that goes on where the run before stopped, and begins again behind its end: a run is given each session once at most."""

    def __init__(self, dataset: Dataset) -> None:
        self.has_times = dataset.has_times
        self._dataset = dataset
        self._rest = dataset.sessions()
        self._num_given = 0
        self._length: int | None = None  # sessions; None until its end was seen

    def sessions(self) -> Iterator[Session]:
        given = 0
        while given != self._length:
            found = next(self._rest, None)
            if found is None:
                self._length = self._num_given if self._length is None else self._length
                self._rest = self._dataset.sessions()
            else:
                given, self._num_given = given + 1, self._num_given + 1
                yield found

    def notes(self) -> list[str]:
        return self._dataset.notes()

    def repeated(self) -> list[str]:
        """A note, where sessions were given twice."""
        return [] if self._length is None or self._num_given <= self._length else [REPEATED]


def reads(make: Callable[[Writer, str], Dataset], seed: str) -> bool:
    """Whether a dataset's prompts stand in a file, and are the same whatever the seed is."""
    writer = Lengths()
    next(make(writer, seed).sessions(), None)
    return not writer.num_written
