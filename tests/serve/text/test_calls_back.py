"""Calls on their way back: a conversation with calls and their results, as a template in the manner of gpt-oss's shows it."""
import copy
from typing import Any

import pytest

from penstock.core.errors import RequestError
from penstock.serve.text import harmony
from penstock.serve.text.chat import ChatTemplate
from penstock.serve.text.reasoning.harmony import HarmonyParser
from penstock.serve.text.tools.harmony import HarmonyCallParser
from tests.serve.text import templates

USER = {"role": "user", "content": "Rome?"}
ASKED = "<|start|>user<|message|>Rome?<|end|>"
NEXT = "<|start|>assistant"


def called(name: str, arguments: str = "{}", call_id: str = "") -> dict[str, Any]:
    return {"id": call_id or f"call_{name}", "type": "function", "function": {"name": name, "arguments": arguments}}


def result(name: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{name}", "content": content}


def says(*calls: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": list(calls), **more}


def shown(name: str, arguments: str = "{}") -> str:
    return f"{NEXT} to=functions.{name}<|channel|>commentary json<|message|>{arguments}<|call|>"


def answered(name: str, content: str) -> str:
    return f'<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>"{content}"<|end|>'


def thought(text: str) -> str:
    return f"{NEXT}<|channel|>analysis<|message|>{text}<|end|>"


def render(*messages: dict[str, Any], source: str = templates.HARMONY) -> str:
    return ChatTemplate({"default": source}, {}).render(messages)


def test_the_templates_format_is_found() -> None:
    assert HarmonyParser.suits(templates.HARMONY) and HarmonyCallParser.suits(templates.HARMONY)
    assert harmony.open_message(render(USER)) is None


@pytest.mark.parametrize(("message", "text"), [
    (says(called("look", '{"at": "Ærø"}')), shown("look", '{"at": "Ærø"}')),
    (says(called("look", ""), content=""), shown("look")),
    (says(called("look"), reasoning_content="Hm."), thought("Hm.") + shown("look")),
    (says(called("look"), content="I look."), thought("I look.") + shown("look")),
    (says(called("look"), reasoning_content="Hm.", content="I look."), thought("Hm.\nI look.") + shown("look")),
])
def test_a_call_and_its_result(message: dict[str, Any], text: str) -> None:
    assert render(USER, message, result("look", "Sunny")) == ASKED + text + answered("look", "Sunny") + NEXT


def test_each_of_several_calls_is_shown_with_its_own_result() -> None:
    both = says(called("look"), called("hear", '{"n": 1}'), reasoning_content="Hm.")
    messages = [USER, both, result("hear", "Birds"), result("look", "Sunny"), {"role": "assistant", "content": "Fine."}, USER]
    before = copy.deepcopy(messages)
    text = shown("look") + answered("look", "Sunny") + shown("hear", '{"n": 1}') + answered("hear", "Birds")
    assert render(*messages[:4]) == ASKED + thought("Hm.") + text + NEXT
    assert render(*messages) == f"{ASKED}{text}{NEXT}<|channel|>final<|message|>Fine.<|end|>{ASKED}{NEXT}"
    assert messages == before


def test_results_that_name_no_call_are_not_lost() -> None:
    messages = [says(called("look"), called("hear")), {"role": "tool", "content": "a"}, result("look", "b"), result("smell", "c")]
    assert render(*messages) == shown("look") + answered("look", "b") + shown("hear") + answered("hear", "a") + answered("hear", "c") + NEXT


def test_templates_that_show_all_calls_or_refuse_several_get_them_together() -> None:
    several = says(called("look", "{}", "abcdefghi"), called("hear", "{}", "abcdefghj"))
    text = render(USER, several, source=templates.CHATML_TOOLS)
    assert text.count("<|im_start|>assistant") == 2 and text.count("<tool_call>") == 2  # one of them is the prompt's end
    with pytest.raises(RequestError, match="One call at a time"):
        render(USER, several, source=templates.LLAMA3)


def test_content_beside_thinking_stays_where_the_template_does_not_refuse_it() -> None:
    text = render(USER, says(called("look"), reasoning_content="Hm.", content="I look."), source=templates.CHATML_TOOLS)
    assert "<think>\nHm.\n</think>\n\nI look.\n<tool_call>" in text
