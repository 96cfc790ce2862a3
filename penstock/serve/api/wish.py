"""What a conversation's answer shall be: its parameters, what is shown of it, and the structure that it and its calls keep to."""
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request as HttpRequest

from penstock.compute.decoding.grammar.compiled import Compiled
from penstock.compute.decoding.params import check_params
from penstock.core.errors import RequestError
from penstock.core.types import SamplingParams
from penstock.serve.api.calling import Calling, behind_reasoning, parts_of, structure_of
from penstock.serve.api.parts import Desk
from penstock.serve.api.rendering import Rendered
from penstock.serve.api.schema import Streaming
from penstock.serve.api.structure import Asked, compile_all, structured
from penstock.serve.text.hidden import with_markup
from penstock.serve.text.tools.rules import Function


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request asks for, beside its messages. `num_top`: entries of top_logprobs; None without logprobs. `functions`: those that the
    model knows; None where it calls none. `structured_by`: the field that says what the answer must be, if any. `only_calls`: it calls
    functions and says nothing else. `sure_of_calls`: what begins like a call is one. `hidden`: special tokens that are no markup, where
    the text must come with those that are and the client asked for none. `parts`: what must be possible by itself."""

    params: SamplingParams
    streaming: Streaming
    num_top: int | None = None
    num_prompt_top: int | None = None
    functions: Sequence[Function] | None = None
    structured_by: str = ""
    only_calls: bool = False
    sure_of_calls: bool = False
    hidden: Collection[int] = frozenset()
    parts: Sequence[Asked] = ()


def wish_of(desk: Desk, params: SamplingParams, said: Asked | None, calling: Calling, **shown: Any) -> Wish:
    """`params`: not yet checked. `said`: what the request says of its answer's structure. `shown`: a Wish's streaming and nums."""
    tool_parser, calls_tools = desk.parts.tool_parser, calling.shown is not None
    if calls_tools and tool_parser is None:
        raise RequestError("tools need a tool parser: start the server with --tool-parser, or set tool_choice to \"none\"", param="tools")
    asked = structure_of(desk, said, calling)
    params = check_params(structured(params, asked), desk.vocab_size)
    params, hidden = with_markup(params, desk.parts.tokenizer, (desk.parts.reasoning_parser, tool_parser if calls_tools else None))
    told_apart = calling.required or said is None or bool(tool_parser and tool_parser.markup)  # calls, from what else the answer may be
    return Wish(params, functions=calling.functions, structured_by="" if asked is None else asked.field, only_calls=calling.required,
                sure_of_calls=asked is not None and told_apart, hidden=hidden, parts=parts_of(desk, said, calling), **shown)


async def constrain(desk: Desk, http: HttpRequest, wish: Wish, prompt: Rendered, size: int) -> tuple[SamplingParams, Compiled | None]:
    """Compiles what the answer must be. Calls of each function are compiled one by one first, so that a bad one is named."""
    wanted = wish.params.structured_outputs
    if wanted is None:
        return wish.params, None
    whole = Asked(behind_reasoning(desk, wanted, prompt.text, prompt.continued), wish.structured_by)
    return await compile_all(desk, http, wish.params, [*wish.parts, whole], size)
