"""Reasoning parsers, by the name of the format that the model writes: text in, reasoning and content out, while it comes.

    class ReasoningParser:
        markup: ClassVar[tuple[str, ...]]        # tags that the text must come with, also where they are special tokens
        @classmethod
        def suits(cls, template: str) -> bool    # whether a chat template's source speaks of this format
        @classmethod
        # Lark rules of `reasoning`, which comes before a text that follows a grammar, and `before_calls`, which comes before what a tool
        # parser's rules are of; `special`: see tools.rules.Wanted
        def rules(cls, prompt: str, special: Callable[[str], int | None] = ..., continued: str = "") -> str
        # the rendered prompt, which may already have opened the reasoning; of the message that the answer continues, if any, the text;
        # where the model may call functions, the tool parser's `openings`, at which a thought that has no end is over
        def __init__(self, prompt: str = "", continued: str = "", calls: Openings = ())
        answer_at: int | None                    # characters before the answer: reasoning and its tags; None: it has not begun
        def push(self, text: str) -> list[Event]                 # ReasoningDelta, ContentDelta
        def finish(self, ended: bool = True) -> list[Event]      # `ended`: the text ended itself, and was not cut off

One parser reads one answer. Whatever the pushes, the events add up to the same; text that is no markup is passed on at once, and
white space between the two belongs to the markup.
"""
from penstock.core.registry import Table

TABLE = Table("reasoning parser", {
    "think": "penstock.serve.text.reasoning.think:ThinkParser",
    "harmony": "penstock.serve.text.reasoning.harmony:HarmonyParser",
    "mistral": "penstock.serve.text.reasoning.mistral:MistralThinkParser",
    "seed_oss": "penstock.serve.text.reasoning.seed_oss:SeedThinkParser",
})
