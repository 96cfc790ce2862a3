"""OpenAI's completions and chat, as a client sees them: bodies that ask, and what the pieces of an answer say."""
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.core.errors import UsageError
from penstock.core.slo import NO_OBJECTIVES, Objectives
from penstock.study.measure.load import Prompt
from penstock.study.measure.samples import Sample

COMPLETIONS, CHAT = "/completions", "/chat/completions"
REASONING = ("reasoning_content", "reasoning")  # fields that hold what the model thinks, on servers that part it
THINK, THOUGHT = "<think>", "</think>"  # on servers that do not
LENGTH, CHAT_LENGTH = "max_tokens", "max_completion_tokens"  # fields of an answer's length: of both endpoints, and of chat, where it counts
CHOOSING = {"best_of": 1, "scorer": None, "self_consistency": None}  # fields that ask for a choice, and the value that asks for none
TOO_LONG = "context_length_exceeded"  # the code of an error
DONE = b"[DONE]"
NO_REASON = "no reason given"
decode = json.JSONDecoder().raw_decode  # half the time of json.loads, which looks for encodings and white space first


@dataclass(frozen=True, slots=True)
class Wish:
    """What every request asks for."""

    model: str | None = None
    stream: bool = True
    ignore_eos: bool = True  # answers have exactly the tokens asked for, on servers that know the word
    more: Mapping[str, Any] = field(default_factory=dict)  # further fields
    objectives: Objectives = NO_OBJECTIVES  # that whoever serves it is told

    def __post_init__(self) -> None:
        """Raises UsageError for a field that makes times say nothing."""
        if (num := self.more.get("n")) not in (None, 1):
            raise UsageError(f"--body n={num} asks for several answers in one, which TPOT is not defined for: leave n out")

    def output_of(self, num_output: int | None, chat: bool) -> int | None:
        """Tokens of an answer that a dataset has of this length: a further field comes before that. None where that is no length."""
        told = self.more.get(LENGTH, num_output)
        if chat and self.more.get(CHAT_LENGTH) is not None:
            told = self.more[CHAT_LENGTH]
        return told if type(told) is int and told > 0 else None

    @property
    def chooses(self) -> bool:
        """Whether several answers are made for each that comes: servers may count the tokens of all."""
        return any(self.more.get(name) not in (None, harmless) for name, harmless in CHOOSING.items())


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: a prompt, or the whole conversation so far."""

    prompt: Prompt | None = None
    messages: Sequence[Mapping[str, str]] = ()
    num_prompt: int | None = None
    num_output: int | None = None

    @property
    def chat(self) -> bool:
        return self.prompt is None

    @property
    def path(self) -> str:
        return CHAT if self.chat else COMPLETIONS


def body_of(ask: Ask, wish: Wish) -> bytes:
    told: dict[str, Any] = {} if wish.model is None else {"model": wish.model}
    if ask.prompt is not None:
        told["prompt"] = ask.prompt
    else:
        told["messages"] = ask.messages
    if ask.num_output is not None:
        if not ask.chat or wish.more.get(CHAT_LENGTH) is None:  # servers refuse two lengths
            told[LENGTH] = ask.num_output
        if wish.ignore_eos:
            told["ignore_eos"] = True
    if wish.stream:
        told |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(told | dict(wish.more), separators=(",", ":")).encode()


class Answer:
    """Reads an answer's events into a sample. `text` is what a reader sees, kept for the next turn of a conversation."""

    def __init__(self, sample: Sample, keep_text: bool = False) -> None:
        self._sample = sample
        self._keep = keep_text
        self._texts: list[str] = []
        self._hidden: bool | None = None  # whether we are between <think> and </think>; None before any text
        self._tail = ""
        self._blank = False  # nothing but space has followed </think>
        self.ended = False

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def event(self, data: bytes, now_s: float) -> None:
        """One event's data, which came at `now_s`."""
        if data == DONE:
            self.ended = True
            return
        try:
            told, _ = decode(data.decode("utf-8", "replace").lstrip())  # as server-sent events are to be read
        except (ValueError, RecursionError):
            self._sample.error = f"an event is not JSON: {data[:60]!r}"
            return
        self._take(told, now_s, "delta")

    def whole(self, body: bytes, now_s: float) -> None:
        """An answer that was not streamed: nothing is known of its first token."""
        try:
            told = json.loads(body)
        except (ValueError, RecursionError):
            self._sample.error = f"the answer is not JSON: {body[:60]!r}"
            return
        self._take(told, now_s, "message")
        self.ended = True
        self._sample.unstreamed = True
        self._sample.first_s = self._sample.visible_s = None
        del self._sample.chunk_s[:]

    def piece(self, content: str, now_s: float) -> None:
        """A piece of the answer that holds a token, whose text may be empty."""
        self._sample.arrived(now_s, self._visible(content))

    def _take(self, told: Any, now_s: float, part: str) -> None:
        try:
            self._read(told if isinstance(told, dict) else {}, now_s, part)
        except (AttributeError, TypeError):  # some value is of another type than OpenAI's
            self._sample.error = f"this is no answer in OpenAI's form: {json.dumps(told)[:80]}"

    def _read(self, told: dict[str, Any], now_s: float, part: str) -> None:
        if "error" in told and told["error"]:
            self._sample.error = error_text(told)
        for choice in told.get("choices") or ():
            piece = choice.get(part) or {}
            content = choice.get("text") if "text" in choice else piece.get("content")
            if content:
                self.piece(content, now_s)
            elif any(piece.get(name) for name in REASONING):
                self._sample.thought = True
                self._sample.arrived(now_s, visible=False)
            elif piece.get("tool_calls"):
                self._sample.arrived(now_s)
            reason = choice.get("finish_reason")
            self._sample.finish_reason = reason if isinstance(reason, str) and reason else self._sample.finish_reason
        if told.get("usage"):
            count(self._sample, told["usage"])

    def _visible(self, content: str) -> bool:
        """Whether a reader who is not shown what stands between <think> and </think> sees any of this."""
        if self._hidden is None:
            start = (self._tail + content).lstrip()
            if THINK.startswith(start[: len(THINK)]) and len(start) < len(THINK):
                self._tail += content
                return False
            self._hidden = start.startswith(THINK)
            self._sample.thought |= self._hidden
            content, self._tail = start if self._hidden else self._tail + content, ""
        if self._hidden:
            self._tail += content
            _, mark, after = self._tail.partition(THOUGHT)
            if not mark:
                self._tail = self._tail[-len(THOUGHT) :]
                return False
            self._hidden, self._tail, self._blank = False, "", True
            content = after
        if self._keep:
            self._texts.append(content)
        self._blank = self._blank and not content.strip()
        return not self._blank


def count(sample: Sample, usage: Mapping[str, Any]) -> None:
    """A `usage` object's figures; what is no number of tokens is passed over."""
    sample.num_prompt = tokens(usage, "prompt_tokens", sample.num_prompt)
    sample.num_output = tokens(usage, "completion_tokens", sample.num_output)
    sample.num_cached = tokens(usage.get("prompt_tokens_details") or {}, "cached_tokens", None) or 0
    sample.num_reasoning = tokens(usage.get("completion_tokens_details") or {}, "reasoning_tokens", None) or 0


def tokens(told: Mapping[str, Any], name: str, otherwise: int | None) -> int | None:
    value = told.get(name)
    return value if isinstance(value, int) and value >= 0 else otherwise


def error_text(told: Any) -> str:
    """What an error says, in whichever of the usual shapes."""
    error = told.get("error", told) if isinstance(told, dict) else told
    message = error.get("message", error.get("detail", error)) if isinstance(error, dict) else error
    text = "" if message is None else str(message).encode("utf-8", "replace").decode()  # half of a surrogate pair could not be shown
    return text.strip()[:300] or NO_REASON
