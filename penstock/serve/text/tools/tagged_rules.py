"""Arguments that stand between tags as a grammar: see tagged.py, which reads them."""
from collections.abc import Callable
from dataclasses import dataclass

from penstock.compute.decoding.grammar.schema.records import ARRAY, BOOLEAN, NULL, NUMBER, OBJECT, STRING
from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.tools.parameters import kinds_of, named, promised
from penstock.serve.text.tools.rules import Function, Wanted, text_in_regex

WORDS = frozenset((BOOLEAN, NULL))
MAX_NAME = 256  # characters
OTHERS = {  # how a text begins that is read as another type, or may be, where that is allowed
    NUMBER: "-?[0-9]", ARRAY: r"\[", OBJECT: r"\{", BOOLEAN: r"(?:[Tt]rue|[Ff]alse)[ \t\r\n]*$", NULL: r"(?:null|None)[ \t\r\n]*$"}


@dataclass(frozen=True, slots=True)
class Tagged:
    """How one format writes an argument. `before`: of its name, the rule for what stands before its text. `close`: the tag that ends this,
    `gap` what belongs to the tag before it, and `behind` the white space that follows."""

    wanted: Wanted
    before: Callable[[str], str]
    close: str
    gap: str
    behind: str

    def calls(self, opening: str, body: Callable[[Function, str], str]) -> str:
        """A format's rules. `opening`: the tag that begins a call; `body`: of a function, and the name of the rule for its arguments, what
        stands behind it."""
        wanted = self.wanted
        arguments = {function.name: f"function{at}" for at, function in enumerate(wanted.functions)}
        return "\n".join([
            f"calls: {wanted.repeated('call', literal(chr(10)))}", f"call: {wanted.tag(opening)} body",
            f"body: {wanted.one_of(lambda function: body(function, arguments[function.name]))}",
            "answer: " + ("(opening body)* TEXT?" if wanted.many else "opening body | TEXT?"), *wanted.until(opening, "opening"),
            *(rule for each in wanted.functions for rule in self.rules(each, arguments[each.name]))])

    def rules(self, function: Function, called: str) -> list[str]:
        """Rules in Lark, of which the first is `called` so, and the others' names begin so: the arguments in their order, those that are
        not required as the model likes. Raises RequestError for parameters that cannot be written so."""
        if function.promised:
            places, required = promised(function, is_name, "text between tags")
        else:
            places, required = dict.fromkeys(named(function, is_name)), frozenset()
        kinds = kinds_of(function)
        rules = [f"{called}: {called}_from0", *self.wanted.until(self.close, f"{called}_any")[:1]]
        for number, (name, place) in enumerate(places.items()):
            value = f"{called}_value{number}"
            following = f"{called}_from{number + 1}"
            skipped = "" if name in required else f" | {following}"
            rules.append(f"{called}_from{number}: {self.before(name)} {value} {literal(self.behind)} {following}{skipped}")
            rules += [f"{value}: {called}_any"] if place is None else self._value(function, place, value, kinds.get(name, kinds[None]))
        return [*rules, f'{called}_from{len(places)}: ""']

    def _value(self, function: Function, place: str, called: str, kinds: frozenset[str]) -> list[str]:
        """The text of an argument, and what ends it."""
        texts = WORDS if STRING in kinds else frozenset[str]()
        others = sorted(kinds - {STRING} - texts)
        choices = [f"{function.part(place, type=others)} {literal(self.gap)} {self.wanted.tag(self.close)}"] if others else []
        rules = []
        if STRING in kinds:
            terminal, special = called.upper(), self.wanted.special(self.close) is not None
            left_out = [text_in_regex(self.close), *(f"^[ \\t\\r\\n]*{OTHERS[kind]}" for kind in sorted(kinds - {STRING}))]
            alternatives = [function.text(place, type=STRING, **{"not": {"anyOf": [{"pattern": each} for each in left_out]}})]
            alternatives += [function.text(place, type=sorted(words))] if (words := texts & kinds) else []
            choices.append(f"{terminal} {self.wanted.tag(self.close)}" if special else terminal)
            rules.append(f"{terminal}: ({' | '.join(alternatives)}) {literal(self.gap + ('' if special else self.close))}")
        return [f"{called}: {' | '.join(choices)}", *rules]


def is_name(text: str) -> bool:
    """Whether an argument can be written with it."""
    return 0 < len(text) <= MAX_NAME and text.isprintable() and not any(char in text for char in "<>")
