"""POST /v1/completions: one engine request per prompt; `n` choices each, numbered through in the prompts' order."""
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from penstock.compute.decoding.params import check_params
from penstock.core.errors import RequestError
from penstock.core.types import SamplingParams, TokenLogprobs
from penstock.serve.api import fields
from penstock.serve.api.call import Call
from penstock.serve.api.logprobs import CompletionRows, joined, prompt_rows
from penstock.serve.api.naming import made_id, names_of
from penstock.serve.api.parts import Desk
from penstock.serve.api.prompts import Prompt, read_prompts
from penstock.serve.api.room import check_room
from penstock.serve.api.schema import MAX_LOGPROBS, Streaming, make_request, read_params, read_placing, read_streaming, receive
from penstock.serve.api.stream import HOLE, Template, answered, compact, server_event, size_of
from penstock.serve.api.structure import Asked, compile_all, from_format, read_structure, structured
from penstock.serve.api.usage import score_object, usage_object, usage_so_far
from penstock.serve.api.values import Values
from penstock.serve.engine.requests import Delta, Usage

DEFAULT_MAX_TOKENS = 16  # OpenAI's
CHOICES_PER_PLACE = 16  # sequences of one request for each place in the queue


@dataclass(frozen=True, slots=True)
class Wish:
    """What a completion request asks for, beside its prompts. `num_top` is its `logprobs`."""

    params: SamplingParams
    streaming: Streaming
    echo: bool = False
    only_echo: bool = False  # max_tokens = 0: the prompt and its log-probabilities, no answer
    num_top: int | None = None
    num_prompt_top: int | None = None
    structured_by: str = ""  # the field that says what the answer must be, if any


class Choice:
    """One choice on its way out."""

    def __init__(self, desk: Desk, wish: Wish, prompt: Prompt, prompt_end: Sequence[int], index: int) -> None:
        """`prompt_end`: the last of the prompt's tokens that show."""
        self.index = index
        self.num_tokens = 0
        self._template: Template | None = None
        self._tokenizer = desk.parts.tokenizer
        self._wish = wish
        self._prompt = prompt
        skip = wish.params.skip_special_tokens
        self._rows = None if wish.num_top is None else CompletionRows(self._tokenizer, wish.num_top, skip, prompt_end)

    def says_text_alone(self, delta: Delta) -> bool:
        """Whether a chunk of this delta differs from others in its text alone."""
        wish = self._wish
        return self._rows is None and delta.finish_reason is None and not (wish.only_echo or wish.streaming.continuous_usage)

    def template(self, chunk: Callable[[dict[str, Any]], dict[str, Any]]) -> Template:
        """Of such chunks."""
        if self._template is None:
            self._template = Template(chunk(_choice(self.index, HOLE, None, [])))
        return self._template

    def echoed(self, rows: Sequence[TokenLogprobs | None]) -> tuple[str, dict[str, Any] | None]:
        """The prompt's text, as it was sent, and its log-probabilities."""
        text = self._prompt.text
        if text is None:
            text = self._tokenizer.decode(self._prompt.token_ids, skip_special_tokens=self._wish.params.skip_special_tokens)
        return text, None if self._rows is None else self._rows.prompt(text, self._prompt.token_ids, rows)

    def added(self, delta: Delta) -> tuple[str, dict[str, Any] | None]:
        """A delta's text and log-probabilities."""
        if self._wish.only_echo:
            return "", None
        self.num_tokens += len(delta.token_ids)
        return delta.text, None if self._rows is None else self._rows.answer(delta.logprobs)


async def create(desk: Desk, http: HttpRequest) -> Response:
    arrived_s = desk.clock.now()
    received = await receive(desk, http, fields.COMPLETIONS)
    body = received.body
    wish = await desk.work.run(received.size, read_wish, desk, body)
    placing = read_placing(body, http, arrived_s)
    prompts = await desk.work.run(received.size, read_prompts, desk, body, "prompt", Values(body).boolean("add_special_tokens", True))
    check_choices(desk, len(prompts), wish.params)
    for at, prompt in enumerate(prompts):
        name = "prompt" if len(prompts) == 1 else f"prompt[{at}]"
        check_room(desk, len(prompt.token_ids), wish.params, name)
    completion_id = f"cmpl-{made_id(http)}"
    wanted = wish.params.structured_outputs
    asked = [] if wanted is None else [Asked(wanted, wish.structured_by)]
    params, grammar = await compile_all(desk, http, wish.params, asked, received.size)
    requests = [make_request(name, p.token_ids, params, placing, prompt=p.text, grammar=grammar)
                for name, p in zip(names_of(completion_id, len(prompts)), prompts, strict=True)]
    return await answered(desk, Call(desk, http, requests, arrived_s), Answer(desk, completion_id, wish, prompts))


def check_choices(desk: Desk, num_prompts: int, params: SamplingParams) -> None:
    """Raises RequestError when one request would keep the server busy for everyone."""
    width = max(params.n, params.best_of or 1, params.beam_width or 1)
    most = CHOICES_PER_PLACE * desk.parts.config.max_queue
    if num_prompts * width > most:
        total = num_prompts * width
        message = f"{num_prompts} prompts with n, best_of or beam_width = {width} are {total} sequences; one request may ask for {most}"
        raise RequestError(message, param="n")


def read_wish(desk: Desk, body: Mapping[str, Any]) -> Wish:
    values = Values(body)
    streaming = read_streaming(body)
    echo = values.boolean("echo", False)
    max_tokens = values.integer("max_tokens", None, low=0) if "max_tokens" in body else DEFAULT_MAX_TOKENS
    if max_tokens == 0 and not echo:
        raise RequestError("max_tokens must be at least 1, or 0 with echo = true", param="max_tokens")
    num_top = values.integer("logprobs", None, 0, MAX_LOGPROBS)
    num_prompt_top = values.integer("prompt_logprobs", None, 0, MAX_LOGPROBS)
    if streaming.on and num_prompt_top is not None:
        raise RequestError("prompt_logprobs cannot be streamed; use echo with logprobs, or stream = false", param="prompt_logprobs")
    given = {**body}
    if echo and num_top is not None:
        given["prompt_logprobs"] = max(num_top, num_prompt_top or 0)
    asked = read_structure(body, from_format(body))
    params = check_params(structured(read_params(desk, given, 1 if max_tokens == 0 else max_tokens, num_top), asked), desk.vocab_size)
    return Wish(params, streaming, echo, max_tokens == 0, num_top, num_prompt_top, "" if asked is None else asked.field)


class Answer:
    """The answer to one HTTP request, whole or as events."""

    def __init__(self, desk: Desk, completion_id: str, wish: Wish, prompts: Sequence[Prompt]) -> None:
        self.wish = wish
        self.streams = wish.streaming.on
        self._desk = desk
        self._prompts = prompts
        self._head: dict[str, Any] = {"id": completion_id, "object": "text_completion", "created": int(time.time()), "model": desk.model,
                      "system_fingerprint": desk.fingerprint}
        self._choices: dict[tuple[int, int], Choice] = {}
        for number, prompt in enumerate(prompts):
            end = desk.parts.tokenizer.shown_end(prompt.token_ids, wish.params.skip_special_tokens)
            for index in range(wish.params.n):
                self._choices[number, index] = Choice(desk, wish, prompt, end, number * wish.params.n + index)
        self._prompt_rows: dict[int, tuple[TokenLogprobs | None, ...]] = {}
        self._usages: list[Usage] = []

    async def whole(self, call: Call) -> dict[str, Any]:
        deltas: dict[tuple[int, int], list[Delta]] = {key: [] for key in self._choices}
        async for number, delta in call.deltas():
            self._note(number, delta)
            deltas[number, delta.index].append(delta)
        choices = await self._desk.work.run(self.size, lambda: [self._whole_choice(key, deltas[key]) for key in self._choices])
        return {**self._head, "choices": choices, "usage": usage_object(self._usages)}

    @property
    def size(self) -> int:
        wish, num_rows = self.wish, sum(map(len, self._prompt_rows.values()))
        echoed = size_of(sum(usage.prompt_tokens for usage in self._usages), wish.num_top) * wish.params.n if wish.echo else 0
        return (size_of(sum(usage.completion_tokens for usage in self._usages), wish.num_top) + echoed
                + size_of(num_rows, wish.num_prompt_top) * wish.params.n)

    def _whole_choice(self, key: tuple[int, int], deltas: list[Delta]) -> dict[str, Any]:
        choice, rows = self._choices[key], self._prompt_rows.get(key[0], ())
        parts = [choice.echoed(rows)] if self.wish.echo else []
        parts += [choice.added(delta) for delta in deltas]
        lists = [found for _, found in parts if found is not None]
        whole = _choice(choice.index, "".join(text for text, _ in parts), joined(lists) if lists else None, deltas)
        if self.wish.num_prompt_top is not None:
            whole["prompt_logprobs"] = prompt_rows(self._desk.parts.tokenizer, rows, self.wish.num_prompt_top)
        return whole

    async def events(self, call: Call) -> AsyncIterator[str]:
        waiting: dict[int, list[Delta]] = {}  # deltas that came before their prompt's log-probabilities
        begun: set[tuple[int, int]] = set()
        async for number, delta in call.deltas():
            self._note(number, delta)
            if self.wish.echo and self.wish.num_top is not None and number not in self._prompt_rows and not delta.done:
                waiting.setdefault(number, []).append(delta)
                continue
            for ready in (*waiting.pop(number, ()), delta):
                key = (number, ready.index)
                first = key not in begun
                begun.add(key)
                if event := await self._desk.work.run(self._size_of(key, ready, first), self._event, key, ready, first):
                    yield server_event(event)
        if self.wish.streaming.include_usage:
            yield server_event(compact({**self._head, "choices": [], "usage": usage_object(self._usages)}))

    def _size_of(self, key: tuple[int, int], delta: Delta, first: bool) -> int:
        """Of a chunk."""
        num_echoed = len(self._prompts[key[0]].token_ids) if first and self.wish.echo else 0
        return size_of(len(delta.token_ids) + num_echoed, self.wish.num_top)

    def _event(self, key: tuple[int, int], delta: Delta, first: bool) -> str | None:
        """One chunk; None when the delta shows nothing yet."""
        choice = self._choices[key]
        if choice.says_text_alone(delta) and not (first and self.wish.echo):
            choice.num_tokens += len(delta.token_ids)
            return choice.template(self._chunk).fill(delta.text) if delta.text else None
        parts = [choice.echoed(self._prompt_rows.get(key[0], ()))] if first and self.wish.echo else []
        parts.append(choice.added(delta))
        text = "".join(part for part, _ in parts)
        rows = [found for _, found in parts if found is not None and found["tokens"]]
        if not text and not rows and delta.finish_reason is None:
            return None
        chunk = self._chunk(_choice(choice.index, text, joined(rows) if rows else None, [delta]))
        if self.wish.streaming.continuous_usage:
            chunk["usage"] = usage_so_far(len(self._prompts[key[0]].token_ids), choice.num_tokens)
        return compact(chunk)

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        usage = {"usage": None} if self.wish.streaming.include_usage else {}
        return {**self._head, "choices": [choice], **usage}

    def _note(self, number: int, delta: Delta) -> None:
        if delta.prompt_logprobs is not None:
            self._prompt_rows[number] = delta.prompt_logprobs
        if delta.usage is not None:
            self._usages.append(delta.usage)


def _choice(index: int, text: str, logprobs: dict[str, Any] | None, deltas: Sequence[Delta]) -> dict[str, Any]:
    end = next((delta for delta in deltas if delta.finish_reason is not None), None)
    reason, stopped_by = (None, None) if end is None else (end.finish_reason, end.stop_reason)
    choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason, "stop_reason": stopped_by}
    return choice if end is None or end.score is None else choice | {"score": score_object(end.score)}
