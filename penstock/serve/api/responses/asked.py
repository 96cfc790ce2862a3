"""What a request asks for: its conversation with what came before it, its wish, and what the response object repeats of it."""
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.errors import RequestError
from penstock.core.types import SamplingParams
from penstock.serve.api.parts import Desk
from penstock.serve.api.rendering import Conversation, Rendered, check_number, converse, knows_developer, render
from penstock.serve.api.responses.functions import read_functions
from penstock.serve.api.responses.items import Item, is_cut_off, read_items
from penstock.serve.api.responses.store import Kept
from penstock.serve.api.responses.transcript import transcribed
from penstock.serve.api.schema import MAX_LOGPROBS, Received, Streaming, read_params
from penstock.serve.api.structure import Asked as Structure
from penstock.serve.api.structure import check_keys, of_format, read_structure
from penstock.serve.api.values import Values, show
from penstock.serve.api.wish import Wish, wish_of

LOGPROBS = "message.output_text.logprobs"
HARMLESS = (  # of items that do not occur here, or come with nothing left out
    "reasoning.encrypted_content", "web_search_call.action.sources", "web_search_call.results", "file_search_call.results",
    "code_interpreter_call.outputs", "computer_call_output.output.image_url", "message.input_image.image_url",
)
AT_REST: Mapping[str, tuple[Any, ...]] = {  # of `reasoning`: what asks for nothing
    "summary": ("auto",), "generate_summary": ("auto",), "context": ("auto",), "mode": ("standard",),
}
MAX_LABELS, MAX_LABEL_NAME, MAX_LABEL = 16, 64, 512  # of metadata; characters
MESSAGE = re.compile(r"\bmessages\[(\d{1,9})\](\.content\b)?")
INSTRUCTIONS = "instructions"


@dataclass(frozen=True, slots=True)
class Asked:
    """`items`: all that the model is given, oldest first; `places`: where the conversation's messages stand among them, for errors."""

    wish: Wish
    conversation: Conversation
    items: Sequence[Item]
    places: Sequence[str]
    stored: bool
    repeated: Mapping[str, Any]
    size: int  # of the request, in bytes


def read_asked(desk: Desk, received: Received, before: Kept | None, made: str) -> Asked:
    """`before`: what the request continues. `made`: ends ids of items that came without. Raises RequestError for what cannot be obeyed."""
    body = received.body
    check_number(desk, body, "input")
    kept: list[Item] = [] if before is None else [*json.loads(before.items), *json.loads(before.answer)["output"]]
    whole = [(at, item) for at, item in enumerate(kept) if not is_cut_off(item)]
    earlier = [item for _, item in whole]
    items = read_items(body, earlier, made)
    developer = "developer" if knows_developer(desk) else "system"
    places = [f"item {at} of previous_response_id" for at, _ in whole]
    places += [f"input[{at}]" for at in range(len(items))]
    transcript = transcribed(zip(places, [*earlier, *items], strict=True), developer)
    messages, places = transcript.messages, transcript.places
    values = Values(body)
    instructions = values.text(INSTRUCTIONS, None)
    if instructions is not None:
        messages, places = [{"role": "system", "content": instructions}, *messages], [INSTRUCTIONS, *places]
    with telling_items(places):
        conversation = with_effort(desk, body, converse(desk, body, messages, read_functions(body)))
    wish = read_wish(desk, body, conversation)
    stored = values.boolean("store", True)
    return Asked(wish, conversation, [*earlier, *items], places, stored, repeated(body, wish.params) | {"store": stored}, received.size)


def with_effort(desk: Desk, body: Mapping[str, Any], conversation: Conversation) -> Conversation:
    """The same with `reasoning.effort` among the template's variables."""
    given = Values(body).mapping("reasoning") or {}
    check_keys(given, ("effort", *AT_REST), "reasoning")
    for name, accepted in AT_REST.items():
        if given.get(name) is not None and given[name] not in accepted:
            message = f"reasoning.{name} = {show(given[name])} is not supported: reasoning comes as a whole, as the model writes it"
            raise RequestError(message, param=f"reasoning.{name}", code="unsupported_parameter")
    effort, name = Values(given, "reasoning.").text("effort", None), "reasoning_effort"
    if effort is None:
        return conversation
    if name not in desk.parts.chat_template.variables(conversation.messages, conversation.calling.shown):
        message = "reasoning.effort is not supported: this model's chat template does not read it"
        raise RequestError(message, param="reasoning.effort", code="unsupported_parameter")
    if name in conversation.variables:
        raise RequestError(f"{name} is given twice, also in chat_template_kwargs", param="chat_template_kwargs")
    return replace(conversation, variables={**conversation.variables, name: effort})


def read_wish(desk: Desk, body: Mapping[str, Any], conversation: Conversation) -> Wish:
    values = Values(body)
    num_top = read_top(values)
    said = read_structure(body, read_format(values))
    params = read_params(desk, body, values.integer("max_output_tokens", None, low=1), num_top)
    return wish_of(desk, params, said, conversation.calling, streaming=Streaming(values.boolean("stream", False)), num_top=num_top)


def read_top(values: Values) -> int | None:
    """How many of the likeliest tokens to report with each; None without log-probabilities."""
    include = values.body.get("include") or []
    known = (LOGPROBS, *HARMLESS)
    if not isinstance(include, list) or not all(name in known for name in include):
        raise values.refuse("include", f"a list of some of {', '.join(known)}")
    num_top = values.integer("top_logprobs", None, 0, MAX_LOGPROBS)
    if LOGPROBS in include:
        return num_top or 0
    if num_top:
        raise RequestError(f'top_logprobs = {num_top} needs include = ["{LOGPROBS}"]', param="top_logprobs")
    return None


def read_format(values: Values) -> Structure | None:
    given = values.mapping("text") or {}
    check_keys(given, ("format", "verbosity"), "text")
    if given.get("verbosity") not in (None, "medium"):
        message = f"text.verbosity = {show(given['verbosity'])} is not supported: the model has no such setting"
        raise RequestError(message, param="text.verbosity", code="unsupported_parameter")
    form = Values(given, "text.").mapping("format")
    return None if form is None else of_format(form, "text.format")


def read_labels(values: Values) -> dict[str, str]:
    """`metadata`, as OpenAI limits it."""
    given = values.mapping("metadata") or {}
    if len(given) > MAX_LABELS:
        raise RequestError(f"metadata has {len(given)} entries; at most {MAX_LABELS} are taken", param="metadata")
    for name, value in given.items():
        if len(name) > MAX_LABEL_NAME or not isinstance(value, str) or len(value) > MAX_LABEL:
            wanted = f"names of at most {MAX_LABEL_NAME} characters and strings of at most {MAX_LABEL}"
            raise RequestError(f"metadata has {wanted}; {show(name)} is {show(value)}", param="metadata")
    return given


def repeated(body: Mapping[str, Any], params: SamplingParams) -> dict[str, Any]:
    """What the response object says of its request, as it was obeyed. Raises RequestError for metadata that are none."""
    values, reasoning, text = Values(body), body.get("reasoning") or {}, body.get("text") or {}
    return {
        "background": False,
        "instructions": body.get("instructions"),
        "max_output_tokens": params.max_tokens,
        "max_tool_calls": None,
        "metadata": read_labels(values),
        "parallel_tool_calls": values.boolean("parallel_tool_calls", True),
        "previous_response_id": body.get("previous_response_id"),
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": {"effort": reasoning.get("effort"), "summary": None},
        "safety_identifier": body.get("safety_identifier"),
        "service_tier": "default",
        "temperature": params.temperature,
        "text": {"format": text.get("format") or {"type": "text"}, "verbosity": "medium"},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_logprobs": params.logprobs or 0,
        "top_p": params.top_p,
        "truncation": "disabled",
        "user": body.get("user"),
    }


def rendered(desk: Desk, asked: Asked) -> Rendered:
    """Raises RequestError when the template refuses the conversation."""
    with telling_items(asked.places):
        return render(desk, asked.conversation, "input")


@contextmanager
def telling_items(places: Sequence[str]) -> Iterator[None]:
    """Errors about messages are raised as errors about the items that the messages are made of."""
    def place(found: re.Match[str]) -> str:
        at = int(found[1])
        if at >= len(places):
            return found[0]  # a template may say anything
        return places[at] if places[at] == INSTRUCTIONS else places[at] + (found[2] or "")

    try:
        yield
    except RequestError as error:
        message = MESSAGE.sub(place, str(error))
        field = INSTRUCTIONS if message.startswith(f"{INSTRUCTIONS} ") else "input"
        raise RequestError(message, field if error.param == "messages" else error.param, error.status, error.code) from None
