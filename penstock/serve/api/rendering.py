"""A chat as the model reads it: messages, tools and template variables checked, rendered, tokenized, and its cache marks found."""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.core.errors import RequestError
from penstock.core.types import CacheMark
from penstock.serve.api.calling import Calling, read_calling
from penstock.serve.api.messages import read_messages
from penstock.serve.api.parts import Desk
from penstock.serve.api.room import check_bytes
from penstock.serve.api.values import Values, show
from penstock.serve.text.chat import check_names
from penstock.serve.text.marks import cache_marks
from penstock.serve.text.messages import PART_SEPARATOR


@dataclass(frozen=True, slots=True)
class Conversation:
    """`variables` go to the template by name."""

    messages: Sequence[Mapping[str, Any]]
    calling: Calling = field(default_factory=Calling)
    variables: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False


@dataclass(frozen=True, slots=True)
class Rendered:
    """`continued`: the text so far of the message that the answer goes on with; "" where it begins one."""

    text: str
    token_ids: tuple[int, ...]
    marks: tuple[CacheMark, ...] = ()
    continued: str = ""


def read_conversation(desk: Desk, body: Mapping[str, Any]) -> Conversation:
    """Raises RequestError for the first field that the template cannot obey."""
    check_number(desk, body, "messages")
    return converse(desk, body, read_messages(body, knows_developer(desk)), read_calling(body))


def check_number(desk: Desk, body: Mapping[str, Any], name: str) -> None:
    given, most = body.get(name), desk.parts.engine.max_model_len
    if isinstance(given, list) and len(given) > most:
        raise RequestError(f"{name} has {len(given)} entries; at most {most} fit, one token each", param=name)


def knows_developer(desk: Desk) -> bool:
    """Whether the template knows messages of this role."""
    return any("developer" in source for source in desk.parts.chat_template.sources.values())


def converse(desk: Desk, body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], calling: Calling) -> Conversation:
    """`body`: where the template's variables stand. Raises RequestError for what the template cannot obey."""
    template = desk.parts.chat_template
    values = Values(body)
    tools = calling.shown
    if not template.sources:
        message = "the model has no chat template: send a prompt to /v1/completions, or start the server with --chat-template FILE"
        raise RequestError(message, param="messages")
    known = template.variables(messages, tools)
    if tools is not None and "tools" not in known:
        message = "tools cannot be given to this model: its chat template does not show them; --chat-template FILE can set one that does"
        raise RequestError(message, param="tools")
    going_on = values.boolean("continue_final_message", False)
    return Conversation(
        messages=messages,
        calling=calling,
        variables=read_variables(body, known),
        add_generation_prompt=values.boolean("add_generation_prompt", not going_on),
        continue_final_message=going_on,
        add_special_tokens=values.boolean("add_special_tokens", False),
    )


def read_variables(body: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """What the template is given beside the messages. A variable that it does not read would be dropped, so it is refused."""
    values = Values(body)
    variables: dict[str, Any] = {}
    if values.text("reasoning_effort", None) is not None:
        variables["reasoning_effort"] = _known("reasoning_effort", "reasoning_effort", known, body)
    documents = body.get("documents")
    if documents is not None:
        if not isinstance(documents, list) or not all(isinstance(document, dict) for document in documents):
            raise RequestError(f"documents must be a list of objects, not {show(documents)}", param="documents")
        variables["documents"] = _known("documents", "documents", known, body)
    given = values.mapping("chat_template_kwargs") or {}
    check_names(given)
    for name in given:
        if name in variables:
            raise RequestError(f"{name} is given twice, also in chat_template_kwargs", param="chat_template_kwargs")
        variables[name] = _known(name, "chat_template_kwargs", known, given)
    return variables


def _known(name: str, param: str, known: frozenset[str], given: Mapping[str, Any]) -> Any:
    if name not in known:
        path = name if name == param else f"{param}.{name[:80]}"
        message = f"{path} is not supported: this model's chat template does not read it"
        raise RequestError(message, param=param, code="unsupported_parameter")
    return given[name]


def render(desk: Desk, conversation: Conversation, answered: str | None = None) -> Rendered:
    """Raises RequestError when the template refuses the messages. `answered`: the field of a prompt that must leave room for an answer."""
    one = partial(_render_text, desk, conversation)
    encode = partial(desk.parts.tokenizer.encode, add_special_tokens=conversation.add_special_tokens)
    text = one(conversation.messages, conversation.calling.shown)
    if answered is not None:
        check_bytes(desk, text, answered, answered=True)
    marks = cache_marks(conversation.messages, conversation.calling.shown, one, encode)
    return Rendered(text, tuple(encode(text)), marks, _continued(conversation))


def _continued(conversation: Conversation) -> str:
    content = conversation.messages[-1].get("content") if conversation.continue_final_message else None
    return content if isinstance(content, str) else PART_SEPARATOR.join(part["text"] for part in content or ())


def _render_text(desk: Desk, conversation: Conversation, messages: Sequence[Mapping[str, Any]], tools: Any) -> str:
    return desk.parts.chat_template.render(
        messages, tools, add_generation_prompt=conversation.add_generation_prompt,
        continue_final_message=conversation.continue_final_message, **conversation.variables)
