"""Chat templates: messages in, the prompt's text out, byte for byte what transformers' `apply_chat_template` gives."""
from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.clock import Clock, MonotonicClock
from penstock.core.errors import ModelError, RequestError, UsageError
from penstock.serve.text.folder import read_template
from penstock.serve.text.messages import has_calls
from penstock.serve.text.shown import SYSTEMS, ExceededError, Messages, Render, fitted, shows_alone
from penstock.serve.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import jinja2

    from penstock.serve.text.template_form import TemplateForm

MAX_RENDERED = 64 << 20  # characters
MAX_SECONDS = 20.0
RESERVED = ("add_generation_prompt", "continue_final_message", "documents", "messages", "tools")
PRIVATE = re.compile("[\ue000-\uf8ff]")
ADVICE = "send a prompt to /v1/completions, or start with --chat-template FILE"


@dataclass(frozen=True, slots=True)
class Compiled:
    """`shows`: by role, as far as that was asked, whether a system message that is alone shows."""

    template: jinja2.Template
    form: TemplateForm
    shows: dict[str, bool] = field(default_factory=dict)


class ChatTemplate:
    """A model's chat templates. jinja2 is imported when the first one is used or checked.

    `sources`: jinja by name; "tool_use", where there is one, renders requests with tools or calls, "default" all others. Empty: the model
    has none, and every rendering is refused, with `advice`. `special_tokens` by role (bos_token, ...) are variables of the templates.
    """

    def __init__(
        self, sources: Mapping[str, str], special_tokens: Mapping[str, str], clock: Clock | None = None, advice: str = ADVICE
    ) -> None:
        self.sources = dict(sources)
        self._special_tokens = dict(special_tokens)
        self._advice = advice
        self._clock = clock or MonotonicClock()

    @classmethod
    def of(cls, tokenizer: Tokenizer, path: Path | None = None, advice: str = ADVICE) -> ChatTemplate:
        """The tokenizer's own templates, or the one in the file `path`. Raises UsageError when that cannot be read."""
        if path is None:
            return cls(tokenizer.facts.chat_templates, tokenizer.facts.special_tokens, advice=advice)
        try:
            return cls({"default": read_template(path)}, tokenizer.facts.special_tokens)
        except ModelError as error:
            raise UsageError(str(error)) from None

    def check(self) -> None:
        """Compiles the templates, where there are any, so that no request has to. Raises ModelError when one is not jinja."""
        if self.sources:
            _ = self.compiled

    def require(self) -> None:
        """Raises RequestError when there is none that renders a conversation, ModelError when one is not jinja."""
        self._choose((), None)

    def variables(self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None) -> frozenset[str]:
        """The names that the template of such a request may read from outside: `tools`, `documents`, `enable_thinking`, ... Empty without
        a template."""
        return self._choose(messages, tools).form.variables if self.sources else frozenset()

    def render(
        self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None = None, /, *,
        add_generation_prompt: bool = True, continue_final_message: bool = False, documents: Sequence[Mapping[str, Any]] | None = None,
        **template_kwargs: Any,
    ) -> str:
        """The prompt. With `continue_final_message` it ends where the last message does, so that the model goes on with it.

        Raises RequestError when there is no template, when the template refuses the messages or fails on them, and when it
        prints more than MAX_RENDERED characters or takes longer than MAX_SECONDS.
        """
        if continue_final_message and add_generation_prompt:
            raise RequestError(
                "continue_final_message leaves the last message open and cannot go with add_generation_prompt: set one to false",
                param="continue_final_message",
            )
        check_names(template_kwargs)
        chosen = self._choose(messages, tools)
        run = self._renderer(chosen, tools, documents, add_generation_prompt, **template_kwargs)
        shaped = fitted(messages, chosen.form, run, not self._shows_alone(messages, chosen))
        ending = Ending(shaped) if continue_final_message else None
        text = run(shaped if ending is None else ending.messages)
        return text if ending is None else ending.cut(text)

    def _shows_alone(self, messages: Messages, chosen: Compiled) -> bool:
        """Whether a system message, if these begin with one, shows where it is alone. Tried once, without anything else of a request."""
        role = messages[0].get("role") if messages else None
        if role not in SYSTEMS:
            return True
        if role not in chosen.shows:
            chosen.shows[role] = shows_alone(role, chosen.form, self._renderer(chosen))
        return chosen.shows[role]

    def _renderer(
        self, chosen: Compiled, tools: Sequence[Mapping[str, Any]] | None = None, documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True, /, **template_kwargs: Any,
    ) -> Render:
        if tools is None and chosen is self.compiled.get("tool_use"):  # which goes through them
            tools = []
        return partial(self._run, chosen.template, {
            **self._special_tokens, **template_kwargs,
            "tools": None if tools is None else [{key: value for key, value in tool.items() if key != "cache_control"} for tool in tools],
            "documents": None if documents is None else [dict(document) for document in documents],
            "add_generation_prompt": add_generation_prompt,
        })

    def _choose(self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None) -> Compiled:
        if not self.sources:
            raise RequestError(f"the model has no chat template: {self._advice}", param="messages")
        compiled = self.compiled
        if "tool_use" in compiled and (tools is not None or has_calls(messages)):
            return compiled["tool_use"]
        if "default" not in compiled:
            raise RequestError(f"the model has no default chat template, only {', '.join(compiled)}: {self._advice}", param="messages")
        return compiled["default"]

    @cached_property
    def compiled(self) -> Mapping[str, Compiled]:
        """The templates by name, compiled once. Raises ModelError when one is not jinja."""
        from jinja2 import TemplateSyntaxError

        from penstock.serve.text.sandbox import make_environment
        from penstock.serve.text.template_form import form_of

        environment = make_environment()
        compiled = {}
        for name, source in self.sources.items():
            try:
                compiled[name] = Compiled(environment.from_string(source), form_of(source, environment))
            except (TemplateSyntaxError, SyntaxError, RecursionError) as error:  # SyntaxError: of the Python that it becomes
                line = f" at line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
                raise ModelError(f"the chat template {name!r} is not jinja{line}: {error}") from None
        return compiled

    def _run(self, template: jinja2.Template, variables: Mapping[str, Any], messages: Messages) -> str:
        from penstock.serve.text.sandbox import CHECK

        until = self._clock.now() + MAX_SECONDS
        texts: list[str] = []
        size = 0

        def check() -> None:
            if self._clock.now() > until:
                raise ExceededError(f"the chat template takes longer than {MAX_SECONDS:g} s", param="messages")

        try:
            for text in template.generate({**variables, "messages": messages, CHECK: check}):
                texts.append(text)
                size += len(text)
                if size > MAX_RENDERED:
                    raise ExceededError(f"the chat template prints more than {MAX_RENDERED} characters", param="messages")
                check()
        except RequestError:
            raise
        except Exception as error:  # whatever a stranger's program can do wrong
            raise RequestError(f"the chat template cannot render these messages: {reason(error)}", param="messages") from None
        return "".join(texts)


def check_names(variables: Iterable[str]) -> None:
    """Raises RequestError where variables of a request would stand for what has a field of its own."""
    for name in variables:
        if name in RESERVED:
            raise RequestError(f"chat_template_kwargs must not hold {name!r}, a field of its own", param="chat_template_kwargs")


def check_file(path: Path) -> None:
    """Raises UsageError for a template that cannot be read or is not jinja."""
    try:
        ChatTemplate({"default": read_template(path)}, {}).check()
    except ModelError as error:
        raise UsageError(f"--chat-template {path} cannot be used: {error}") from None


class Ending:
    """Finds where the last message ends in the rendered text, by a mark behind its own. The mark's blank shows whether ends are trimmed. A
    message with calls does not end with its text."""

    def __init__(self, messages: Sequence[Mapping[str, Any]]) -> None:
        self._mark = absent_character(messages) + " "
        content = messages[-1].get("content") if messages and not messages[-1].get("tool_calls") else None
        if isinstance(content, list) and content:
            marked: Any = [*content[:-1], {**content[-1], "text": content[-1]["text"] + self._mark}]
        elif isinstance(content, str):
            marked = content + self._mark
        else:
            raise RequestError("continue_final_message needs a last message with text to go on with", param="continue_final_message")
        self.messages = [*messages[:-1], {**messages[-1], "content": marked}]

    def cut(self, text: str) -> str:
        """The text up to the end of the last message. Raises RequestError when the template does not show it."""
        at = text.rfind(self._mark[0])
        if at < 0:
            raise RequestError("continue_final_message: the chat template does not show the last message", param="continue_final_message")
        return text[:at] if text.startswith(self._mark, at) else text[:at].rstrip()


def absent_character(value: Any) -> str:
    """A private-use character that appears nowhere in the value: a mark that nobody can have written. Raises RequestError where all do."""
    written = frozenset(PRIVATE.findall(json.dumps(value, ensure_ascii=False, default=str)))
    found = next((char for char in map(chr, range(0xE000, 0xF900)) if char not in written), None)
    if found is None:
        raise RequestError("the request has all of Unicode's 6400 private-use characters from U+E000 to U+F8FF; leave one out", "messages")
    return found


def reason(error: Exception) -> str:
    """An error's message, in one line."""
    return " ".join((str(error) or type(error).__name__).split())
