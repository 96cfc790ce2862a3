"""A function's arguments as keywords, `a=1, b="x"`: a grammar made of the properties that its parameters name."""
from collections.abc import Collection

from penstock.compute.decoding.grammar.syntax import literal
from penstock.core.errors import RequestError
from penstock.serve.text.tools.parameters import named, promised
from penstock.serve.text.tools.rules import Function

ANY = "%json {}"


def keywords(function: Function, called: str) -> list[str]:
    """Rules in Lark, of which the first is `called` so, and the others' names begin so: the properties in their order, those that are not
    required as the model likes. Each value is valid by its property as that stands in the parameters, where that is promised. Raises
    RequestError for parameters that cannot be written so."""
    if not is_name(function.name):
        why = "each part between dots must begin with a letter or an underscore, and not end with a dash"
        raise RequestError(f"the name of the function {function.name!r} cannot be called in the model's format: {why}",
                           f"{function.field}.name")
    values_by_name, required = valued(function)
    rules = [f"{called}: {called}_first0"]
    for number, (name, value) in enumerate(values_by_name.items()):  # one that comes first, or behind others
        one, following = f"{called}_argument{number}", f"{called}_rest{number + 1}"
        skipped = ("", "") if name in required else (f" | {called}_first{number + 1}", f" | {following}")
        rules += [
            f"{one}: {literal(name + '=')} {value}",
            f"{called}_first{number}: {one} {following}{skipped[0]}", f'{called}_rest{number}: ", " {one} {following}{skipped[1]}']
    return [*rules, *(f'{called}_{part}{len(values_by_name)}: ""' for part in ("first", "rest"))]


def valued(function: Function) -> tuple[dict[str, str], Collection[str]]:
    """The arguments of a function, each with a rule for its value, and the names of those that must be given. Raises RequestError."""
    if not function.promised:
        return dict.fromkeys(named(function, is_name), ANY), ()
    places, required = promised(function, is_name, "keyword arguments")
    return {name: ANY if place is None else function.part(place) for name, place in places.items()}, required


def is_name(text: str) -> bool:
    """Whether a call can be written with it: identifiers of Python's joined by dots, with dashes inside, and whatever words Python keeps to
    itself."""
    return all(part.replace("-", "_").isidentifier() and part[0] != "-" != part[-1] for part in text.split("."))
