"""Estimates the cost of a Lark grammar from its text, and refuses grammars that llguidance would take too long to compile. Its costs have
no limit of their own and cannot be interrupted: terminals are expanded into those that name them, a terminal takes time quadratic in the
number of its optional parts, and all alternatives at one place are visited before its limit is checked, also on the engine's thread."""
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from penstock.compute.decoding.grammar.effort import OPTIONAL, Effort
from penstock.core.errors import RequestError

MOST_WRITTEN = 2_000_000  # characters of all terminals together, each expanded
MOST_PARTS = 10_000  # llguidance follows 2,000 at one place, and takes 0.04 s to refuse 10,000 there
A_STEP = 35  # pairs of optional parts of one terminal per step of effort
MAY_BE_LEFT_OUT = re.compile(r"[?*{\[]")
NOT = "~"
MAY_BE_EMPTY = re.compile(r"[?*{]|[(|]\||\|\)")  # in a regex


@dataclass(slots=True)
class Terminal:
    """A terminal of the grammar. `size` and `optional` do not include the terminals that it names."""

    size: int = 0  # characters of its strings and regexes
    optional: int = 0  # number of optional parts
    names: list[str] = field(default_factory=list)  # terminals that it names, with repetitions


class Definitions:
    """Collects a grammar's definitions: its methods are called for the pieces of its text, in order; then `check`."""

    def __init__(self) -> None:
        self._terminals: dict[str, Terminal] = {}
        self._at: Terminal | None = None  # the one being defined
        self._in_rule = False
        self._num_parts = 0  # definitions, alternatives of rules, and twice their optional parts

    def terminal(self, name: str) -> None:
        """A definition of a terminal begins."""
        self._at = self._terminals.setdefault(name, Terminal())
        self._in_rule = False
        self._num_parts += 1

    def rule(self) -> None:
        """A definition of a rule begins."""
        self._at = None
        self._in_rule = True
        self._num_parts += 1

    def between(self, text: str) -> None:
        """Text between the other pieces, such as operators."""
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
        """The name of a terminal, which may be defined later, or never."""
        if self._at is not None:
            self._at.names.append(name)

    def _unnamed(self) -> Terminal:
        """A new anonymous terminal in a rule: a string, a regex, or the operand of `~`, taken to be the rest of the rule."""
        return self._terminals.setdefault(f"in a rule {len(self._terminals)}", Terminal())

    def check(self, effort: Effort) -> None:
        """Raises RequestError if the grammar is too large or a terminal is recursive, TooLargeError if it takes too many steps."""
        if self._num_parts > MOST_PARTS:
            raise RequestError(
                f"grammar has {self._num_parts:,} definitions, alternatives in rules and parts of rules that may be left out; at most "
                f"{MOST_PARTS:,} are read; alternatives of words are not counted in a terminal, in upper case", "grammar")
        size = 0  # of all terminals
        for each in self._written():
            size += each.size
            if size > MOST_WRITTEN:
                raise RequestError(
                    f"grammar has terminals that name one another and have more than {MOST_WRITTEN:,} characters when each is written out; "
                    "rules, in lower case, are not written into one another", "grammar")
            effort.spend(each.optional * each.optional // A_STEP, OPTIONAL)

    def _written(self) -> Iterator[Terminal]:
        """Each terminal, with the terminals that it names expanded."""
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
