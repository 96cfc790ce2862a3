"""The jinja2 environment that chat templates run in: what transformers offers to templates, and limits on what they may use up.

Imported only when a template is used. Templates come from strangers: the sandbox keeps them from Python's internals, `range`
from endless loops, `Sandbox` from operators and methods of strings that make values of absurd size, and from going on without an end. What
one filter or one method of another type makes cannot be stopped.
"""
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from string import Formatter
from typing import Any

from jinja2 import Environment, TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_LENGTH = 64 << 20  # characters of a string, items of a list
MAX_BITS = 4096  # of an integer product or power
NUMBER = re.compile("[0-9]+")
CHECK = "check of the rendering"  # a variable that no template can name: a function that raises when there has been enough


class Guarded(CodeGenerator):
    """`~` by way of `Sandbox.join`, what loops go through by way of `Sandbox.each`."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        node.iter = nodes.Call(nodes.EnvironmentAttribute("each"), [nodes.ContextReference(), node.iter], [], None, None)
        super().visit_For(node, frame)

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:
        if not isinstance(node.node, nodes.EnvironmentAttribute):
            return super().visit_Call(node, frame, forward_caller=forward_caller)
        self.visit(node.node, frame)  # what `visit_For` made; by way of `Sandbox.call` it would take three times as long
        self.write("(")
        for part in node.args:
            self.visit(part, frame)
            self.write(", ")
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.join((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """Refuses what would be larger than MAX_LENGTH or MAX_BITS. CHECK is called in each turn of a loop and with each call of a function,
    macro or block, and of a filter or test for each of many values."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    code_generator_class = Guarded

    def each(self, context: Context, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            context.parent[CHECK]()
            yield value

    def call_filter(self, name: str, value: Any, args: Any = None, kwargs: Any = None, context: Any = None, eval_ctx: Any = None) -> Any:
        context.parent[CHECK]()
        return super().call_filter(name, value, args, kwargs, context, eval_ctx)

    def call_test(self, name: str, value: Any, args: Any = None, kwargs: Any = None, context: Any = None, eval_ctx: Any = None) -> Any:
        context.parent[CHECK]()
        return super().call_test(name, value, args, kwargs, context, eval_ctx)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        check_size(size_of(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        __context.parent[CHECK]()
        if isinstance(__obj, LoopContext):  # the same loop, through other values
            args = (*(__self.each(__context, values) for values in args[:1]), *args[1:])
        text = getattr(__obj, "__self__", None)
        if isinstance(text, str) and __obj.__name__ in GROWN:
            if __obj.__name__ == "join":
                args = tuple(map(list, args))  # which can be gone through twice
            check_size(GROWN[__obj.__name__](text, *args, **kwargs))
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            check_size(spec_widths(value.__self__))
        return wrapped

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
        return format_widths(left, right) if isinstance(left, str) else 0
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


def format_widths(text: str, values: Any) -> int:
    """The widths that a format may ask for, added up: numbers in it or, for `%*d`, among its values."""
    text = text.replace("%%", "")
    asked = re.findall(rf"[{'%)' if '%(' in text else '%'}][-#0 +]*([0-9]+|\*)?(?:\.([0-9]+|\*))?", text)
    numbers = [number for both in asked for number in both if number]
    given = (values if isinstance(values, tuple) else (values,)) if "*" in numbers else ()
    return sum([int(number) for number in numbers if number != "*"]) + sum([abs(value) for value in given if isinstance(value, int)])


def spec_widths(text: str) -> int:
    """Those that the fields of a text for `str.format` ask for, added up."""
    specs = [spec for _, _, spec, _ in Formatter().parse(text) if spec]
    if any("{" in spec for spec in specs):
        raise SecurityError("a chat template must not take the width of a field from another value")
    return sum([int(number) for spec in specs for number in NUMBER.findall(spec)])


def replaced(text: str, old: str, new: str, count: int = -1) -> int:
    found = text.count(old)
    return len(text) + (found if count < 0 else min(count, found)) * len(new)


def translated(text: str, table: Mapping[int, Any]) -> int:
    return len(text) * max([len(value) for value in table.values() if isinstance(value, str)], default=1)


def padded(text: str, width: int, fill: str = " ") -> int:
    return width


GROWN: Mapping[str, Callable[..., int]] = {  # how long what a method of a string makes is at most
    "center": padded, "ljust": padded, "rjust": padded, "zfill": padded, "replace": replaced, "translate": translated,
    "expandtabs": lambda text, tabsize=8: len(text) + text.count("\t") * tabsize,
    "join": lambda text, values: len(text) * len(values) + sum(map(len, values)),
}


def is_sequence(value: Any) -> bool:
    return isinstance(value, str | list | tuple)
