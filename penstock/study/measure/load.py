"""What is asked of a server: sessions of turns, each turn one request. Prompts are written by a Writer, from parts that may be shared."""
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Prompt = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """One request: a prompt, or the messages that this turn adds to a conversation.

    `num_prompt` is None where only the server can count; `num_output` None lets the model end where it wants. `answer` is what was
    answered when the conversation was recorded.
    """

    prompt: Prompt | None = None
    messages: tuple[Mapping[str, str], ...] = ()
    num_prompt: int | None = None
    num_output: int | None = None
    answer: str | None = None
    wait_s: float = 0.0  # between the end of the turn before and this one


@dataclass(frozen=True, slots=True)
class Session:
    """Turns that follow one another; each is sent when the one before has ended."""

    turns: tuple[Turn, ...]
    at_s: float | None = None  # when it came, in seconds after the begin of the recording
    scale: float = 1.0  # what its recorded lengths were multiplied with


def num_tokens(num_prompt: int | None, num_output: int | None) -> int:
    """Of a request and its answer, as far as they are known: an answer has one at least."""
    return (num_prompt or 0) + (num_output or 1)


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a prompt. Parts of one seed have the same text, as far as the shorter one goes."""

    seed: str
    num_tokens: int


class Writer(Protocol):
    def write(self, parts: Sequence[Part]) -> Prompt:
        """A prompt of exactly the parts' tokens. Raises PenstockError where that cannot be done."""
        ...

    def count(self, text: str) -> int | None:
        """Tokens of a text; None where there is no tokenizer."""
        ...


class Dataset(Protocol):
    """Where sessions come from. `has_times`: whether sessions say when they came."""

    has_times: bool

    def sessions(self) -> Iterator[Session]:
        """In the order in which they are sent; may be endless. Raises UsageError for a file that cannot be read or understood."""
        ...

    def notes(self) -> list[str]:
        """What a reader of the results must know: what was left out, and why. Complete once `sessions` has ended."""
        ...


class Source(Dataset, Protocol):
    """A Dataset that is chosen by name. Its constructor takes (options, writer, seed)."""

    def anew(self, writer: Writer, seed: str) -> "Source":
        """The same for others; what was read of a file is not read again."""
        ...


class Arrivals(Protocol):
    """When sessions begin. `users` is set in a closed loop: so many sessions run, and the next begins when one has ended."""

    users: int | None

    def schedule(self, sessions: Iterator[Session], seed: str) -> Iterator[tuple[float, Session]]:
        """(seconds after the begin, session), in rising order. Raises UsageError where sessions lack what is needed."""
        ...

    def at_rate(self, rate: float) -> "Arrivals":
        """The same process with so many sessions a second. Raises UsageError where there is no such thing."""
        ...
