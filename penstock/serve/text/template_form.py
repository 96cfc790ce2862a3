"""What form of message a chat template is written for, read off its syntax tree."""
from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import Environment, meta, nodes

CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class TemplateForm:
    """`parts`: it goes through the parts of a message's content; else content must be one string. `strings`: it also takes a string.
    `nones`: it asks whether there is none.

    `calls`: it speaks of tool calls. `json_arguments`: it writes their arguments out itself, so they must stay JSON text; else they are
    objects.
    `first_call`: it shows the first of a message's tool calls and does not look for others. `one_text`: it refuses a message that has
    both content and thinking. `variables`: every name that it may read from outside, also where it sets the name itself in some branch.
    """

    parts: bool
    strings: bool
    nones: bool
    calls: bool
    json_arguments: bool
    first_call: bool
    one_text: bool
    variables: frozenset[str]


def form_of(source: str, environment: Environment) -> TemplateForm:
    """Raises jinja2.TemplateSyntaxError when the source is no template."""
    tree = environment.parse(source)
    contents = ContentNames(tree)
    parts = any(contents.holds(loop.iter) for loop in tree.find_all(nodes.For))
    tested = {test.name for test in tree.find_all(nodes.Test) if contents.holds(test.node)}
    glued = any(is_field(side, "arguments") for add in tree.find_all(nodes.Add) for side in (add.left, add.right))
    variables = meta.find_undeclared_variables(tree) - environment.globals.keys()
    return TemplateForm(
        parts=parts, strings=not parts or "string" in tested, nones="none" in tested, calls=CALLS in source, json_arguments=glued,
        first_call=shows_first_call(tree), one_text=refuses_both(tree), variables=frozenset(variables))


def shows_first_call(tree: nodes.Template) -> bool:
    """Whether calls are taken by the number 0 alone, not gone through nor counted."""
    taken = [item.arg for item in tree.find_all(nodes.Getitem) if is_field(item.node, CALLS)]
    others = [*(loop.iter for loop in tree.find_all(nodes.For)), *(filtered.node for filtered in tree.find_all(nodes.Filter))]
    alone = not any(node is not None and is_field(node, CALLS) for node in others)
    return alone and bool(taken) and all(arg == nodes.Const(0) for arg in taken)


def refuses_both(tree: nodes.Template) -> bool:
    """Whether an exception is raised where a message has content and thinking."""
    for branch in tree.find_all(nodes.If):
        asked = list(branch.test.find_all((nodes.Getattr, nodes.Getitem))) if isinstance(branch.test, nodes.And) else []
        raises = any(isinstance(call.node, nodes.Name) and call.node.name == "raise_exception"
                     for part in branch.body for call in part.find_all(nodes.Call))
        if raises and all(any(is_field(node, name) for node in asked) for name in ("content", "thinking")):
            return True
    return False


class ContentNames:
    """Which expressions stand for a message's content: its field, variables set to it, macro parameters that it is passed as."""

    def __init__(self, tree: nodes.Template) -> None:
        self._names: set[str] = set()
        known = -1
        while known != len(self._names):
            known = len(self._names)
            self._names |= set(self._set_to_content(tree)) | set(self._passed_as_content(tree))

    def holds(self, node: nodes.Node) -> bool:
        """Also through filters, slices and defaults: `message.content[1:] | selectattr(...)`."""
        if isinstance(node, nodes.Name):
            return node.name in self._names
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            return self.holds(node.node)
        if isinstance(node, nodes.Filter):
            return node.node is not None and self.holds(node.node)
        if isinstance(node, nodes.CondExpr):
            return self.holds(node.expr1) or (node.expr2 is not None and self.holds(node.expr2))
        if isinstance(node, nodes.Or | nodes.And):
            return self.holds(node.left) or self.holds(node.right)
        return is_field(node, "content")

    def _set_to_content(self, tree: nodes.Template) -> Iterator[str]:
        for assign in tree.find_all(nodes.Assign):
            if isinstance(assign.target, nodes.Name) and self.holds(assign.node):
                yield assign.target.name

    def _passed_as_content(self, tree: nodes.Template) -> Iterator[str]:
        macros = {macro.name: macro for macro in tree.find_all(nodes.Macro)}
        for call in tree.find_all(nodes.Call):
            macro = macros.get(call.node.name) if isinstance(call.node, nodes.Name) else None
            if macro is None:
                continue
            for parameter, value in zip(macro.args, call.args, strict=False):
                if self.holds(value):
                    yield parameter.name
            for keyword in call.kwargs:
                if self.holds(keyword.value):
                    yield keyword.key


def is_field(node: nodes.Node, name: str) -> bool:
    """Whether the expression is `x.name` or `x["name"]`."""
    if isinstance(node, nodes.Getattr):
        return node.attr == name
    return isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and node.arg.value == name
