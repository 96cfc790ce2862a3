"""POST /v1/chat/completions: one prompt, `n` choices."""
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from penstock.compute.decoding.grammar.compiled import Compiled
from penstock.compute.decoding.params import check_params
from penstock.core.errors import RequestError
from penstock.core.types import SamplingParams, TokenLogprobs
from penstock.serve.api import fields
from penstock.serve.api.call import Call
from penstock.serve.api.calling import Calling, behind_reasoning, parts_of, structure_of
from penstock.serve.api.errors import json_response
from penstock.serve.api.logprobs import chat_rows, prompt_rows
from penstock.serve.api.naming import made_id
from penstock.serve.api.parts import Desk
from penstock.serve.api.rendering import Rendered, read_conversation, render
from penstock.serve.api.reply import content_of, delta_of, message_of
from penstock.serve.api.schema import MAX_LOGPROBS, Streaming, check_room, make_request, read_params, read_placing, read_streaming, receive
from penstock.serve.api.stream import HOLE, EventStream, Template, compact
from penstock.serve.api.structure import Asked, compile_structure, read_structure, structured
from penstock.serve.api.usage import score_object, usage_object, usage_so_far
from penstock.serve.api.values import Values
from penstock.serve.engine.requests import Delta, Usage
from penstock.serve.text.answer import AnswerParser, ContentDelta, Event, ReasoningDelta, ToolCallStart
from penstock.serve.text.thought import ThoughtTokens


@dataclass(frozen=True, slots=True)
class Wish:
    """What a chat request asks for, beside its messages. `num_top`: entries of top_logprobs; None without logprobs. `structured_by`:
    the field that says what the answer must be, if any. `only_calls`: it calls functions and says nothing else. `parts`: what must be
    possible by itself."""

    params: SamplingParams
    streaming: Streaming
    num_top: int | None = None
    num_prompt_top: int | None = None
    calls_tools: bool = False
    structured_by: str = ""
    only_calls: bool = False
    parts: Sequence[Asked] = ()


async def create(desk: Desk, http: HttpRequest) -> Response:
    arrived_s = desk.clock.now()
    received = await receive(desk, http, fields.CHAT)
    body = received.body
    conversation = await desk.work.run(received.size, read_conversation, desk, body)
    wish = read_wish(desk, body, conversation.calling)
    placing = read_placing(body, http, arrived_s)
    prompt = await desk.work.run(received.size, render, desk, conversation)
    max_name = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    check_room(desk, len(prompt.token_ids), wish.params, "messages", max_name)
    chat_id = f"chatcmpl-{made_id(http)}"
    params, grammar = await constrain(desk, wish, prompt.text, received.size)
    request = make_request(chat_id, prompt.token_ids, params, placing, prompt=prompt.text, marks=prompt.marks, grammar=grammar)
    call = Call(desk, http, [request], arrived_s)
    answer = Answer(desk, chat_id, wish, prompt)
    call.start()
    if wish.streaming.on:
        return EventStream(call, answer.events(call), desk.parts.limits.write_s)
    try:
        return json_response(await answer.whole(call), headers=call.headers)
    finally:
        call.close()


async def constrain(desk: Desk, wish: Wish, prompt: str, size: int) -> tuple[SamplingParams, Compiled | None]:
    """Compiles what the answer must be. Schemas of functions are compiled one by one first, so that a bad one is named."""
    if wish.params.structured_outputs is None:
        return wish.params, None
    for part in wish.parts:
        await compile_structure(desk, replace(wish.params, structured_outputs=part.wanted), part.field, size)
    wanted = behind_reasoning(desk, wish.params.structured_outputs, prompt)
    return await compile_structure(desk, replace(wish.params, structured_outputs=wanted), wish.structured_by, size)


def read_wish(desk: Desk, body: Mapping[str, Any], calling: Calling) -> Wish:
    tool_parser, calls_tools = desk.parts.tool_parser, calling.shown is not None
    if calls_tools and tool_parser is None:
        raise RequestError("tools need a tool parser: start the server with --tool-parser, or set tool_choice to \"none\"", param="tools")
    values = Values(body)
    streaming = read_streaming(body)
    num_prompt_top = values.integer("prompt_logprobs", None, 0, MAX_LOGPROBS)
    if streaming.on and num_prompt_top is not None:
        raise RequestError("prompt_logprobs cannot be streamed; set stream to false", param="prompt_logprobs")
    num_top = read_top_logprobs(values)
    said = read_structure(body)
    asked = structure_of(desk, said, calling)
    params = check_params(structured(read_params(desk, body, read_max_tokens(values), num_top), asked), desk.vocab_size)
    if any(parser.needs_special_tokens for parser in (desk.parts.reasoning_parser, tool_parser if calls_tools else None) if parser):
        params = replace(params, skip_special_tokens=False)
    return Wish(params, streaming, num_top, num_prompt_top, calls_tools, "" if asked is None else asked.field, calling.required,
                parts_of(said, calling))


def read_max_tokens(values: Values) -> int | None:
    old = values.integer("max_tokens", None, low=1)
    new = values.integer("max_completion_tokens", None, low=1)
    if None not in (old, new) and old != new:
        raise RequestError(f"max_completion_tokens = {new} and max_tokens = {old} differ; give one of them", param="max_completion_tokens")
    return old if new is None else new


def read_top_logprobs(values: Values) -> int | None:
    num_top = values.integer("top_logprobs", None, 0, MAX_LOGPROBS)
    if values.boolean("logprobs", False):
        return num_top or 0
    if num_top is not None and num_top > 0:
        raise RequestError(f"top_logprobs = {num_top} needs logprobs = true", param="top_logprobs")
    return None


class Choice:
    """One choice on its way out."""

    def __init__(self, desk: Desk, wish: Wish, prompt: Rendered) -> None:
        self.num_tokens = 0
        self.begun = False
        self._tokenizer = desk.parts.tokenizer
        self._num_top = wish.num_top
        reasoning, tools = desk.parts.reasoning_parser, desk.parts.tool_parser if wish.calls_tools else None
        calls = None if tools is None else tools(sure=bool(wish.structured_by))
        thinker = None if reasoning is None else reasoning(prompt.text)
        self._parser = AnswerParser(thinker, calls)
        skip = wish.params.skip_special_tokens
        self._thought = None if thinker is None else ThoughtTokens(self._tokenizer.detokenizer(skip, prompt.token_ids), thinker)
        self._only_calls = wish.only_calls
        self._called = False
        self._thinks = False  # or is known to have thought, if at all

    def added(self, delta: Delta) -> list[Event]:
        """What the delta adds to the message."""
        self.num_tokens += len(delta.token_ids)
        if self._thought is not None:
            self._thought.push(delta.token_ids)
        found = self._parser.push(delta.text)
        if delta.finish_reason is not None:
            found += self._parser.finish()
        if self._thought is not None and not self._thinks:
            self._thinks = self._thought.ended or any(isinstance(event, ReasoningDelta) for event in found)
        if self._only_calls:  # what is no call is one that was cut off before its arguments
            found = [event for event in found if not isinstance(event, ContentDelta)]
        self._called = self._called or any(isinstance(event, ToolCallStart) for event in found)
        return found

    def num_reasoning(self) -> int:
        """Tokens, of a complete answer."""
        return 0 if self._thought is None else self._thought.count()

    def num_reasoning_so_far(self) -> int:
        """Tokens, of an answer that goes on: none before its text shows that it reasons."""
        return self.num_reasoning() if self._thinks else 0

    def rows(self, delta: Delta) -> list[dict[str, Any]] | None:
        return None if self._num_top is None else chat_rows(self._tokenizer, delta.logprobs, self._num_top)

    def reason(self, delta: Delta) -> str | None:
        """Of the answer. One that a stop string ended is no call: its arguments may end anywhere."""
        ended_itself = delta.finish_reason == "stop" and not isinstance(delta.stop_reason, str)
        return "tool_calls" if self._called and ended_itself else delta.finish_reason


class Answer:
    """The answer to one HTTP request, whole or as events."""

    def __init__(self, desk: Desk, chat_id: str, wish: Wish, prompt: Rendered) -> None:
        self._desk = desk
        self._wish = wish
        self._prompt = prompt
        self._head: dict[str, Any] = {"id": chat_id, "object": "chat.completion.chunk" if wish.streaming.on else "chat.completion",
                      "created": int(time.time()), "model": desk.model, "system_fingerprint": desk.fingerprint}
        self._choices = [Choice(desk, wish, prompt) for _ in range(wish.params.n)]
        self._templates: dict[int, Template] = {}
        self._usage = Usage()
        self._prompt_rows: tuple[TokenLogprobs | None, ...] = ()

    async def whole(self, call: Call) -> dict[str, Any]:
        deltas: list[list[Delta]] = [[] for _ in self._choices]
        async for _, delta in call.deltas():
            self._note(delta)
            deltas[delta.index].append(delta)
        size = self._usage.completion_tokens * (1 + (self._wish.num_top or 0))
        choices = await self._desk.work.run(size, lambda: [self._whole_choice(index, found) for index, found in enumerate(deltas)])
        answer = {**self._head, "choices": choices, "usage": self._usage_object()}
        if self._wish.num_prompt_top is not None:
            answer["prompt_logprobs"] = prompt_rows(self._desk.parts.tokenizer, self._prompt_rows, self._wish.num_prompt_top)
        return answer

    def _whole_choice(self, index: int, deltas: list[Delta]) -> dict[str, Any]:
        choice = self._choices[index]
        rows: list[dict[str, Any]] = []
        events: list[Event] = []
        for delta in deltas:
            events += choice.added(delta)
            rows += choice.rows(delta) or ()
        end = next(delta for delta in reversed(deltas) if delta.finish_reason is not None)
        logprobs = None if self._wish.num_top is None else {"content": rows, "refusal": None}
        scored = {} if end.score is None else {"score": score_object(end.score)}
        return {"index": index, "message": message_of(events), "logprobs": logprobs,
                "finish_reason": choice.reason(end), "stop_reason": end.stop_reason, **scored}

    async def events(self, call: Call) -> AsyncIterator[str]:
        async for _, delta in call.deltas():
            self._note(delta)
            for event in self._events(delta):
                yield event
        if self._wish.streaming.include_usage:
            yield compact({**self._head, "choices": [], "usage": self._usage_object()})

    def _events(self, delta: Delta) -> list[str]:
        """The chunks of one delta: the role before all others, the finish reason with the last."""
        choice = self._choices[delta.index]
        events = choice.added(delta)
        rows = choice.rows(delta)
        text = content_of(events)
        if text is not None and choice.begun and not (rows or delta.finish_reason or self._wish.streaming.continuous_usage):
            return [self._template(delta.index).fill(text)]
        parts = [delta_of(event) for event in events]
        chunks: list[dict[str, Any]] = []
        if not choice.begun:
            choice.begun = True
            chunks.append({"delta": {"role": "assistant", "content": ""}})
        chunks += [{"delta": part} for part in parts]
        if not parts and (rows or delta.finish_reason is not None):
            chunks.append({"delta": {}})
        if rows:
            chunks[-1]["logprobs"] = {"content": rows, "refusal": None}
        if delta.finish_reason is not None:
            chunks[-1] |= {"finish_reason": choice.reason(delta), "stop_reason": delta.stop_reason}
            if delta.score is not None:
                chunks[-1]["score"] = score_object(delta.score)
        return [compact(self._chunk(delta.index, chunk)) for chunk in chunks]

    def _chunk(self, index: int, choice: dict[str, Any]) -> dict[str, Any]:
        chunk: dict[str, Any] = {**self._head, "choices": [{"index": index, "logprobs": None, "finish_reason": None, **choice}]}
        if self._wish.streaming.continuous_usage:
            chunk["usage"] = usage_so_far(len(self._prompt.token_ids), self._choices[index].num_tokens,
                                          self._choices[index].num_reasoning_so_far())
        elif self._wish.streaming.include_usage:
            chunk["usage"] = None
        return chunk

    def _template(self, index: int) -> Template:
        """Of the chunks that differ from others in their content alone."""
        if index not in self._templates:
            self._templates[index] = Template(self._chunk(index, {"delta": delta_of(ContentDelta(HOLE))}))
        return self._templates[index]

    def _usage_object(self) -> dict[str, Any]:
        return usage_object([self._usage], sum(choice.num_reasoning() for choice in self._choices))

    def _note(self, delta: Delta) -> None:
        self._prompt_rows = delta.prompt_logprobs or self._prompt_rows
        self._usage = delta.usage or self._usage

