"""One choice of a conversation's answer on its way out: what each delta adds to it, and which of its tokens are reasoning."""
from collections.abc import Sequence
from typing import Any

from penstock.serve.api.logprobs import chat_rows
from penstock.serve.api.parts import Desk
from penstock.serve.api.rendering import Rendered
from penstock.serve.api.wish import Wish
from penstock.serve.engine.requests import Delta
from penstock.serve.text.answer import AnswerParser, ContentDelta, Event, ReasoningDelta, ToolCallStart
from penstock.serve.text.hidden import HiddenTokens
from penstock.serve.text.thought import ThoughtTokens


class Choice:
    """One choice on its way out."""

    def __init__(self, desk: Desk, wish: Wish, prompt: Rendered, prompt_end: Sequence[int]) -> None:
        """`prompt_end`: the last of the prompt's tokens that show."""
        self.num_tokens = 0
        self.begun = False
        self._tokenizer = desk.parts.tokenizer
        self._num_top = wish.num_top
        reasoning, tools = desk.parts.reasoning_parser, desk.parts.tool_parser if wish.functions is not None else None
        calls = None if tools is None else tools(sure=wish.sure_of_calls, functions=wish.functions)
        openings = () if tools is None or wish.sure_of_calls else tools.openings  # a grammar ends thoughts itself
        thinker = None if reasoning is None else reasoning(prompt.text, prompt.continued, openings)
        self._parser = AnswerParser(thinker, calls)
        skip = wish.params.skip_special_tokens
        self._thought = None if thinker is None else ThoughtTokens(
            self._tokenizer.detokenizer(skip, prompt_end), thinker, wish.hidden)
        self._hidden = HiddenTokens(self._tokenizer.detokenizer(skip, prompt_end), wish.hidden) if wish.hidden else None
        self._only_calls = wish.only_calls
        self._called = False
        self._thinks = False  # or is known to have thought, if at all

    def added(self, delta: Delta) -> list[Event]:
        """What the delta adds to the message."""
        self.num_tokens += len(delta.token_ids)
        if self._thought is not None:
            self._thought.push(delta.token_ids)
        if self._hidden is not None:
            self._hidden.push(delta.token_ids)
        found = self._parser.push(delta.text if self._hidden is None else self._hidden.cut(delta.text))
        if delta.finish_reason is not None:
            found += self._parser.finish(ended_itself(delta))
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
        return "tool_calls" if self._called and ended_itself(delta) else delta.finish_reason


def ended_itself(delta: Delta) -> bool:
    """Whether the answer is neither cut off nor ended by a stop string."""
    return delta.finish_reason == "stop" and not isinstance(delta.stop_reason, str)
