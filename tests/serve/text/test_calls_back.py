"""Calls on their way back: a conversation with calls and their results, as a template in the manner of gpt-oss's shows it."""
import copy
from typing import Any

import pytest

from penstock.core.errors import RequestError
from penstock.serve.text import harmony
from penstock.serve.text.chat import ChatTemplate
from penstock.serve.text.reasoning.harmony import HarmonyParser
from penstock.serve.text.tools.harmony import HarmonyCallParser
from penstock.serve.text.tools.hermes import HermesParser
from tests.serve.text import templates
from tests.serve.text.tools.reading import read

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


SHOWS = "{% for call in m.tool_calls or [] %}({{ call.function.name }}){% endfor %}{% endfor %}"
GLUES = "{% for m in messages %}{% set content = m.content %}{{ '<' + m.role + '>' + content }}" + SHOWS
ASKS = "{% for m in messages %}{% if m['content'] is none %}nothing{% else %}{{ '<' + m['content'] + '>' }}{% endif %}" + SHOWS
PARTS = "{% for m in messages %}{% for part in m.content %}{{ '<' + part.text + '>' }}{% endfor %}" + SHOWS


@pytest.mark.parametrize(("source", "text"), [(GLUES, "<assistant>(f)(g)"), (ASKS, "nothing(f)(g)"), (PARTS, "(f)(g)")])
@pytest.mark.parametrize("message", [says(called("f"), called("g")), {**says(called("f"), called("g")), "content": None}])
def test_calls_without_content_are_shown_by_templates_that_expect_some(source: str, text: str, message: dict[str, Any]) -> None:
    assert render(message, source=source) == text


@pytest.mark.parametrize(("source", "text"), [(GLUES, "<assistant>(f)(g)"), (ASKS, "nothing(f)(g)")])
@pytest.mark.parametrize("content", ["", []])
def test_empty_content_beside_calls_is_none(source: str, text: str, content: Any) -> None:
    assert render({**says(called("f"), called("g")), "content": content}, source=source) == text


def test_each_of_the_messages_that_calls_are_parted_into_has_content() -> None:
    source = "{% for m in messages %}{{ '<' + m.content + '>' + m.tool_calls[0].function.name }}{% endfor %}"
    assert render(says(called("f"), called("g"), content="Both."), source=source) == "<Both.>f<>g"


def test_calls_that_the_template_does_not_show_are_not_passed_over() -> None:
    with pytest.raises(RequestError, match=r"messages\[0\].tool_calls\[0\] cannot be given to this model"):
        render(says(called("f")), source="{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}")


def test_an_empty_list_of_calls_is_none() -> None:
    message = {"role": "assistant", "content": "Hi."}
    assert render({**message, "tool_calls": []}, source=templates.LLAMA3) == render(message, source=templates.LLAMA3)


def test_a_message_with_calls_cannot_be_gone_on_with() -> None:
    template = ChatTemplate({"default": GLUES}, {})
    with pytest.raises(RequestError, match="needs a last message with text"):
        template.render([says(called("f"), content="So")], continue_final_message=True, add_generation_prompt=False)


def test_arguments_that_parsers_give_out_are_taken_back() -> None:
    arguments = f'{{"a": {{"b": 1, "b": 2}}, "c": 1e999, "d": -{"1" * 5000}}}'
    given = read(HermesParser(), f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>').tool_calls[0].arguments
    assert given == arguments
    assert render(says(called("f", given))).count('{"a": {"b": 2}, "c": Infinity, "d": -Infinity}') == 1


def test_reasoning_under_two_names_must_be_the_same() -> None:
    message = {"role": "assistant", "content": "Hi.", "reasoning_content": "Hm", "reasoning": "Hm"}
    assert render(message, source="{{ messages[0].thinking }}") == "Hm"
    with pytest.raises(RequestError, match=r"messages\[0\].reasoning and messages\[0\].reasoning_content differ") as refused:
        render({**message, "reasoning": "Oh"})
    assert refused.value.param == "messages"
