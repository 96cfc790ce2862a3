"""Which functions a chat may call: `tools`, `tool_choice`, `parallel_tool_calls`, and whether its answer must keep to them."""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.errors import RequestError
from penstock.core.types import Rules, StructuredOutputsParams
from penstock.serve.api.messages import read_tool, read_tools
from penstock.serve.api.parts import Desk
from penstock.serve.api.structure import Asked
from penstock.serve.api.values import Values, show
from penstock.serve.text.tools.rules import Function, Wanted, rules_of

Tool = Mapping[str, Any]
CALLS_OR_TEXT = "frame: calls | @body"
Chosen = tuple[str, Sequence[str] | None]  # "auto", "none", "required" or "one"; the functions that may be called, None: all


@dataclass(frozen=True, slots=True)
class Calling:
    """`shown`: the tools in the prompt; None without any. `callable`: their places among `tools`. `required`: the answer is calls, and
    nothing else; `many`: more than one. `strict`: some function's arguments were promised to be valid. `within`: where a function stands
    within its tool, in a field's name."""

    shown: Sequence[Tool] | None = None
    callable: tuple[int, ...] = ()
    required: bool = False
    many: bool = True
    strict: bool = False
    within: str = ".function"

    @property
    def constrained(self) -> bool:
        """Whether the model's own way of calling functions is not enough."""
        return self.required or self.strict or bool(self.callable) and (not self.many or len(self.callable) < len(self.shown or ()))

    @property
    def functions(self) -> tuple[Function, ...] | None:
        """Those that the model knows; None where it calls none."""
        return None if self.shown is None else tuple(map(self.function, range(len(self.shown))))

    def function(self, at: int) -> Function:
        """As the answer has to call it. Arguments are checked by the schema where that was promised, or the call was demanded."""
        given, field = (self.shown or ())[at]["function"], f"tools[{at}]{self.within}"
        return Function(given["name"], given.get("parameters"), field, promised=self.required or bool(given.get("strict")))


def read_calling(body: Mapping[str, Any]) -> Calling:
    """Raises RequestError for a tool or a choice that is none, and where `calling_of` does."""
    return calling_of(body, read_tools(body, read_tool), read_choice(body.get("tool_choice")), ".function")


def calling_of(body: Mapping[str, Any], tools: Sequence[Tool] | None, chosen: Chosen, within: str) -> Calling:
    """`within`: as in Calling. Raises RequestError for a choice that names none of the tools, and for two tools of one name."""
    choice = body.get("tool_choice")
    many = Values(body).boolean("parallel_tool_calls", True)
    mode, names = chosen
    if mode == "none" or (tools is None and choice is None):
        return Calling()
    if tools is None:
        raise RequestError(f"tool_choice = {show(choice)} needs tools", param="tool_choice")
    own = [tool["function"]["name"] for tool in tools]
    first: dict[str, int] = {}
    for at, name in enumerate(own):
        if first.setdefault(name, at) != at:
            where = f"tools[{at}]{within}.name"
            raise RequestError(f"{where} is {show(name)}, which is also the name of tools[{first[name]}]", param=where)
    chosen_names = None if names is None else frozenset(names)
    for name in names or ():
        if name not in first:
            known = ", ".join(map(show, own[:8]))
            raise RequestError(f"tool_choice names {show(name)}, which is not one of the tools: {known}", param="tool_choice")
    places = tuple(at for at, name in enumerate(own) if chosen_names is None or name in chosen_names)
    one = mode == "one"
    strict = any(tools[at]["function"].get("strict") for at in places)
    return Calling(tools, places, required=one or mode == "required", many=many and not one, strict=strict, within=within)


def read_choice(choice: Any) -> Chosen:
    if choice is None:
        return "auto", None
    if isinstance(choice, str) and choice in ("auto", "none", "required"):
        return choice, None
    if isinstance(choice, dict) and choice.get("type") == "function" and choice.keys() <= {"type", "function"}:
        return "one", [name_of(choice)]
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools" and choice.keys() <= {"type", "allowed_tools"}:
        values = Values(choice, "tool_choice.").mapping("allowed_tools") or {}
        listed, mode = values.get("tools"), Values(values, "tool_choice.allowed_tools.").choice("mode", "auto", ("auto", "required"))
        if isinstance(listed, list) and listed and values.keys() <= {"mode", "tools"}:
            return mode, [name_of(tool) for tool in listed]
    wanted = '"auto", "none", "required", {"type": "function", "function": {"name": ...}}, or allowed_tools with mode and one tool or more'
    raise RequestError(f"tool_choice must be {wanted}, not {show(choice)}", param="tool_choice")


def name_of(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    name = function.get("name") if isinstance(function, dict) and function.keys() == {"name"} else None
    if not isinstance(name, str):
        raise RequestError(f'tool_choice names a function as {{"type": "function", "function": {{"name": ...}}}}, not as {show(tool)}',
                           param="tool_choice")
    return name


def structure_of(desk: Desk, asked: Asked | None, calling: Calling) -> Asked | None:
    """What a chat's answer must be, calls included. `asked`: what the request says of it otherwise."""
    if calling.shown is None or not (calling.constrained or asked is not None):
        return asked
    functions = [calling.function(at) for at in calling.callable]
    if calling.required or asked is None:
        whole = calls_of(desk, f"start: {'calls' if calling.required else 'answer'}", functions, calling.many)
        return Asked(StructuredOutputsParams(grammar=whole), "tools")
    return replace(asked, wanted=replace(asked.wanted, frame=calls_of(desk, CALLS_OR_TEXT, functions, calling.many)))


def calls_of(desk: Desk, begin: str, functions: Sequence[Function], many: bool) -> Rules:
    """Calls of these functions, as the model writes them."""
    assert desk.parts.tool_parser is not None
    return rules_of(f"{begin}\n{desk.parts.tool_parser.rules(Wanted(functions, many, special_token(desk)))}", functions)


def parts_of(desk: Desk, asked: Asked | None, calling: Calling) -> list[Asked]:
    """A call of each function, and what is asked of the answer's text though there are only calls: one by one, each with the field that
    says what it must be."""
    if not calling.constrained:
        return []
    alone = [(each, calls_of(desk, "start: calls", [each], False)) for each in map(calling.function, calling.callable)]
    calls = [Asked(StructuredOutputsParams(grammar=rules), f"{function.field}.parameters") for function, rules in alone]
    return [asked, *calls] if calling.required and asked is not None else calls


def special_token(desk: Desk) -> Any:
    """Spelling -> the id of the special token that is spelled so, or None."""
    tokenizer = desk.parts.tokenizer

    def find(text: str) -> int | None:
        token = tokenizer.id_of(text)
        return token if token in tokenizer.special_ids else None

    return find


def behind_reasoning(desk: Desk, wanted: StructuredOutputsParams, prompt: str, continued: str) -> StructuredOutputsParams:
    """A model that reasons may do so before it keeps to a structure. `continued`: as in Rendered."""
    parser = desk.parts.reasoning_parser
    if parser is None:
        return wanted
    rules = parser.rules(prompt, special_token(desk), continued)
    if wanted.frame is not None:
        text = wanted.frame.text.replace(CALLS_OR_TEXT, "frame: before_calls calls | reasoning @body", 1)
        return replace(wanted, frame=replace(wanted.frame, text=f"{text}\n{rules}"))
    before = "before_calls" if isinstance(wanted.grammar, Rules) else "reasoning"  # Rules: a tool parser's
    return replace(wanted, frame=Rules(f"frame: {before} @body\n{rules}"))
