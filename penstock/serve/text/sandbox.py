"""The jinja2 environment that chat templates run in: what transformers offers to templates, and limits on what they may use up.

Imported only when a template is used. Templates come from strangers: the sandbox keeps them from Python's internals, `range`
from endless loops, `Sandbox` from operators and methods of strings that make values of absurd size. What filters make, and a loop that
neither prints nor grows anything, cannot be stopped.
"""
import json
import re
from datetime import datetime
from typing import Any

from jinja2 import Environment, TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_LENGTH = 64 << 20  # characters of a string, items of a list
MAX_BITS = 4096  # of an integer product or power
NUMBER = re.compile("[0-9]+")


class Joins(CodeGenerator):
    """`~` by way of `Sandbox.join`."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.join((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """Refuses what would be larger than MAX_LENGTH or MAX_BITS."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    code_generator_class = Joins

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        check_size(size_of(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(getattr(__obj, "__self__", None), str):
            check_size(max([value for value in (*args, *kwargs.values()) if isinstance(value, int)], default=0))
        return super().call(__context, __obj, *args, **kwargs)

    def join(self, values: tuple[Any, ...]) -> str:
        texts = [str(value) for value in values]
        check_size(sum(map(len, texts)))
        return "".join(texts)


class GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks the assistant's tokens for training; here its body is rendered as it stands."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class SafeNamespace(Namespace):
    """jinja2's namespace without names that begin with an underscore: a `__call__` in it would be handed the environment."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # the positional self leaves the name free for an attribute
        self, *mappings = args
        attributes = dict(*mappings, **kwargs)
        for name in attributes:
            check_public(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        check_public(name)
        super().__setitem__(name, value)


class MakeDict:
    """`dict(...)` for templates, without the type's own attributes."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Any, value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


def make_environment() -> Environment:
    """An environment whose rendering is that of transformers' `apply_chat_template`, byte for byte."""
    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
    environment.filters["tojson"] = to_json
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, dict=MakeDict(), namespace=SafeNamespace)
    del environment.globals["lipsum"]  # random text of any length
    return environment


def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
    """JSON without jinja2's escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: str) -> str:
    """How a template refuses messages."""
    raise TemplateError(message)


def strftime_now(pattern: str) -> str:
    """The local time, as templates that tell the model today's date ask for it."""
    return datetime.now().strftime(pattern)


def check_public(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a chat template must not name an attribute {name!r} in a namespace")


def check_size(size: int) -> None:
    if size > MAX_LENGTH:
        raise SecurityError(f"a chat template must not make values of more than {MAX_LENGTH} items")


def size_of(operator: str, left: Any, right: Any) -> int:
    """Items of the value that the operator would make, or a lower bound; 0 where it cannot become large."""
    if operator == "%":
        return format_width(left, right) if isinstance(left, str) else 0
    if operator == "+":
        return len(left) + len(right) if is_sequence(left) and is_sequence(right) else 0
    if operator == "*":
        if is_sequence(left) and isinstance(right, int):
            return len(left) * right
        if is_sequence(right) and isinstance(left, int):
            return len(right) * left
    if not isinstance(left, int) or not isinstance(right, int):
        return 0
    num_bits = left.bit_length() + right.bit_length() if operator == "*" else left.bit_length() * right if abs(left) > 1 else 0
    return MAX_LENGTH + 1 if num_bits > MAX_BITS else 0


def format_width(text: str, values: Any) -> int:
    """The largest width that a format may ask for: a number in it or, for `%*d`, among its values."""
    given = (values if isinstance(values, tuple) else (values,)) if "*" in text else ()
    return max([*map(int, NUMBER.findall(text)), *(value for value in given if isinstance(value, int))], default=0)


def is_sequence(value: Any) -> bool:
    return isinstance(value, str | list | tuple)
