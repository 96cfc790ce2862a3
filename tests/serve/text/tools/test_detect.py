"""Which format a chat template asks for."""
from typing import Any

import pytest

from penstock.core.clock import VirtualClock
from penstock.serve.text.chat import MAX_SECONDS, ChatTemplate
from penstock.serve.text.tools import TABLE
from penstock.serve.text.tools.detect import detected
from tests.serve.text.templates import CHATML_TOOLS, GEMMA, HARMONY, LLAMA3, MISTRAL, ZEPHYR

TOOLS = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
ASKED = "{% for message in messages %}<{{ message.role }}>{{ message.content or '' }}"
CALLS = "{% for call in message.tool_calls or [] %}{% set f = call.function %}"
ENDS = "{% endfor %}</s>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


def shown(call: str) -> str:
    return f"{TOOLS}{ASKED}{CALLS}{call}{ENDS}"


def listed(begin: str, end: str) -> str:
    calls = f"{CALLS}{{{{ f | tojson }}}}{{{{ ', ' if not loop.last }}}}{{% endfor %}}"
    return f"{TOOLS}{ASKED}{{% if message.tool_calls %}}{begin}{calls}{end}{{% endif %}}{ENDS.removeprefix('{% endfor %}')}"


NAMED = '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}'
ITEMS = "{% for key, value in f.arguments | items %}"
TEXT = "{{ value if value is string else value | tojson }}"
INVOKE = ("<{{ mark }}invoke name=\"{{ f.name }}\">\n" + ITEMS + "<{{ mark }}parameter name=\"{{ key }}\" string=\""
          "{{ 'true' if value is string else 'false' }}\">" + TEXT + "</{{ mark }}parameter>\n{% endfor %}</{{ mark }}invoke>\n")
TEMPLATES: dict[str, tuple[str | None, str]] = {
    "hermes": ("hermes", CHATML_TOOLS), "llama3_json": ("llama3_json", LLAMA3), "mistral": ("mistral", MISTRAL),
    "harmony": ("harmony", HARMONY), "no tools": (None, ZEPHYR), "no tools, parts": (None, GEMMA),
    "qwen3_coder": ("qwen3_coder", shown(
        f"<tool_call>\n<function={{{{ f.name }}}}>\n{ITEMS}<parameter={{{{ key }}}}>\n{TEXT}\n</parameter>\n{{% endfor %}}</function>\n"
        "</tool_call>")),
    "seed_oss": ("seed_oss", "{% set begin = '<seed:tool_call>' %}" + shown(
        f"{{{{ begin }}}}<function={{{{ f.name }}}}>\n{ITEMS}<parameter={{{{ key }}}}>{TEXT}</parameter>\n{{% endfor %}}</function>")),
    "glm45": ("glm45", shown(
        f"\n<tool_call>{{{{ f.name }}}}\n{ITEMS}<arg_key>{{{{ key }}}}</arg_key>\n<arg_value>{TEXT}</arg_value>\n{{% endfor %}}"
        "</tool_call>")),
    "minimax_m2": ("minimax_m2", "{% set begin, mark = '<minimax:tool_call>\n', '' %}" + shown(
        "{{ begin }}" + INVOKE.replace(" string=\"{{ 'true' if value is string else 'false' }}\"", ""))),
    "deepseek_v32": ("deepseek_v32", "{% set mark = '｜DSML｜' %}" + shown("<{{ mark }}function_calls>\n" + INVOKE)),
    "deepseek_v4": ("deepseek_v4", "{% set mark = '｜DSML｜' %}" + shown("<{{ mark }}tool_calls>\n" + INVOKE)),
    "kimi_k2": ("kimi_k2", shown(
        "<|tool_call_begin|>{{ call.id }}<|tool_call_argument_begin|>{{ f.arguments | tojson }}<|tool_call_end|>")),
    "longcat": ("longcat", shown("<longcat_tool_call>\n" + NAMED + "\n</longcat_tool_call>")),
    "internlm2, with Python's quotes": ("internlm2", shown(
        '<|action_start|><|plugin|>\n{"name": "{{ f.name }}", "parameters": {{ f.arguments | string }}}<|action_end|>')),
    "lfm2": ("lfm2", shown("<|tool_call_start|>[{{ f.name }}(" + ITEMS + "{{ ', ' if not loop.first }}{{ key }}="
                           "{{ \"'\" ~ value ~ \"'\" if value is string else value }}{% endfor %})]<|tool_call_end|>")),
    "olmo3": ("olmo3", shown("<function_calls>\n{{ f.name }}(" + ITEMS + "{{ ', ' if not loop.first }}{{ key }}={{ value | tojson }}"
                             "{% endfor %})\n</function_calls>")),
    "lfm2, by its tools": ("lfm2", "<|tool_list_start|>" + TOOLS + ZEPHYR),
    "granite, by what it says": ("granite", "Respond with <|tool_call|> and a JSON list." + TOOLS + ZEPHYR),
    "phi4_mini, by its tag": ("granite", shown("<|tool_call|>" + NAMED + "<|/tool_call|>")),
    "phi4_mini, which shows its calls as other JSON": ("phi4_mini", "{# functools[...] #}" + shown(NAMED)),
    "hunyuan_a13b": ("hunyuan_a13b", "{# within <tool_call></tool_call>: arguments #}" + listed("<tool_calls>[", "]</tool_calls>")),
    "minimax_m1": ("hunyuan_a13b", shown("<tool_calls>\n" + NAMED + "\n</tool_calls>")),
    "nemotron": ("nemotron", listed("<TOOLCALL>[", "]</TOOLCALL>")),
    "xlam": ("xlam", listed("[", "]")),
    "a list between Hermes's tags": ("granite", listed("<tool_call>[", "]</tool_call>")),
    "something else between Hermes's tags": (None, shown("<tool_call>{{ f.name }}: {{ f.arguments | tojson }}</tool_call>")),
    "Qwen's, of which it shows none": ("qwen3_coder", "{# <tool_call> <function= <parameter= arguments #}" + ZEPHYR),
    "JSON without tags": ("llama3_json", shown(NAMED)),
    "nothing that is known": (None, shown("{{ f.name }}")),
}


@pytest.mark.parametrize(("name", "source"), TEMPLATES.values(), ids=TEMPLATES.keys())
def test_the_format_is_the_one_that_its_calls_are_written_in(name: str | None, source: str) -> None:
    template = ChatTemplate({"default": source}, {"bos_token": "<s>", "eos_token": "</s>"})
    parsers: dict[Any, str] = {TABLE.load(each): each for each in TABLE}
    assert parsers.get(detected(template, [*parsers])) == name


def test_a_template_that_takes_too_long_is_tried_once() -> None:
    class Slow(VirtualClock):
        def now(self) -> float:
            self.advance(MAX_SECONDS / 10)
            return super().now()

    clock = Slow()
    template = ChatTemplate({"default": "{% for each in range(99) %}x{% endfor %}" + CHATML_TOOLS}, {}, clock)
    assert detected(template, [TABLE.load(each) for each in TABLE]) is TABLE.load("hermes")
    assert clock.now() < 2 * MAX_SECONDS
