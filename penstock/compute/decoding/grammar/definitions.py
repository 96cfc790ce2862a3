"""What a Lark grammar's definitions lead to, seen from its text: what llguidance makes of them grows with squares, has no limit of its own
and cannot be ended. It writes every terminal into those that name it; for a terminal's parts that may be left out it makes as many rests of
the terminal; and it goes over all that rules have in one place before it counts that, on the engine's thread too."""
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from penstock.compute.decoding.grammar.effort import OPTIONAL, Effort
from penstock.core.errors import RequestError

MOST_WRITTEN = 2_000_000  # characters of all terminals together, each written out
MOST_PARTS = 10_000  # at one place 2,000 can be followed, and 10,000 take 0.04 s to be refused there
A_STEP = 35  # pairs of parts that may be left out, in one terminal
MAY_BE_LEFT_OUT = re.compile(r"[?*{\[]")
NOT = "~"
MAY_BE_EMPTY = re.compile(r"[?*{]|[(|]\||\|\)")  # in a regex


@dataclass(slots=True)
class Terminal:
    size: int = 0  # characters of its own strings and regexes
    optional: int = 0  # parts of its own that may be left out
    names: list[str] = field(default_factory=list)  # of terminals in it, as often as they are


class Definitions:
    """Told of a grammar in the order of its text."""

    def __init__(self) -> None:
        self._terminals: dict[str, Terminal] = {}
        self._at: Terminal | None = None  # which is being defined
        self._in_rule = False
        self._num_parts = 0  # definitions, alternatives of rules and, twice, what may be left out in them

    def terminal(self, name: str) -> None:
        """What is told from here on belongs to it."""
        self._at = self._terminals.setdefault(name, Terminal())
        self._in_rule = False
        self._num_parts += 1

    def rule(self) -> None:
        self._at = None
        self._in_rule = True
        self._num_parts += 1

    def between(self, text: str) -> None:
        """What is neither text nor name."""
        marks = len(MAY_BE_LEFT_OUT.findall(text))
        if self._in_rule:
            self._num_parts += 2 * marks + text.count("|")
            if NOT in text and self._at is None:
                self._at = self._unnamed()
        if self._at is not None:
            self._at.optional += marks

    def text(self, text: str) -> None:
        """A string or a regex."""
        at = self._at or self._unnamed()
        at.size += len(text)
        at.optional += text == '""' if text[0] == '"' else len(MAY_BE_EMPTY.findall(text))

    def name(self, name: str) -> None:
        """Of a terminal, which may be defined later, or never."""
        if self._at is not None:
            self._at.names.append(name)

    def _unnamed(self) -> Terminal:
        """A terminal in a rule: a string or a regex, or what is behind a `~`, for which the rest of the rule is taken."""
        return self._terminals.setdefault(f"in a rule {len(self._terminals)}", Terminal())

    def check(self, effort: Effort) -> None:
        """Raises RequestError where they are too large, and for a terminal that leads back to itself; TooLargeError."""
        if self._num_parts > MOST_PARTS:
            raise RequestError(
                f"grammar has {self._num_parts:,} definitions, alternatives in rules and parts of rules that may be left out; at most "
                f"{MOST_PARTS:,} are read; alternatives of words are not counted in a terminal, in upper case", "grammar")
        size = 0  # of all
        for each in self._written():
            size += each.size
            if size > MOST_WRITTEN:
                raise RequestError(
                    f"grammar has terminals that name one another and have more than {MOST_WRITTEN:,} characters when each is written out; "
                    "rules, in lower case, are not written into one another", "grammar")
            effort.spend(each.optional * each.optional // A_STEP, OPTIONAL)

    def _written(self) -> Iterator[Terminal]:
        """Each terminal with all that it names in it."""
        written: dict[str, Terminal] = {}
        try:
            order = [*TopologicalSorter({name: each.names for name, each in self._terminals.items()}).static_order()]
        except CycleError as error:
            raise RequestError(f"grammar has terminals that lead back to themselves: {' '.join(error.args[1][:4])}", "grammar") from None
        for name in order:
            own = self._terminals.get(name, Terminal())
            named = [written[each] for each in own.names]
            size = own.size + sum([1 + each.size for each in named])
            written[name] = Terminal(size, own.optional + sum([each.optional for each in named]))
            yield written[name]
