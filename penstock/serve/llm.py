"""Offline use: `LLM("brook").generate([...], SamplingParams(...))`. The names are vLLM's. Runs in the caller's thread."""
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from penstock.compute.decoding.params import check_params
from penstock.core.config import EngineConfig
from penstock.core.errors import RequestError, UsageError
from penstock.core.types import Completion, Logprob, Output, SamplingParams, TokenLogprobs
from penstock.serve.engine.build import build
from penstock.serve.engine.requests import Delta, Request

Prompt = str | Mapping[str, Any]
OnText = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Timings:
    """Rates are None where there was too little to tell. mfu and mbu need the machine's measured limits, and are None without."""

    ttft_s: float
    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float | None
    mfu: float | None = None
    mbu: float | None = None


class LLM:
    def __init__(self, model: str = "brook", **options: Any) -> None:
        """`options` are the fields of EngineConfig. Raises UsageError for an unknown one, ModelError for a model that cannot be loaded."""
        known = [field.name for field in fields(EngineConfig)]
        for name in options:
            if name not in known:
                raise UsageError(f"LLM has no option {name!r}; it has: {', '.join(known)}")
        self._open(EngineConfig(model=model, **options), None, None)

    @classmethod
    def from_config(
        cls, config: EngineConfig, progress: Callable[[int, int], None] | None = None, say: OnText | None = None
    ) -> "LLM":
        """`progress` is called with (bytes loaded, bytes in all), `say` with lines about a model of the hub."""
        llm = cls.__new__(cls)
        llm._open(config, progress, say)
        return llm

    def _open(self, config: EngineConfig, progress: Callable[[int, int], None] | None, say: OnText | None) -> None:
        self._built = build(config, progress=progress, say=say)
        self._engine = self._built.engine
        self._numbers = itertools.count()

    def get_tokenizer(self) -> Any:
        return self._built.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What the checkpoint's generation_config.json recommends."""
        return SamplingParams(**self._built.sampling_defaults)

    def generate(
        self, prompts: Prompt | Sequence[Prompt], sampling_params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[Output]:
        """One Output per prompt, in order. A prompt is a string or {"prompt_token_ids": [...]}.

        Raises RequestError for a prompt or parameter that cannot be served; then nothing was generated.
        """
        listed = [prompts] if isinstance(prompts, str | Mapping) else list(prompts)
        default = self.get_default_sampling_params() if sampling_params is None else sampling_params
        params = [default] * len(listed) if isinstance(default, SamplingParams) else list(default)
        if len(params) != len(listed):
            raise RequestError(f"{len(params)} sampling_params for {len(listed)} prompts; give one, or one for each", "sampling_params")
        return self._run([self._request(prompt, each) for prompt, each in zip(listed, params, strict=True)])

    def chat(self, messages: Sequence[Any], sampling_params: SamplingParams | None = None) -> list[Output]:
        """One conversation (a list of messages), or a list of conversations."""
        talks = [messages] if messages and isinstance(messages[0], Mapping) else list(messages)
        template = self._built.chat_template
        return self.generate([self._rendered(template.render(talk)) for talk in talks], sampling_params)

    def embed(self, prompts: Prompt | Sequence[Prompt]) -> list[Output]:
        """`Output.embedding`: the last token's hidden state at length one."""
        listed = [prompts] if isinstance(prompts, str | Mapping) else list(prompts)
        return self._run([self._request(prompt, SamplingParams(), embedding=True) for prompt in listed])

    def complete(self, prompt: Prompt, params: SamplingParams, on_text: OnText | None = None) -> tuple[Output, Timings]:
        """One prompt, its text given to `on_text` as it comes."""
        return self._timed(self._request(prompt, params), on_text)

    def converse(
        self, messages: Sequence[Mapping[str, Any]], params: SamplingParams, on_text: OnText | None = None
    ) -> tuple[Output, Timings]:
        return self._timed(self._request(self._rendered(self._built.chat_template.render(messages)), params), on_text)

    def _rendered(self, text: str) -> Prompt:
        """A rendered template brings its own special tokens."""
        return {"prompt_token_ids": self._built.tokenizer.encode(text, add_special_tokens=False), "prompt": text}

    def _request(self, prompt: Prompt, params: SamplingParams, embedding: bool = False) -> Request:
        vocab_size = self._engine.facts.vocab_size
        text, ids = read_prompt(prompt, self._built.tokenizer, vocab_size)
        request = Request(str(next(self._numbers)), ids, check_params(params, vocab_size), text, wants_embedding=embedding)
        self._engine.check(request)
        return request

    def _run(self, requests: list[Request], on_delta: Callable[[Delta], None] | None = None) -> list[Output]:
        outputs = {request.request_id: _blank(request, self._engine.clock.now()) for request in requests}
        for request in requests:
            self._engine.add(request)
        try:
            while self._engine.num_requests():
                for request_id, delta in self._engine.step() or []:
                    self._take(outputs[request_id], delta)
                    if on_delta is not None:
                        on_delta(delta)
        except BaseException:
            for request in requests:
                self._engine.abort(request.request_id)
            raise
        return [outputs[request.request_id] for request in requests]

    def _take(self, output: Output, delta: Delta) -> None:
        now = self._engine.clock.now()
        if output.first_token_s is None:
            output.first_token_s = now
        if delta.prompt_logprobs is not None:
            output.prompt_logprobs = [None if each is None else self._entries(each) for each in delta.prompt_logprobs]
        if delta.embedding is not None:
            output.embedding = list(delta.embedding)
        else:
            self._extend(output.outputs[delta.index], delta)
        if delta.usage is not None:
            output.finished, output.finished_s = True, now
            output.num_cached_tokens = delta.usage.cached_tokens
            output.cache_creation_input_tokens = delta.usage.cache_creation_input_tokens
            output.cache_read_input_tokens = delta.usage.cache_read_input_tokens

    def _extend(self, completion: Completion, delta: Delta) -> None:
        completion.text += delta.text
        completion.token_ids.extend(delta.token_ids)
        completion.finish_reason, completion.stop_reason = delta.finish_reason, delta.stop_reason
        if delta.logprobs and completion.logprobs is not None:
            completion.logprobs.extend(map(self._entries, delta.logprobs))
            completion.cumulative_logprob = (completion.cumulative_logprob or 0.0) + sum(each.logprob for each in delta.logprobs)

    def _entries(self, scored: TokenLogprobs) -> dict[int, Logprob]:
        """The chosen token first, then the likeliest."""
        text = self._built.tokenizer.token_text
        found = {scored.token_id: Logprob(scored.logprob, scored.rank, text(scored.token_id))}
        for rank, (token, logprob) in enumerate(scored.top, 1):
            found.setdefault(token, Logprob(logprob, rank, text(token)))
        return found

    def _timed(self, request: Request, on_text: OnText | None) -> tuple[Output, Timings]:
        began = self._engine.clock.now()
        (output,) = self._run([request], None if on_text is None else lambda delta: on_text(delta.text) if delta.text else None)
        first, last = output.first_token_s or began, output.finished_s or began
        num_computed = len(request.token_ids) - output.num_cached_tokens
        num_decoded = sum(len(each.token_ids) for each in output.outputs) - len(output.outputs)
        return output, Timings(
            first - began, num_computed / (first - began) if first > began else None,
            num_decoded / (last - first) if num_decoded > 0 and last > first else None)


def read_prompt(prompt: Prompt, tokenizer: Any, vocab_size: int) -> tuple[str | None, tuple[int, ...]]:
    """(text, token ids). Raises RequestError for what is neither a string nor a dict with `prompt` or `prompt_token_ids`."""
    if isinstance(prompt, str):
        return prompt, tuple(tokenizer.encode(prompt))
    if not isinstance(prompt, Mapping) or not set(prompt) <= {"prompt", "prompt_token_ids"} or not prompt:
        raise RequestError(f"a prompt is a string or a dict with prompt or prompt_token_ids, not {prompt!r:.80}", "prompt")
    ids = prompt.get("prompt_token_ids")
    if ids is None:
        return prompt["prompt"], tuple(tokenizer.encode(prompt["prompt"]))
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
            raise RequestError(f"prompt_token_ids holds {token!r}; token ids are 0 to {vocab_size - 1}", "prompt_token_ids")
    return prompt.get("prompt"), tuple(ids)


def _blank(request: Request, now: float) -> Output:
    params = request.params
    completions = [] if request.wants_embedding else [
        Completion(index, logprobs=None if params.logprobs is None else []) for index in range(params.n)]
    return Output(request.request_id, request.prompt, list(request.token_ids), completions, arrival_s=now)
