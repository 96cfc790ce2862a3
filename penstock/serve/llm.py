"""Offline use: `LLM("brook").generate([...], SamplingParams(...))`. The names are vLLM's. Runs in the caller's thread."""
import itertools
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from penstock.compute.decoding.params import check_params
from penstock.core.config import EngineConfig, ServerConfig
from penstock.core.errors import PenstockError, RequestError, UsageError
from penstock.core.hardware import Hardware
from penstock.core.types import Completion, Logprob, Output, SamplingParams, TokenLogprobs
from penstock.serve.engine.build import build, choose_backend, make_selections, reasoning_parser
from penstock.serve.engine.machine import without_native
from penstock.serve.engine.requests import Delta, Request, given_up
from penstock.serve.engine.selecting import on_thread
from penstock.serve.engine.selection import Selection
from penstock.serve.engine.utilization import Recorder, shares_of
from penstock.serve.spans import Span, Spans
from penstock.serve.text.chat import ChatTemplate
from penstock.serve.text.hidden import with_markup

log = logging.getLogger("penstock.engine")
Prompt = str | Mapping[str, Any]
SCORERS_AT_ONCE = 8
OnText = Callable[[str], None]
OnSpan = Callable[[Span], None]
OnDelta = Callable[[Delta], None]
Bound = Callable[[int], int]  # tokens that an answer may take -> those that it shall have at most
ADVICE = "render the messages yourself, and give the text to generate"


@dataclass(frozen=True, slots=True)
class Timings:
    """`ttft_s`: until the step that chose the first token ended; answers that are searched for, or selected, are told at their end. Rates
    are None where there was too little to tell. mfu and mbu need the machine's measured limits, and are None without."""

    ttft_s: float
    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float | None
    mfu: float | None = None
    mbu: float | None = None


class LLM:
    """May be used from several threads, whose calls take turns. A callback cannot call the LLM that calls it: that raises UsageError."""

    def __init__(self, model: str | os.PathLike[str] = "brook", **options: Any) -> None:
        """`options` are the fields of EngineConfig. Raises UsageError for an unknown one or one of another type, ModelError for a
        model that cannot be loaded."""
        given = {"model": os.fspath(model) if isinstance(model, os.PathLike) else model, **options}
        if given.get("propose") == "none":  # as the command line has it
            given["propose"] = None
        check_options(given)
        try:
            self._open(EngineConfig(**given), None, None)
        except PenstockError as error:
            error.args = (as_options(str(error)), *error.args[1:])
            raise

    @classmethod
    def from_config(
        cls, config: EngineConfig, progress: Callable[[int, int], None] | None = None, say: OnText | None = None
    ) -> "LLM":
        """`progress` is called with (bytes loaded, bytes in all), `say` with lines about a model of the hub."""
        llm = cls.__new__(cls)
        llm._open(config, progress, say)
        return llm

    def _open(self, config: EngineConfig, progress: Callable[[int, int], None] | None, say: OnText | None) -> None:
        if (why := choose_backend(config)[1]) == without_native():
            log.warning(why)
        self._recorder = Recorder()
        self._built = build(config, self._recorder, progress, say)
        self._engine = self._built.engine
        self._chat_template = ChatTemplate.of(self._built.tokenizer, advice=ADVICE)
        self._selections = make_selections(self._built.tokenizer, None)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._whose: int | None = None  # thread that generates

    @property
    def hardware(self) -> Hardware | None:
        """The machine's measured limits; None where `penstock limits` was not run."""
        return self._built.hardware

    def get_tokenizer(self) -> Any:
        return self._built.tokenizer

    def chat_template(self, path: Path | None, advice: str) -> ChatTemplate:
        """The one in the file `path`, else the model's own. Raises RequestError, with `advice`, where there is none, ModelError for one
        that is not jinja, UsageError for a file that cannot be read."""
        template = ChatTemplate.of(self._built.tokenizer, path, advice)
        template.require()
        return template

    def get_default_sampling_params(self) -> SamplingParams:
        """What the checkpoint's generation_config.json recommends."""
        return SamplingParams(**self._built.sampling_defaults)

    def generate(
        self, prompts: Prompt | Sequence[Prompt], sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *, on_delta: OnDelta | None = None
    ) -> list[Output]:
        """One Output per prompt, in order. A prompt is a string or {"prompt_token_ids": [...]}. `on_delta` is called with whatever a step
        adds to any of them.

        Raises RequestError for a prompt or parameter that cannot be served; then nothing was generated. Raises it, too, where a scorer
        fails, and where no answer's grammar could be followed to its end. Where some could, the others end with "abort", and a line in
        the log says so.
        """
        listed = list_prompts(prompts)
        default = self.get_default_sampling_params() if sampling_params is None else sampling_params
        params = [default] * len(listed) if isinstance(default, SamplingParams) else default
        if not isinstance(params, list | tuple) or not all(isinstance(each, SamplingParams) for each in params):
            raise RequestError(f"sampling_params are SamplingParams or a list of them, not {default!r:.80}", "sampling_params")
        if len(params) != len(listed):
            raise RequestError(f"{len(params)} sampling_params for {len(listed)} prompts; give one, or one for each", "sampling_params")
        return self._run([self._request(prompt, each) for prompt, each in zip(listed, params, strict=True)], on_delta)

    def chat(self, messages: Sequence[Any], sampling_params: SamplingParams | None = None) -> list[Output]:
        """One conversation (a list of messages), or a list of conversations."""
        talks = list_talks(messages)
        return self.generate([self._rendered(self._chat_template.render(talk)) for talk in talks], sampling_params)

    def embed(self, prompts: Prompt | Sequence[Prompt]) -> list[Output]:
        """`Output.embedding`: the last token's hidden state at length one."""
        listed = list_prompts(prompts)
        return self._run([self._request(prompt, SamplingParams(), embedding=True) for prompt in listed])

    def complete(
        self, prompt: Prompt, params: SamplingParams, on_text: OnText | None = None, bound: Bound | None = None
    ) -> tuple[Output, Timings]:
        """One prompt, its text given to `on_text` as it comes. `bound`: of an answer without max_tokens."""
        return self._timed(self._request(prompt, params, bound=bound), None if on_text is None else by_text(on_text))

    def converse(
        self, messages: Sequence[Mapping[str, Any]], params: SamplingParams, on_span: OnSpan | None = None,
        template: ChatTemplate | None = None, bound: Bound | None = None
    ) -> tuple[Output, Timings]:
        """The answer to one conversation, given to `on_span` as it comes. The text of the Output is the answer without its reasoning.
        `bound`: as in `complete`. Raises RequestError for parameters that ask for several answers."""
        if params.n != 1:
            raise RequestError(f"a conversation goes on with one answer, but n is {params.n}", "n")
        template, tokenizer = template or self._chat_template, self._built.tokenizer
        parser = reasoning_parser(ServerConfig(), template)
        params, hidden = with_markup(params, tokenizer, (parser,))
        prompt = template.render(messages)
        request = self._request(self._rendered(prompt), params, bound=bound)
        spans = Spans(tokenizer, request, None if parser is None else parser(prompt), hidden)
        output, timings = self._timed(request, by_span(on_span, spans))
        output.outputs[0].text = spans.content
        return output, timings

    def _rendered(self, text: str) -> Prompt:
        """A rendered template brings its own special tokens."""
        return {"prompt_token_ids": self._built.tokenizer.encode(text, add_special_tokens=False), "prompt": text}

    def _request(self, prompt: Prompt, params: SamplingParams, embedding: bool = False, bound: Bound | None = None) -> Request:
        vocab_size = self._engine.facts.vocab_size
        text, ids = read_prompt(prompt, self._built.tokenizer, vocab_size)
        if bound is not None and params.max_tokens is None:
            params = replace(params, max_tokens=max(1, bound(self._engine.room(len(ids)))))
        params, grammar = self._built.grammars.prepare(check_params(params, vocab_size))
        request = Request(str(next(self._numbers)), ids, params, text, wants_embedding=embedding, grammar=grammar)
        selection = self._selections.of(request)
        self._engine.check(request if selection is None else selection.request)
        return request

    def _run(self, requests: list[Request], on_delta: OnDelta | None = None) -> list[Output]:
        self._check_turn()
        with self._lock:
            return self._run_all(requests, on_delta)

    def _check_turn(self) -> None:
        if self._lock.locked() and self._whose == threading.get_ident():
            raise UsageError("this LLM is generating, and its callbacks cannot ask it for more: call it again when it has returned")

    def _run_all(self, requests: list[Request], on_delta: OnDelta | None) -> list[Output]:
        now = self._engine.clock.now()
        requests = [replace(request, arrival_s=now) for request in requests]
        outputs = {request.request_id: _blank(request, now) for request in requests}
        chosen = {request.request_id: selection for request in requests if (selection := self._selections.of(request)) is not None}
        try:
            self._whose = threading.get_ident()
            self._engine.clear()  # what a call has left that was interrupted again while it cleared up
            for request in requests:
                selection = chosen.get(request.request_id)
                self._engine.add(request if selection is None else selection.request)
            while self._engine.num_requests():
                deltas = self._engine.step()
                for _, error in self._engine.take_refused():
                    raise error
                if deltas is None:  # a batch waits for company
                    time.sleep(max(0.0, self._engine.wake_s() - self._engine.clock.now()))
                for request_id, delta in deltas or []:
                    if request_id in chosen:
                        chosen[request_id].take(delta)
                    else:
                        self._give(outputs[request_id], delta, on_delta)
            for request_id, delta in best_of_all(chosen):
                self._give(outputs[request_id], delta, on_delta)
        except BaseException:
            self._engine.clear()
            raise
        finally:
            self._whose = None
        check_given_up(requests, outputs)
        return [outputs[request.request_id] for request in requests]

    def _give(self, output: Output, delta: Delta, on_delta: OnDelta | None) -> None:
        self._take(output, delta)
        if on_delta is not None:
            on_delta(delta)

    def _take(self, output: Output, delta: Delta) -> None:
        if delta.prompt_logprobs is not None:
            output.prompt_logprobs = [None if each is None else self._entries(each) for each in delta.prompt_logprobs]
        if delta.embedding is not None:
            output.embedding = list(delta.embedding)
        else:
            self._extend(output.outputs[delta.index], delta)
        if delta.usage is not None:
            output.drafting = delta.usage.drafting
            output.finished, output.finished_s = True, self._engine.clock.now()
            output.first_scheduled_s = after(output.arrival_s, delta.usage.queued_s)
            output.first_token_s = after(output.arrival_s, delta.usage.prefilled_s)
            output.num_cached_tokens = delta.usage.cached_tokens
            output.cache_creation_input_tokens = delta.usage.cache_creation_input_tokens
            output.cache_read_input_tokens = delta.usage.cache_read_input_tokens

    def _extend(self, completion: Completion, delta: Delta) -> None:
        completion.text += delta.text
        completion.token_ids.extend(delta.token_ids)
        completion.finish_reason, completion.stop_reason = delta.finish_reason, delta.stop_reason
        if delta.drafting is not None:
            completion.drafting = delta.drafting
        completion.score = delta.score or completion.score
        if delta.logprobs and completion.logprobs is not None:
            completion.logprobs.extend(map(self._entries, delta.logprobs))
            for each in delta.logprobs:  # one by one: the sum has the same bits however many tokens came at once
                completion.cumulative_logprob = (completion.cumulative_logprob or 0.0) + each.logprob

    def _entries(self, scored: TokenLogprobs) -> dict[int, Logprob]:
        """The chosen token first, then the likeliest."""
        text = self._built.tokenizer.token_text
        found = {scored.token_id: Logprob(scored.logprob, scored.rank, text(scored.token_id))}
        for rank, (token, logprob) in enumerate(scored.top, 1):
            found.setdefault(token, Logprob(logprob, rank, text(token)))
        return found

    def _timed(self, request: Request, on_delta: OnDelta | None) -> tuple[Output, Timings]:
        self._check_turn()
        with self._lock, self._recorder.recording() as records:
            began = self._engine.clock.now()
            (output,) = self._run_all([request], on_delta)
        shares = shares_of(records, self.hardware, self._engine.facts.compute_type)
        first, last = output.first_token_s or began, output.finished_s or began
        num_computed = max(1, len(request.token_ids) - output.num_cached_tokens)  # the last one always is
        num_decoded = sum(len(each.token_ids) for each in output.outputs) - len(output.outputs)
        return output, Timings(
            first - began, num_computed / (first - began) if first > began else None,
            num_decoded / (last - first) if num_decoded > 0 and last > first else None, shares.mfu, shares.mbu)


def after(begin_s: float, seconds: float | None) -> float | None:
    return None if seconds is None else begin_s + seconds


def check_given_up(requests: Sequence[Request], outputs: Mapping[str, Output]) -> None:
    """Raises RequestError if the engine gave up on all answers; tells of those of which it did."""
    lost = {request_id: sum([each.finish_reason == "abort" for each in output.outputs]) for request_id, output in outputs.items()}
    num_lost, num_all = sum(lost.values()), sum([len(output.outputs) for output in outputs.values()])
    if not num_lost:
        return
    error = given_up(next(request for request in requests if lost[request.request_id]))
    if num_lost == num_all:
        raise error
    log.warning("%d of %d answers end with \"abort\": %s", num_lost, num_all, error)


def best_of_all(selections: Mapping[str, Selection]) -> Iterator[tuple[str, Delta]]:
    """(request id, delta) of the answers that were chosen; several scorers are waited for together. When one fails, or the user interrupts,
    nobody waits for the others."""
    waiting: deque[tuple[str, Future[list[Delta]]]] = deque()
    for request_id, selection in selections.items():
        waiting.append((request_id, on_thread(selection.chosen)))
        if len(waiting) == SCORERS_AT_ONCE:
            yield from first_of(waiting)
    while waiting:
        yield from first_of(waiting)


def first_of(waiting: deque[tuple[str, Future[list[Delta]]]]) -> Iterator[tuple[str, Delta]]:
    request_id, chosen = waiting.popleft()
    for delta in chosen.result():
        yield request_id, delta


def by_text(on_text: OnText) -> OnDelta:
    return lambda delta: on_text(delta.text) if delta.text else None


def by_span(on_span: OnSpan | None, spans: Spans) -> OnDelta:
    def take(delta: Delta) -> None:
        for span in spans.push(delta):
            if on_span is not None:
                on_span(span)

    return take


def check_options(options: Mapping[str, Any]) -> None:
    """Raises UsageError for what is no field of EngineConfig, or of another type than the field."""
    known = get_type_hints(EngineConfig)
    for name, value in options.items():
        if name not in known:
            raise UsageError(f"LLM has no option {name!r}; it has: {', '.join(known)}")
        wanted = known[name]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise UsageError(f"{name} must be of type {getattr(wanted, '__name__', wanted)}, not {value!r:.80}")


def as_options(message: str) -> str:
    """A message with options as Python has them, kv_tokens for --kv-tokens, and prefix_cache=False for --no-prefix-cache."""
    known = get_type_hints(EngineConfig)

    def named(flag: re.Match[str]) -> str:
        name = flag[2].replace("-", "_")
        return (f"{name}=False" if flag[1] else name) if name in known else flag[0]

    return re.sub(r"--(no-)?([a-z]+(?:-[a-z]+)*)", named, message)


def list_prompts(prompts: Any) -> list[Any]:
    """One prompt or several, as a list. Raises RequestError for what is neither."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    if isinstance(prompts, bytes) or not isinstance(prompts, Sequence):
        raise RequestError(f"prompts are a prompt or a list of prompts, not {prompts!r:.80}", "prompts")
    return list(prompts)


def list_talks(messages: Any) -> list[Any]:
    """One conversation or several, as a list. Raises RequestError for messages without a role, or with nothing in them."""
    talks = [messages] if isinstance(messages, list | tuple) and messages and isinstance(messages[0], Mapping) else messages
    if not isinstance(talks, list | tuple) or not all(isinstance(talk, list | tuple) and talk for talk in talks):
        raise RequestError(f"messages are a list of messages, or a list of such lists, not {messages!r:.80}", "messages")
    for message in itertools.chain.from_iterable(talks):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or not {"content", "tool_calls"} & set(message):
            raise RequestError(f"a message is a dict with role and content, not {message!r:.80}", "messages")
    return list(talks)


def read_prompt(prompt: Prompt, tokenizer: Any, vocab_size: int) -> tuple[str | None, tuple[int, ...]]:
    """(text, token ids). Raises RequestError for what is neither a string nor a dict with `prompt` or `prompt_token_ids`."""
    given: Any = {"prompt": prompt} if isinstance(prompt, str) else prompt
    if not isinstance(given, Mapping) or not set(given) <= {"prompt", "prompt_token_ids"}:
        raise RequestError(f"a prompt is a string or a dict with prompt or prompt_token_ids, not {prompt!r:.80}", "prompt")
    text, ids = given.get("prompt"), given.get("prompt_token_ids")
    if not isinstance(text, str) and (text is not None or ids is None):
        raise RequestError(f"a prompt's text is a string, not {text!r:.80}", "prompt")
    if ids is None:
        return text, tuple(tokenizer.encode(text))
    if not isinstance(ids, list | tuple):
        raise RequestError(f"prompt_token_ids is a list of token ids, not {ids!r:.80}", "prompt_token_ids")
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
            raise RequestError(f"prompt_token_ids holds {token!r}; token ids are 0 to {vocab_size - 1}", "prompt_token_ids")
    return text, tuple(ids)


def _blank(request: Request, now: float) -> Output:
    params = request.params
    completions = [] if request.wants_embedding else [
        Completion(index, logprobs=None if params.logprobs is None else []) for index in range(params.n)]
    return Output(request.request_id, request.prompt, list(request.token_ids), completions, arrival_s=now)
