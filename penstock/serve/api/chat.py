"""POST /v1/chat/completions: one prompt, `n` choices."""
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from penstock.core.errors import RequestError
from penstock.core.types import TokenLogprobs
from penstock.serve.api import fields
from penstock.serve.api.call import Call
from penstock.serve.api.calling import Calling
from penstock.serve.api.choice import Choice
from penstock.serve.api.logprobs import prompt_rows
from penstock.serve.api.naming import made_id
from penstock.serve.api.parts import Desk
from penstock.serve.api.rendering import Rendered, read_conversation, render
from penstock.serve.api.reply import content_of, delta_of, message_of
from penstock.serve.api.room import check_room
from penstock.serve.api.schema import MAX_LOGPROBS, make_request, read_params, read_placing, read_streaming, receive
from penstock.serve.api.stream import HOLE, Template, answered, compact, server_event, size_of
from penstock.serve.api.structure import from_format, read_structure
from penstock.serve.api.usage import score_object, usage_object, usage_so_far
from penstock.serve.api.values import Values
from penstock.serve.api.wish import Wish, constrain, wish_of
from penstock.serve.engine.requests import Delta, Usage
from penstock.serve.text.answer import ContentDelta, Event


async def create(desk: Desk, http: HttpRequest) -> Response:
    arrived_s = desk.clock.now()
    received = await receive(desk, http, fields.CHAT)
    body = received.body
    conversation = await desk.work.run(received.size, read_conversation, desk, body)
    wish = await desk.work.run(received.size, read_wish, desk, body, conversation.calling)
    placing = read_placing(body, http, arrived_s)
    prompt = await desk.work.run(received.size, render, desk, conversation, "messages")
    max_name = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    check_room(desk, len(prompt.token_ids), wish.params, "messages", max_name)
    chat_id = f"chatcmpl-{made_id(http)}"
    params, grammar = await constrain(desk, http, wish, prompt, received.size)
    request = make_request(chat_id, prompt.token_ids, params, placing, prompt=prompt.text, marks=prompt.marks, grammar=grammar)
    return await answered(desk, Call(desk, http, [request], arrived_s), Answer(desk, chat_id, wish, prompt))


def read_wish(desk: Desk, body: Mapping[str, Any], calling: Calling) -> Wish:
    values = Values(body)
    streaming = read_streaming(body)
    num_prompt_top = values.integer("prompt_logprobs", None, 0, MAX_LOGPROBS)
    if streaming.on and num_prompt_top is not None:
        raise RequestError("prompt_logprobs cannot be streamed; set stream to false", param="prompt_logprobs")
    num_top = read_top_logprobs(values)
    said = read_structure(body, from_format(body))
    params = read_params(desk, body, read_max_tokens(values), num_top)
    return wish_of(desk, params, said, calling, streaming=streaming, num_top=num_top, num_prompt_top=num_prompt_top)


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


class Answer:
    """The answer to one HTTP request, whole or as events."""

    def __init__(self, desk: Desk, chat_id: str, wish: Wish, prompt: Rendered) -> None:
        self.streams = wish.streaming.on
        self._desk = desk
        self._wish = wish
        self._prompt = prompt
        self._head: dict[str, Any] = {"id": chat_id, "object": "chat.completion.chunk" if wish.streaming.on else "chat.completion",
                      "created": int(time.time()), "model": desk.model, "system_fingerprint": desk.fingerprint}
        prompt_end = desk.parts.tokenizer.shown_end(prompt.token_ids, wish.params.skip_special_tokens)
        self._choices = [Choice(desk, wish, prompt, prompt_end) for _ in range(wish.params.n)]
        self._templates: dict[int, Template] = {}
        self._usage = Usage()
        self._prompt_rows: tuple[TokenLogprobs | None, ...] = ()

    async def whole(self, call: Call) -> dict[str, Any]:
        deltas: list[list[Delta]] = [[] for _ in self._choices]
        async for _, delta in call.deltas():
            self._note(delta)
            deltas[delta.index].append(delta)
        return await self._desk.work.run(self.size, self._whole, deltas)

    @property
    def size(self) -> int:
        wish = self._wish
        return size_of(self._usage.completion_tokens, wish.num_top) + size_of(len(self._prompt_rows), wish.num_prompt_top)

    def _whole(self, deltas: Sequence[list[Delta]]) -> dict[str, Any]:
        choices = [self._whole_choice(index, found) for index, found in enumerate(deltas)]
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
            for event in await self._desk.work.run(size_of(len(delta.token_ids), self._wish.num_top), self._events, delta):
                yield server_event(event)
        if self._wish.streaming.include_usage:
            yield server_event(compact({**self._head, "choices": [], "usage": self._usage_object()}))

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

