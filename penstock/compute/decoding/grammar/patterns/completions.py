"""How many strings of a set begin with a text."""
import re

from penstock.compute.decoding.grammar.patterns import chars
from penstock.compute.decoding.grammar.patterns.automaton import Automaton
from penstock.compute.decoding.grammar.patterns.chars import Ranges
from penstock.compute.decoding.grammar.patterns.tree import EMPTY

MANY = 1 << 20  # strings: more are not counted
ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "\\": "\\", '"': '"'}
ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class Completions:
    """Of a set whose automaton is known; its strings can be written in JSON without \\u."""

    def __init__(self, automaton: Automaton) -> None:
        self._steps = automaton.steps
        self._ends = automaton.ends
        self._nums = [MANY] * len(automaton.steps)  # of strings from each state on; MANY stays where one leads back to itself
        self._count()

    def num(self, begun: bytes = b"") -> int:
        """At most MANY. `begun`: the beginning of what stands between a JSON string's quotes, cut anywhere."""
        text, rest = split(begun)
        state = 0
        for char in text:
            found = next((then for then, by in self._steps[state].items() if any(low <= ord(char) <= high for low, high in by)), None)
            if found is None:
                return MANY if self._is_anything(state) else 0
            state = found
        if not rest:
            return self._nums[state]
        return MANY if self._is_anything(state) else self._sum(state, rest)

    @property
    def are_endless(self) -> bool:
        """Whether each string is the beginning of others, without end."""
        return bool(self._ends) and all(self._is_anything(state) or self._nums[state] == MANY for state in self._ends)

    def _is_anything(self, state: int) -> bool:
        """Whether anything may follow, so that no steps are listed."""
        return self._ends.get(state, EMPTY) != EMPTY

    def _count(self) -> None:
        """A state as soon as all that it leads to are."""
        before: list[list[int]] = [[] for _ in self._steps]
        left = [len(steps) for steps in self._steps]
        for state, steps in enumerate(self._steps):
            for then in steps:
                before[then].append(state)
        ready = [state for state, steps in enumerate(self._steps) if not steps]
        while ready:
            state = ready.pop()
            if not self._is_anything(state):
                self._nums[state] = min(self._sum(state) + (state in self._ends), MANY)
            for each in before[state]:
                left[each] -= 1
                if not left[each]:
                    ready.append(each)

    def _sum(self, state: int, by: Ranges = chars.EVERY) -> int:
        """Of strings whose next character is one of these."""
        found = [size(chars.intersection(ranges, by)) * self._nums[then] for then, ranges in self._steps[state].items()]
        return min(sum(found), MANY)


def num_short(begun: bytes, most: int) -> int:
    """How many strings of at most `most` characters begin so, up to MANY."""
    text, rest = split(begun)
    left = most - len(text) - bool(rest)
    return 0 if left < 0 else MANY if left else size(rest) if rest else 1


def split(begun: bytes) -> tuple[str, Ranges]:
    """The whole characters, and which the next one can be that has begun; () where none has."""
    end = len(begun)
    while end and begun[end - 1] & 0xC0 == 0x80:
        end -= 1
    if end and begun[end - 1] >= 0xC0:
        lead = begun[end - 1]
        length = 2 + (lead >= 0xE0) + (lead >= 0xF0)
        if len(begun) - end + 1 < length:
            return read(begun[: end - 1]), begun_with(begun[end - 1 :], length)
    text = begun.decode(errors="replace")
    if (len(text) - len(text.rstrip("\\"))) % 2:
        return read(text[:-1].encode()), chars.union([(ord(char), ord(char)) for char in ESCAPED.values()])
    return read(begun), ()


def read(text: bytes) -> str:
    """What is written between quotes."""
    return ESCAPE.sub(lambda found: ESCAPED.get(found[1], found[1]), text.decode(errors="replace"))


def begun_with(begun: bytes, length: int) -> Ranges:
    """The characters of so many bytes in UTF-8 that begin with these."""
    bits = begun[0] & (0x7F >> length)
    for byte in begun[1:]:
        bits = bits << 6 | byte & 0x3F
    more = 6 * (length - len(begun))
    low, high = bits << more, (bits + 1 << more) - 1
    return chars.intersection(((max(low, (0x80, 0x800, 0x10000)[length - 2]), high),), chars.EVERY)


def size(ranges: Ranges) -> int:
    return sum([high - low + 1 for low, high in ranges])
