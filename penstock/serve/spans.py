"""A conversation's answer in spans, as it comes: which part of its text is reasoning, and which came of drafts."""
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from penstock.serve.engine.requests import Delta, Request
from penstock.serve.text.answer import AnswerParser, ContentDelta, Event, Parser, ReasoningDelta
from penstock.serve.text.drafted import DraftedText
from penstock.serve.text.hidden import HiddenTokens
from penstock.serve.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Span:
    text: str
    drafted: bool = False
    reasoning: bool = False


class Spans:
    """One answer. Fed with its deltas in order. `content`: what of its text is no reasoning, so far."""

    def __init__(self, tokenizer: Tokenizer, request: Request, reasoning: Parser | None, hidden: Collection[int]) -> None:
        """`hidden`: as `with_markup` has it."""
        skip = request.params.skip_special_tokens
        self._drafted = DraftedText(tokenizer, skip, request.token_ids)
        self._hidden = HiddenTokens(tokenizer.detokenizer(skip, request.token_ids), hidden)
        self._parser = AnswerParser(reasoning)
        self.content = ""

    def push(self, delta: Delta) -> list[Span]:
        """What the delta adds. Text that the parser held back counts as what made it certain."""
        self._hidden.push(delta.token_ids)
        found: list[Span] = []
        for text, drafted in self._drafted.push(delta.token_ids, delta.drafted, delta.text):
            found += spans_of(self._parser.push(self._hidden.cut(text)), drafted)
        if delta.finish_reason is not None:
            found += spans_of(self._parser.finish(), False)
        self.content += "".join([span.text for span in found if not span.reasoning])
        return found


def spans_of(events: Sequence[Event], drafted: bool) -> Iterator[Span]:
    for event in events:
        if isinstance(event, ContentDelta | ReasoningDelta):
            yield Span(event.text, drafted, isinstance(event, ReasoningDelta))
