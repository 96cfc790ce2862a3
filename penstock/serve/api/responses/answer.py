"""The response object, whole or told of by typed events in OpenAI's order, and kept when it is complete."""
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from penstock.core.errors import OverloadedError
from penstock.serve.api.call import Call
from penstock.serve.api.choice import Choice
from penstock.serve.api.encoding import encoded
from penstock.serve.api.errors import error_object, status_of
from penstock.serve.api.keys import Asker
from penstock.serve.api.limits import ClientGone
from penstock.serve.api.parts import Desk
from penstock.serve.api.rendering import Rendered
from penstock.serve.api.responses.asked import Asked
from penstock.serve.api.responses.items import unmarked
from penstock.serve.api.responses.output import BEGUN, COMPLETE, INCOMPLETE, Output, Told
from penstock.serve.api.stream import compact, logged, server_event, size_of
from penstock.serve.api.usage import response_usage, score_object
from penstock.serve.engine.requests import Delta, Usage
from penstock.serve.text.answer import ContentDelta, Event, ToolCallArguments, ToolCallStart
from penstock.serve.text.detokenize import Detokenizer

CUT = {"reason": "max_output_tokens"}


class Answer:
    """The answer to one HTTP request."""

    def __init__(self, desk: Desk, owner: Asker, made: str, asked: Asked, prompt: Rendered) -> None:
        """`made`: what the ids of the response and of its items end with."""
        self.streams = asked.wish.streaming.on
        self._desk = desk
        self._owner = owner
        self._asked = asked
        self._choice = Choice(desk, asked.wish, prompt, prompt.token_ids)
        self._output = Output(made)
        self._shown = Shown(self._choice)
        skips = asked.wish.params.skip_special_tokens
        told = asked.wish.num_top is not None
        self._apart = Apart(desk.parts.tokenizer.detokenizer(skips, prompt.token_ids)) if told else None
        self._end = Delta(0)
        self._usage = Usage()
        self._num_events = 0
        self._head: dict[str, Any] = {"id": f"resp_{made}", "object": "response", "created_at": int(time.time()), "model": desk.model}

    async def whole(self, call: Call) -> dict[str, Any]:
        deltas = [delta async for _, delta in call.deltas()]
        num_tokens = sum(len(delta.token_ids) for delta in deltas)
        await self._desk.work.run(size_of(num_tokens, self._asked.wish.num_top), lambda: [self._add(delta) for delta in deltas])
        return await self._complete()

    @property
    def size(self) -> int:
        return self._asked.size + size_of(self._choice.num_tokens, self._asked.wish.num_top)

    async def events(self, call: Call) -> AsyncIterator[str]:
        """Nothing is said before the answer begins, so that what is refused until then is answered with its own status."""
        try:
            async for _, delta in call.deltas():
                if not self._num_events:
                    for kind in ("response.created", "response.in_progress"):
                        yield await self._event({"type": kind, "response": self._object(BEGUN)}, self._asked.size)
                size = size_of(len(delta.token_ids), self._asked.wish.num_top)
                for told in await self._desk.work.run(size, self._add, delta):
                    yield await self._event(told, size if delta.finish_reason is None else self.size)
            response = await self._complete()
            yield await self._event({"type": f"response.{response['status']}", "response": response}, self.size)
        except ClientGone:
            raise
        except Exception as error:
            if not self._num_events:
                raise
            yield await self._event({"type": "response.failed", "response": self._failed(logged(error))}, self.size)

    async def _event(self, told: Told, size: int) -> str:
        event = {"type": told["type"], "sequence_number": self._num_events, **told}
        self._num_events += 1
        return server_event(await self._desk.work.run(size, compact, event), told["type"])

    def _add(self, delta: Delta) -> list[Told]:
        parts = [delta] if self._apart is None else self._apart.parts(delta)
        return [told for part in parts for told in self._told(part)]

    def _told(self, delta: Delta) -> list[Told]:
        self._usage = delta.usage or self._usage
        found = self._choice.added(delta)
        told = self._output.add(found, self._shown.rows(found, self._choice.rows(delta) or ()))
        if delta.finish_reason is None:
            return told
        self._end = delta
        calls_end = self._choice.reason(delta) == "tool_calls" or delta.finish_reason == "stop" and not self._output.is_calling
        return told + self._output.end(calls_end, self._shown.rest(), silent=self._asked.wish.only_calls)

    async def _complete(self) -> dict[str, Any]:
        """The response object, which is kept unless its client asked for nothing of the kind."""
        cut = self._end.finish_reason == "length"
        usage = response_usage(self._usage, self._choice.num_reasoning())
        scored = {} if self._end.score is None else {"score": score_object(self._end.score)}
        response = self._object(INCOMPLETE if cut else COMPLETE) | {
            "completed_at": None if cut else int(time.time()), "incomplete_details": CUT if cut else None, "usage": usage} | scored
        if self._asked.stored:
            size = self.size + size_of(self._usage.prompt_tokens)
            answer, items = await self._desk.work.run(size, lambda: (encoded(response), encoded([*map(unmarked, self._asked.items)])))
            self._desk.store.put(self._owner, response["id"], answer, items)
        return response

    def _failed(self, error: Exception) -> dict[str, Any]:
        status = status_of(error)
        code = "rate_limit_exceeded" if isinstance(error, OverloadedError) else "server_error" if status >= 500 else "invalid_prompt"
        return self._object("failed") | {"error": {"code": code, "message": error_object(error)["error"]["message"]}}

    def _object(self, status: str) -> dict[str, Any]:
        return {**self._head, "status": status, "completed_at": None, "error": None, "incomplete_details": None,
                "output": self._output.items, "usage": None, **self._asked.repeated}


class Apart:
    """An answer's tokens one by one, each with its text as far as that has come: else those of a text and of a call that come at once could
    not be told apart."""

    def __init__(self, detokenizer: Detokenizer) -> None:
        self._detokenizer = detokenizer
        self._end = 0  # characters of the tokens
        self._at = 0  # characters of the text, which may lag behind

    def parts(self, delta: Delta) -> list[Delta]:
        """The last one has whatever else the delta has."""
        parts, begin = [], 0
        for token_id, row in zip(delta.token_ids, delta.logprobs, strict=True):
            self._end += len(self._detokenizer.push_one(token_id))
            end = max(begin, min(self._end - self._at, len(delta.text)))
            parts.append(Delta(delta.index, delta.text[begin:end], (token_id,), (row,)))
            begin = end
        self._at += len(delta.text)
        if not parts:
            return [delta]
        last = parts.pop()
        return [*parts, replace(delta, text=last.text + delta.text[begin:], token_ids=last.token_ids, logprobs=last.logprobs)]


class Shown:
    """Log-probabilities of the tokens that an answer's text is made of, one delta after another: not of its thoughts, nor of its calls."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._waiting: list[dict[str, Any]] = []  # of tokens that nothing has been shown of yet
        self._num_past = 0  # tokens before them
        self._calls = False  # the last that was shown is a call

    def rows(self, found: Sequence[Event], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """`found`: what the delta adds to the answer; `rows`: of its tokens."""
        self._waiting += rows
        if not found:
            return []
        taken = self.rest()
        called, self._calls = self._calls, isinstance(found[-1], ToolCallStart | ToolCallArguments)
        text = next((event.text for event in found if isinstance(event, ContentDelta)), None)
        return [] if text is None else taken[num_before(taken, text) :] if called else taken

    def rest(self) -> list[dict[str, Any]]:
        num_thought = max(0, self._choice.num_reasoning() - self._num_past)
        taken, self._waiting = self._waiting, []
        self._num_past += len(taken)
        return taken[num_thought:]


def num_before(rows: Sequence[dict[str, Any]], text: str) -> int:
    """How many of a call's last tokens stand before those of the `text` that follows it."""
    at, count = b"".join([bytes(row["bytes"]) for row in rows]).rfind(text.encode()), 0
    while 0 < at >= len(rows[count]["bytes"]):
        at -= len(rows[count]["bytes"])
        count += 1
    return count
