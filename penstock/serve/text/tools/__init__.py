"""Tool-call parsers, by the name of the format that the model writes: text in, content and calls out, while it comes.

    class ToolParser:
        markup: ClassVar[tuple[str, ...]]        # tags that the text must come with, also where they are special tokens
        openings: ClassVar[Openings]             # what calls and nothing else begin with, if there is such a thing
        @classmethod
        def suits(cls, template: str) -> bool    # whether a chat template's source may ask for this format: see detect.py
        @classmethod
        def rules(cls, wanted: Wanted) -> str    # the format as a grammar: see rules.py
        def __init__(self, new_id: Callable[[], str] = ..., sure: bool = False, functions: Sequence[Function] = ())
        def push(self, text: str) -> list[Event]                 # ContentDelta, ToolCallStart, ToolCallArguments
        def finish(self, ended: bool = True) -> list[Event]      # `ended`: the text ended itself, and was not cut off

One parser reads one answer. Non-streaming is one push and finish: whatever the pushes, the events add up to the same. Text that
is no markup is passed on at once, markup never is, and white space between the two belongs to the markup. What begins like a
call and is none, or is cut off, is given back as content, character by character, unless its arguments are already on their
way (see `calls.HOLD`): then they stay as they are, and what follows is content. `new_id` makes the ids of calls. `sure`: a grammar keeps
the answer to the format, so that a call may be told of as soon as its arguments begin. `functions`: those that the model knows, though it
may call others. Of two that suit a template which writes no calls itself, the first in the table is chosen: what suits many comes last.
"""
from penstock.core.registry import Table

TABLE = Table("tool parser", {
    "deepseek_v3": "penstock.serve.text.tools.deepseek_v3:DeepSeekV3Parser",
    "deepseek_v31": "penstock.serve.text.tools.deepseek_v31:DeepSeekV31Parser",
    "deepseek_v32": "penstock.serve.text.tools.deepseek_v32:DeepSeekV32Parser",
    "deepseek_v4": "penstock.serve.text.tools.deepseek_v4:DeepSeekV4Parser",
    "glm45": "penstock.serve.text.tools.glm45:Glm45Parser",
    "granite": "penstock.serve.text.tools.granite:GraniteParser",
    "harmony": "penstock.serve.text.tools.harmony:HarmonyCallParser",
    "hunyuan_a13b": "penstock.serve.text.tools.hunyuan_a13b:HunyuanA13BParser",
    "internlm2": "penstock.serve.text.tools.internlm2:InternLM2Parser",
    "kimi_k2": "penstock.serve.text.tools.kimi_k2:KimiK2Parser",
    "lfm2": "penstock.serve.text.tools.lfm2:Lfm2Parser",
    "llama3_json": "penstock.serve.text.tools.llama3_json:Llama3JsonParser",
    "longcat": "penstock.serve.text.tools.longcat:LongCatParser",
    "minimax_m2": "penstock.serve.text.tools.minimax_m2:MiniMaxM2Parser",
    "mistral": "penstock.serve.text.tools.mistral:MistralParser",
    "nemotron": "penstock.serve.text.tools.nemotron:NemotronParser",
    "olmo3": "penstock.serve.text.tools.olmo3:Olmo3Parser",
    "phi4_mini": "penstock.serve.text.tools.phi4_mini:Phi4MiniParser",
    "pythonic": "penstock.serve.text.tools.pythonic:PythonicParser",
    "qwen3_coder": "penstock.serve.text.tools.qwen3_coder:Qwen3CoderParser",
    "seed_oss": "penstock.serve.text.tools.seed_oss:SeedOssParser",
    "xlam": "penstock.serve.text.tools.xlam:XlamParser",
    "hermes": "penstock.serve.text.tools.hermes:HermesParser",
})
