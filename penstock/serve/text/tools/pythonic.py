"""Pythonic calls, as Llama 3.2 and Llama 4 write them: the answer is `[f(a=1, b="x"), g()]` and nothing else."""
import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from math import isinf
from typing import ClassVar, Optional

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.answer import ContentDelta, Event, ToolCallArguments, ToolCallStart
from penstock.serve.text.calls import NewId, new_call_id
from penstock.serve.text.json_object import BLANK, NUMBER
from penstock.serve.text.markup import Begun, Openings
from penstock.serve.text.tools.keywords import is_name, keywords
from penstock.serve.text.tools.rules import Function, Wanted, not_begun_by

START, END = "<|python_start|>", "<|python_end|>"  # Llama 4 may write the list between these
WORDS = ("true", "false", "null")  # JSON's, which models mix in
STRING = r"\"(?:\\.|[^\"\\])*+\"?|'(?:\\.|[^'\\])*+'?"  # or what has begun as one and does not end, which is no call
RAW = rf"(?<!\w)[rR](?:\"\"\".*?\"\"\"|'''.*?'''|{STRING})"
ESCAPE = re.compile(r"\\(.)", re.DOTALL)
ESCAPES = frozenset("\n\r\\'\"abfnrtvxuUN01234567")  # what may stand behind a backslash in Python
LONG = r"(?<![\w.])(?<!\d[eE][+-])[1-9](?:_?[0-9]){4000,}(?![\w.])"  # an integer
STRING_OR_LONG = re.compile(rf"({RAW}|{STRING}|#[^\n]*)|{LONG}", re.DOTALL)
PARAMETER = re.compile(rf"{STRING}|#[^\n]*|(?<=[(,\s])([^\s=,()\[\]{{}}\"'#]++)(?=\s*=(?!=))", re.DOTALL)
MAX_BITS = 65536  # of an integer in hexadecimal, octal or binary: the time to write it in decimal grows with the square of these
PAIRS = {"(": ")", "[": "]", "{": "}"}

Step = Callable[[str], Optional["Step"]]


class PythonicParser:
    """Tells of a call when its closing parenthesis has come: only then its arguments can be written as JSON.

    Arguments are keywords with literals. Names may hold dashes, and be words that Python keeps to itself, since functions and parameters of
    APIs do and are. Each state reads one character and gives the next state, None when this is no call.
    """

    markup: ClassVar[tuple[str, ...]] = ()
    openings: ClassVar[Openings] = ()
    start: ClassVar[str] = START
    end: ClassVar[str] = END

    def __init__(self, new_id: NewId = new_call_id, sure: bool = False, functions: Sequence[Function] = ()) -> None:
        """`sure`: a list that has begun is one of calls, so that what is cut off of it is no content; half of a call cannot be told as
        JSON."""
        self._new_id = new_id
        self._sure = sure
        self._num_calls = 0
        self._events: list[Event] = []
        self._step: Step | None = self._at_start
        self._raw: list[str] = []  # since the last call
        self._begin = 0  # of the call, in `_raw`
        self._open: list[str] = []  # the closing bracket of each open one
        self._quote = ""
        self._escaped = False
        self._tag = Begun(self.start)

    @classmethod
    def suits(cls, template: str) -> bool:
        return START in template or "[func_name1(" in template

    @classmethod
    def rules(cls, wanted: Wanted) -> str:
        """Raises RequestError for parameters that cannot be written as keyword arguments."""
        return "\n".join([*cls.list_rules(wanted), "calls: list", "answer: calls | TEXT?", f"TEXT: {not_begun_by('[')}"])

    @classmethod
    def listed(cls, wanted: Wanted) -> str:
        """Calls in a row."""
        return f'"[" {wanted.repeated("call", literal(", "))} "]"'

    @classmethod
    def list_rules(cls, wanted: Wanted) -> list[str]:
        """Rules of `list`, calls in a row. Raises RequestError."""
        arguments = {function.name: f"function{at}" for at, function in enumerate(wanted.functions)}

        def call(function: Function) -> str:
            return f"{literal(function.name + '(')} {arguments[function.name]} {literal(')')}"

        return [f"list: {cls.listed(wanted)}", f"call: {wanted.one_of(call)}",
                *(rule for each in wanted.functions for rule in keywords(each, arguments[each.name]))]

    def push(self, text: str) -> list[Event]:
        for at, char in enumerate(text):
            if self._step is None:
                self._events.append(ContentDelta(text[at:]))
                break
            self._raw.append(char)
            self._step = self._step(char)
            if self._step is None:
                self._give_back()
        events, self._events = self._events, []
        return events

    def finish(self, ended: bool = True) -> list[Event]:
        is_cut_off = self._sure and self._step is not None and (self._num_calls or self._has_begun())
        if is_cut_off or (self._num_calls and not "".join(self._raw).strip(BLANK + ",")):
            self._raw = []
        self._give_back()
        events, self._events = self._events, []
        return events

    def _has_begun(self) -> bool:
        """Whether a list has, before its first call."""
        return "[" in self._raw

    def _give_back(self) -> None:
        if self._raw:
            self._events.append(ContentDelta("".join(self._raw)))
        self._raw = []

    def _at_start(self, char: str) -> Step | None:
        if char == "[" and not self._tag.ended and self._tag.text in ("", self.start):
            return self._before_name
        return self._at_start if self._tag.push(char) else None

    def _before_name(self, char: str) -> Step | None:
        if char in BLANK:
            return self._before_name
        self._begin = len(self._raw) - 1
        return self._in_name if char.isidentifier() else None

    def _in_name(self, char: str) -> Step | None:
        if char == "(":
            self._open = [")"]
            return self._in_arguments
        return self._in_name if char in ".-" or f"_{char}".isidentifier() else None

    def _in_arguments(self, char: str) -> Step | None:
        if self._quote:
            closes = char == self._quote and not self._escaped
            self._escaped = char == "\\" and not self._escaped
            self._quote = "" if closes else self._quote
        elif char in "'\"":
            self._quote = char
        elif char in PAIRS:
            self._open.append(PAIRS[char])
        elif char == self._open[-1]:
            self._open.pop()
        elif char in PAIRS.values():
            return None
        return self._in_arguments if self._open else self._end_call()

    def _end_call(self) -> Step | None:
        call = read_call("".join(self._raw[self._begin :]))
        if call is None:
            return None
        name, arguments = call
        self._events += [ToolCallStart(self._num_calls, self._new_id(), name), ToolCallArguments(self._num_calls, arguments)]
        self._num_calls += 1
        self._raw = []
        return self._after_call

    def _after_call(self, char: str) -> Step | None:
        if char == "]":
            self._raw, self._tag = [], Begun(self.end)
            return self._at_end
        if char == ",":
            return self._before_name
        return self._after_call if char in BLANK else None

    def _at_end(self, char: str) -> Step | None:
        fits = self._tag.push(char)
        if self._tag.text == self.end:
            self._raw, self._tag = [], Begun(self.end)
        return self._at_end if fits else None


def read_call(source: str) -> tuple[str, str] | None:
    """`f(a=1)` -> ("f", '{"a": 1}'); None when it is no call with literals as keyword arguments.

    Python reads it with other names, since it refuses some, and makes others of some (NFKC): a Greek mu of the micro sign. Nor does it read
    integers of more than 4,300 digits, but such floats: a point is put behind those that come near. Of a backslash that escapes nothing it
    warns: one is put before it."""
    name, _, arguments = source.partition("(")
    source, names = renamed(f"f({arguments}")
    source = STRING_OR_LONG.sub(lambda found: escaped(found[1]) if found[1] else f"{found[0].replace('_', '')}.", source)
    try:
        call = ast.parse(source, mode="eval").body
        if not isinstance(call, ast.Call) or call.args or [keyword.arg for keyword in call.keywords] != [*names]:
            return None
        written_as = Source(source)
        values = {names[str(keyword.arg)]: as_json(keyword.value, written_as) for keyword in call.keywords}
        written = as_object(values).encode("utf-16", "surrogatepass").decode("utf-16")  # refuses half a pair, which cannot be sent
        return (name, written) if is_name(name) and len(values) == len(names) else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def escaped(string: str) -> str:
    """A string, or a comment, with every backslash in it either part of an escape or escaped."""
    if string[0] not in "'\"":  # what is raw stays as it is
        return string
    return ESCAPE.sub(lambda found: found[0] if found[1] in ESCAPES else f"\\{found[0]}", string)


def renamed(source: str) -> tuple[str, dict[str, str]]:
    """The source with other names of parameters, and by these the names that it had, in their order."""
    names: dict[str, str] = {}

    def rename(found: re.Match[str]) -> str:
        if found[1] is None or not is_name(found[1]):
            return found[0]
        names[other := f"_{len(names)}"] = found[1]
        return other

    return PARAMETER.sub(rename, source), names


class Source:
    """Where the nodes of a syntax tree stand."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _lines(self) -> list[bytes]:
        return self._text.replace("\r\n", "\n").replace("\r", "\n").encode().split(b"\n")

    def of(self, node: ast.expr) -> str:
        """As it was written; of a node on one line."""
        return self._lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()


def as_object(texts: Mapping[str, str]) -> str:
    """Values in JSON, by their names."""
    return "{" + ", ".join([f"{json.dumps(name, ensure_ascii=False)}: {text}" for name, text in texts.items()]) + "}"


def as_json(node: ast.expr, source: Source) -> str:
    """A literal in JSON. A number that no double holds stays as it was written. Raises ValueError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | bool | None):
        if isinstance(node.value, float) and isinf(node.value):
            written = source.of(node).removesuffix(".")
            if NUMBER.fullmatch(written):
                return written
        if type(node.value) is int and node.value.bit_length() <= MAX_BITS:
            return f"{Decimal(node.value):f}"  # str refuses those of more than 4,300 digits, which hexadecimal ones may have
        return json.dumps(node.value, ensure_ascii=False, allow_nan=False)  # which refuses longer integers
    if isinstance(node, ast.Name) and node.id in WORDS:
        return node.id
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = as_json(node.operand, source)
        if number[0] == "-" or number[0].isdigit():
            return number[1:] if number[0] == "-" else f"-{number}"
    if isinstance(node, ast.List | ast.Tuple):
        return "[" + ", ".join([as_json(item, source) for item in node.elts]) + "]"
    if isinstance(node, ast.Dict):
        names = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        texts = [as_json(value, source) for value in node.values]
        if all(isinstance(name, str) for name in names):
            return as_object({str(name): text for name, text in zip(names, texts, strict=True)})
    raise ValueError(f"{type(node).__name__} is not a literal")
