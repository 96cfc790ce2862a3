"""Arguments that stand between tags as a grammar: see tagged.py, which reads them."""
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.compute.decoding.grammar.schema.records import ARRAY, BOOLEAN, EVERY, NULL, NUMBER, OBJECT, STRING, Numbers, Shape
from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.json_object import NUMBER as UNSIGNED
from penstock.serve.text.tools.parameters import UNTOLD, named, promised, shapes_of
from penstock.serve.text.tools.rules import Function, Wanted, text_in_regex

TEXTS = frozenset((STRING, BOOLEAN, NULL))
MAX_NAME = 256  # characters
BLANK = r"[ \t\r\n]*"
BEGUN = {NUMBER: "-?[0-9]", ARRAY: r"\[", OBJECT: r"\{"}  # how JSON of these types begins: what begins so must be one where one may stand
WHOLE = {NUMBER: rf"-?{UNSIGNED.pattern}", BOOLEAN: "(?:[Tt]rue|[Ff]alse)", NULL: "(?:null|None)"}  # texts that are read as these types


@dataclass(frozen=True, slots=True)
class Tagged:
    """How one format writes an argument. `before`: of its name, the rule for what stands before its text. `close`: the tag that ends this,
    `gap` what belongs to the tag before it, and `behind` the white space that follows. `said`: what stands between the two where the text
    is a string, and where it is JSON of another type; "" where the format says nothing of that. `key_end`: what no name has in it."""

    wanted: Wanted
    before: Callable[[str], str]
    close: str
    gap: str
    behind: str
    said: tuple[str, str] = ("", "")
    key_end: str = ">"

    def calls(self, opening: str, body: Callable[[Function, str], str], closing: str = "") -> str:
        """A format's rules. `opening`: the tag that begins a call; `body`: of a function, and the name of the rule for its arguments, what
        stands behind it. With `closing`, these two tags are around all calls, and `body` is all of one."""
        wanted = self.wanted
        arguments = {function.name: f"function{at}" for at, function in enumerate(wanted.functions)}
        if closing:
            inside = f'{literal(chr(10))} {wanted.repeated("body", literal(""))} {wanted.tag(closing)}'
            frame = [f"calls: {wanted.tag(opening)} rest", f"rest: {inside}", "answer: opening rest | TEXT?"]
        else:
            frame = [f"calls: {wanted.repeated('call', literal(chr(10)))}", f"call: {wanted.tag(opening)} body",
                     "answer: " + ("(opening body)* TEXT?" if wanted.many else "opening body | TEXT?")]
        return "\n".join([
            *frame, f"body: {wanted.one_of(lambda function: body(function, arguments[function.name]))}", *wanted.until(opening, "opening"),
            *(rule for each in wanted.functions for rule in self.rules(each, arguments[each.name]))])

    def rules(self, function: Function, called: str) -> list[str]:
        """Rules in Lark, of which the first is `called` so, and the others' names begin so: the arguments in their order, those that are
        not required as the model likes. Raises RequestError for parameters that cannot be written so."""
        if function.promised:
            places, required = promised(function, self._is_name, "text between tags")
        else:
            places, required = dict.fromkeys(named(function, self._is_name)), frozenset()
        told = {name: place for name, place in places.items() if place is not None}
        values = dict(zip(told, self._values(function, told) if told else (), strict=True))
        rules = [f"{called}: {called}_from0", *self.wanted.until(self.close, f"{called}_any")[:1]]
        for number, name in enumerate(places):
            value = f"{called}_value{number}"
            following = f"{called}_from{number + 1}"
            skipped = "" if name in required else f" | {following}"
            rules.append(f"{called}_from{number}: {self.before(name)} {value} {literal(self.behind)} {following}{skipped}")
            anything = " | ".join([f"{literal(said)} {called}_any" for said in dict.fromkeys(self.said)])
            rules += self._value(value, *values[name]) if name in values else [f"{value}: {anything}"]
        return [*rules, f'{called}_from{len(places)}: ""']

    def _values(self, function: Function, places: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Of each argument, by its name and a reference to what is said of it: its plain texts, and its JSON; "" for none."""
        kinds, shapes = function.kinds, shapes_of(function.document)
        for name, place in places.items():
            every = kinds.get(name, kinds[None])
            if any(self.said):
                texts, others = every & {STRING}, (frozenset(EVERY) if every == UNTOLD else every) - {STRING}
            else:
                texts = every & texts_next_to(shapes({"$ref": place, "type": NUMBER})) if STRING in every else frozenset[str]()
                others = every - texts
            left_out = [{"pattern": each} for each in self._left_out(texts, others)]
            beside = {"type": sorted(texts), "not": {"type": STRING, "anyOf": left_out}}
            if others and texts and shapes({"$ref": place, **beside}) == []:
                texts = frozenset()  # each would be read as another type
            yield function.text(place, **beside) if texts else "", function.part(place, type=sorted(others)) if others else ""

    def _left_out(self, texts: frozenset[str], others: frozenset[str]) -> list[str]:
        """Patterns of what a string must not be next to texts, and JSON, of these types."""
        if any(self.said):
            return [text_in_regex(self.close)]
        whole = [f"^{BLANK}{WHOLE[kind]}{BLANK}$" for kind in sorted(texts - {STRING})]
        return [text_in_regex(self.close), *whole, *(f"^{BLANK}{BEGUN[kind]}" for kind in sorted(others & BEGUN.keys()))]

    def _is_name(self, text: str) -> bool:
        return is_name(text) and self.key_end not in text

    def _value(self, called: str, text: str, json_text: str) -> list[str]:
        """The text of an argument, and what ends it."""
        terminal, special = called.upper(), self.wanted.special(self.close) is not None
        string, other = map(literal, self.said)
        choices = [f"{other} {json_text} {literal(self.gap)} {self.wanted.tag(self.close)}"] if json_text else []
        choices += [f"{string} {terminal} {self.wanted.tag(self.close)}" if special else f"{string} {terminal}"] if text else []
        rules = [f"{terminal}: {text} {literal(self.gap + ('' if special else self.close))}"] if text else []
        return [f"{called}: {' | '.join(choices)}", *rules]


def texts_next_to(numbers: Sequence[Shape] | None) -> frozenset[str]:
    """Types that may be written as texts where these are all numbers: numbers, too, if they are plain. A string may then begin like one."""
    records = [None] if numbers is None else [shape.get(NUMBER) for shape in numbers]
    return TEXTS | {NUMBER} if all(isinstance(each, Numbers) and each.is_plain for each in records) else TEXTS


def is_name(text: str) -> bool:
    """Whether an argument can be written with it."""
    return 0 < len(text) <= MAX_NAME and text.isprintable() and not any(char in text for char in "<>")
