"""Chat templates: byte for byte what transformers renders, and what a template or a message may not do."""
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from penstock.core.clock import VirtualClock
from penstock.core.errors import ModelError, RequestError, UsageError
from penstock.serve.text.chat import MAX_SECONDS, ChatTemplate
from penstock.serve.text.facts import TokenizerFacts
from penstock.serve.text.tokenizer import Tokenizer
from tests.serve.text import templates
from tests.serve.text.makers import byte_level

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
THEIRS = PreTrainedTokenizerFast(tokenizer_object=byte_level(), **SPECIAL)
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "weather", "description": 'The weather\'s "state" in <Tromsø>', "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "parameters": {}}},
]
SYSTEM = {"role": "system", "content": "  Be kind.\n"}
USER = {"role": "user", "content": " What's <b>up</b> in Ærø? 🙂 "}
ASSISTANT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nNot much. "}
CALLING = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {"city": "Tromsø", "days": 2}}}]}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "content": '{"degrees": -3}'}
REASONED = {"role": "assistant", "content": "Cold.", "reasoning_content": "\nIt is winter.\n"}
texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one": [USER],
    "system": [SYSTEM, USER],
    "turns": [USER, ASSISTANT, {"role": "user", "content": "And now?"}],
    "system_turns": [SYSTEM, USER, ASSISTANT, USER],
    "calls": [SYSTEM, USER, CALLING, RESULT, RESULT],
    "reasoning": [USER, CALLING, RESULT, REASONED],
    "answer_last": [USER, REASONED],
    "parts": [{"role": "user", "content": [{"type": "text", "text": " Look: "}, {"type": "text", "text": "here."}]}],
}


def template(source: str, **special: str) -> ChatTemplate:
    return ChatTemplate({"default": source}, special or SPECIAL)


def as_openai(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tool calls' arguments as JSON text, which is how OpenAI's clients send them."""
    messages = copy.deepcopy(messages)
    for message in messages:
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return messages


def oracle(source: str, messages: list[dict[str, Any]], tools: Any = None, **options: Any) -> str | None:
    """transformers' rendering; None when it refuses, or passes over calls or their results."""
    try:
        text = str(THEIRS.apply_chat_template(messages, tools=tools, chat_template=source, tokenize=False, **options))
    except Exception:
        return None
    shows = {"tool_calls": '"days": 2', "tool_call_id": "degrees"}
    return text if all(shown in text for key, shown in shows.items() if any(key in message for message in messages)) else None


def check_same(source: str, messages: list[dict[str, Any]], tools: Any = None, **options: Any) -> str | None:
    want = oracle(source, messages, tools, **options)
    if want is None:
        with pytest.raises(RequestError):
            template(source).render(as_openai(messages), tools, **options)
    else:
        assert template(source).render(as_openai(messages), tools, **options) == want
    return want


def cases() -> Iterator[Any]:
    for style in templates.ALL:
        for name in CONVERSATIONS:
            if name != "parts" or style in ("gemma", "loops"):  # the others take strings: see the test of flattening
                yield pytest.param(style, name, id=f"{style}-{name}")


@pytest.mark.parametrize(("style", "conversation"), list(cases()))
def test_renders_as_transformers_does(style: str, conversation: str) -> None:
    source, messages = templates.ALL[style], CONVERSATIONS[conversation]
    for prompted in (True, False):
        check_same(source, messages, add_generation_prompt=prompted)
        check_same(source, messages, TOOLS, add_generation_prompt=prompted, enable_thinking=False, date_string="1 May 2025")


def test_the_oracle_does_not_refuse_everything() -> None:
    for source in templates.ALL.values():
        shown = [oracle(source, each, add_generation_prompt=True) for each in CONVERSATIONS.values()]
        assert sum(each is not None for each in shown) >= 2


@pytest.mark.parametrize("style", templates.ALL)
@settings(max_examples=25)
@given(contents=st.lists(texts, min_size=1, max_size=5), system=st.booleans())
def test_any_text_renders_as_transformers_renders_it(style: str, contents: list[str], system: bool) -> None:
    turns = [{"role": ("user", "assistant")[at % 2], "content": content} for at, content in enumerate(contents)]
    check_same(templates.ALL[style], [SYSTEM, *turns] if system else turns, add_generation_prompt=True)


@pytest.mark.parametrize("style", [style for style in templates.ALL if style != "generation"])
@pytest.mark.parametrize("end", ["Once upon", "Once upon ", "  Once\n", ""])
def test_an_open_last_message_ends_where_transformers_ends_it(style: str, end: str) -> None:
    messages = [USER, {"role": "assistant", "content": end}]
    options = {"continue_final_message": True, "add_generation_prompt": False}
    assert check_same(templates.ALL[style], messages, **options) is not None


def test_an_open_last_message_in_parts() -> None:
    messages = [USER, {"role": "assistant", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two"}]}]
    check_same(templates.GEMMA, messages, continue_final_message=True, add_generation_prompt=False)


@pytest.mark.parametrize(("source", "messages"), [
    ("{{ messages[0].content }}", [USER, ASSISTANT]),
    (templates.CHATML_TOOLS, [USER, CALLING]),
])
def test_what_cannot_be_gone_on_with_is_refused(source: str, messages: list[dict[str, Any]]) -> None:
    with pytest.raises(RequestError) as refused:
        template(source).render(messages, continue_final_message=True, add_generation_prompt=False)
    assert refused.value.param == "continue_final_message"


def test_going_on_and_prompting_exclude_each_other() -> None:
    with pytest.raises(RequestError, match="add_generation_prompt"):
        template(templates.PHI3).render([USER], continue_final_message=True)


def test_documents_reach_the_template() -> None:
    documents = [{"title": "Æ", "text": "a\nb"}]
    assert check_same(templates.LOOPS, [USER], documents=documents, add_generation_prompt=True) is not None


# --- the form of content ---


@pytest.mark.parametrize("style", ["llama3", "phi3", "llama2", "zephyr"])
def test_parts_become_one_string_where_the_template_takes_one(style: str) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]}]
    joined = [{"role": "user", "content": "One.\nTwo."}]
    assert template(templates.ALL[style]).render(parts) == template(templates.ALL[style]).render(joined)


def test_a_string_becomes_a_part_where_the_template_knows_only_parts() -> None:
    assert template(templates.PARTS_ONLY).render([{"role": "user", "content": "hi"}]) == "<user>hi</user>"


@pytest.mark.parametrize("source", [
    "{% for m in messages %}{% for c in m.content[0:] | list %}{{ c.text }}{% endfor %}{% endfor %}",
    "{% for m in messages %}{% set body = m['content'] if m.content else [] %}{% for c in body %}{{ c.text }}{% endfor %}{% endfor %}",
    "{% macro show(body) %}{% for c in body %}{{ c.text }}{% endfor %}{% endmacro %}"
    "{% for m in messages %}{{ show(m.content) }}{% endfor %}",
    "{% macro show(x, body=none) %}{% for c in body or [] %}{{ c.text }}{% endfor %}{% endmacro %}"
    "{% for m in messages %}{{ show(1, body=m.content) }}{% endfor %}",
])
def test_templates_that_go_through_parts_are_recognized(source: str) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert template(source).render(messages) == "ab"


def test_arguments_stay_text_where_the_template_writes_them_itself() -> None:
    messages = as_openai([{**CALLING, "content": "."}])
    assert template(templates.STRING_ARGUMENTS).render(messages) == 'weather({"city": "Troms\\u00f8", "days": 2}).'


@pytest.mark.parametrize(("message", "says"), [
    ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, r"messages\[1\].content\[0\] is of type 'image_url'"),
    ({"role": "user", "content": ["text"]}, r"messages\[1\].content\[0\] is of type 'str'"),
    ({"role": "user", "content": [{"type": "text"}]}, r"messages\[1\].content\[0\] has no text"),
    ({"role": "user", "content": 5}, r"messages\[1\].content must be a string"),
    ({"role": "assistant", "tool_calls": [{"function": {"arguments": "{oops"}}]}, r"messages\[1\].tool_calls\[0\].*JSON that can be read"),
    ({"role": "assistant", "tool_calls": [{"function": {"arguments": "[1]"}}]}, "not a JSON object"),
    ({"role": "assistant", "tool_calls": [{"function": {"arguments": '{"a": NaN}'}}]}, "NaN is no JSON number"),
    ({"role": "assistant", "tool_calls": [{"function": {"arguments": '{"a": -Infinity}'}}]}, "-Infinity is no JSON number"),
])
def test_what_a_template_cannot_be_given_is_refused(message: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match=says) as refused:
        template(templates.CHATML_TOOLS).render([USER, message])
    assert refused.value.param == "messages"


def test_messages_and_tools_are_left_as_they_were() -> None:
    messages, tools = as_openai(CONVERSATIONS["calls"]), copy.deepcopy(TOOLS)
    messages[0]["cache_control"] = tools[0]["cache_control"] = {"type": "ephemeral"}
    before = copy.deepcopy((messages, tools))
    text = template(templates.CHATML_TOOLS).render(messages, tools)
    assert (messages, tools) == before and "cache_control" not in text


# --- which template, which variables ---


def test_requests_with_tools_have_a_template_of_their_own() -> None:
    named = ChatTemplate({"default": "plain", "tool_use": "{{ tools | length }} tools"}, {})
    assert named.render([USER]) == "plain"
    assert named.render([USER], TOOLS) == "2 tools"
    assert named.variables([USER], TOOLS) == named.variables([USER, CALLING], None) == {"tools"}
    assert named.variables([USER], None) == frozenset()


def test_variables_are_what_the_template_reads() -> None:
    assert template(templates.PHI3).variables([], None) == {"messages", "add_generation_prompt", "eos_token"}
    assert template(templates.CHATML_TOOLS).variables([], None) >= {"tools", "enable_thinking"}
    assert ChatTemplate({}, {}).variables([], None) == frozenset()


def test_a_model_without_a_template_says_what_to_do() -> None:
    with pytest.raises(RequestError, match="no chat template.*--chat-template") as refused:
        ChatTemplate({}, {}).render([USER])
    assert refused.value.param == "messages"
    with pytest.raises(RequestError, match="no default chat template, only rag.*--chat-template"):
        ChatTemplate({"rag": "x"}, {}).render([USER])


def test_templates_come_from_the_tokenizer_or_a_file(tmp_path: Path) -> None:
    tokenizer = Tokenizer(byte_level(), TokenizerFacts({"bos_token": "<s>"}, chat_templates={"default": "{{ bos_token }}own"}))
    assert ChatTemplate.of(tokenizer).render([USER]) == "<s>own"
    (tmp_path / "t.jinja").write_text("{{ bos_token }}given")
    assert ChatTemplate.of(tokenizer, tmp_path / "t.jinja").render([USER]) == "<s>given"
    with pytest.raises(UsageError, match="missing.jinja cannot be read"):
        ChatTemplate.of(tokenizer, tmp_path / "missing.jinja")


def test_a_source_that_is_no_template_is_the_models_fault() -> None:
    with pytest.raises(ModelError, match="'default' is not jinja at line 2"):
        _ = template("a\n{% if %}").compiled


@pytest.mark.parametrize("source", [
    "{{ 1 | nofilter }}", "{% for i in [1] %}" * 25 + "{% endfor %}" * 25, "{{ " + "(" * 999 + ")" * 999 + " }}"])
def test_whatever_does_not_compile_is_no_template(source: str) -> None:
    with pytest.raises(ModelError, match="is not jinja"):
        template(source).check()
    ChatTemplate({}, {}).check()


def test_variables_of_the_request_win_but_not_over_its_fields() -> None:
    assert template("{{ bos_token }}{{ level }}").render([USER], bos_token="!", level=3) == "!3"
    with pytest.raises(RequestError, match="must not hold 'messages'") as refused:
        template("x").render([USER], messages=[])
    assert refused.value.param == "chat_template_kwargs"


# --- what a template may not do ---


@pytest.mark.parametrize(("source", "says"), [
    ("{{ raise_exception('no\n such role') }}", "cannot render these messages: no such role"),
    ("{{ messages[0].content + 1 }}", "cannot render these messages"),
    ("{{ missing.name }}", "'missing' is undefined"),
    ("{{ 1 / 0 }}", "division by zero"),
    ("{{ messages.append(1) }}", "cannot render"),
    ("{{ ''.__class__.__mro__ }}", "cannot render"),
    ("{{ namespace(__call__=1) }}", "underscore|__call__"),
    ("{% set ns = namespace() %}{% set ns.__call__ = 1 %}", "__call__"),
    ("{{ lipsum() }}", "'lipsum' is undefined"),
    ("{% for i in range(1000000) %}{% endfor %}", "cannot render"),
    ("{{ 'x' * 100000000 }}", "values of more than"),
    ("{{ 100000000 * [1] }}", "values of more than"),
    ("{{ 10 ** (10 ** 8) }}", "values of more than"),
    ("{% set ns = namespace(n=9) %}{% for i in range(40) %}{% set ns.n = ns.n * ns.n %}{% endfor %}", "values of more than"),
    ("{{ '%100000000d' % 1 }}", "values of more than"),
    ("{{ '%*d' % (100000000, 1) }}", "values of more than"),
    ("{{ '%-*d' % (-100000000, 1) }}", "values of more than"),
    ("{{ '%%%(a)-100000000d' % {'a': 1} }}", "values of more than"),
    ("{{ '%.100000000f' % 1 }}", "values of more than"),
    ("{{ '%40000000d%40000000d' % (1, 2) }}", "values of more than"),
    ("{{ '{:>100000000}'.format(1) }}", "values of more than"),
    ("{{ '{0:>{1}}'.format(1, 100000000) }}", "from another value"),
    ("{{ ('x' * 10000).replace('x', 'y' * 10000) }}", "values of more than"),
    ("{{ ('x' * 10000).join('y' * 10000) }}", "values of more than"),
    ("{{ ('\\t' * 10000).expandtabs(10000) }}", "values of more than"),
    ("{{ ('x' * 10000).translate({120: 'y' * 10000}) }}", "values of more than"),
    ("{{ 'x'.center(width=100000000) }}", "values of more than"),
    ("{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "values of more than"),
    ("{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "values of more than"),
    ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "cannot render"),
])
def test_a_template_that_fails_is_a_refused_request(source: str, says: str) -> None:
    with pytest.raises(RequestError, match=says) as refused:
        template(source).render([USER])
    assert refused.value.param == "messages" and "\n" not in str(refused.value)


def test_large_numbers_in_a_text_are_no_widths() -> None:
    source = "{{ 'id 123456789: %s, 99%% (%d)' % ('x', 123456789) }} {{ '{} of {:>3}'.format(123456789, 5) }} {{ 'a-b'.replace('-', '') }}"
    assert template(source + "{{ '-'.join(['a', 'b'] | map('upper')) }}").render([USER]) == (
        "id 123456789: x, 99% (123456789) 123456789 of   5 abA-B")


def test_a_template_that_prints_without_end_is_stopped() -> None:
    with pytest.raises(RequestError, match="prints more than"):
        template("{% for i in range(9999) %}{{ 'x' * 1000000 }}{% endfor %}").render([USER])


@pytest.mark.parametrize("source", [
    "{% for i in range(9) %}{{ i }}{% endfor %}",
    "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
    "{% for i in range(90000) if i < 0 %}{% endfor %}",
    "{% for i in [[9, 9, 9, 9]] recursive %}{% if i is iterable %}{% set x = loop(i) %}{% endif %}{% endfor %}",
    "{% for i in [range(90000)] recursive %}{% if loop.depth < 2 %}{% set x = loop(i) %}{% endif %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{% set x = f(n - 1) ~ f(n - 1) %}{% endif %}{% endmacro %}{% set x = f(90) %}",
    "{% block b scoped %}{% for i in range(9) %}{% endfor %}{% endblock %}",
    "{% block b %}{% set x = self.b() %}{% endblock %}",
    "{% set x = range(90000) | map('replace', 'a', 'b') | list %}",
    "{% set x = range(90000) | select('none') | list %}",
])
def test_a_template_that_takes_too_long_is_stopped(source: str) -> None:
    class Hurried(VirtualClock):
        def now(self) -> float:
            self.advance(MAX_SECONDS / 3)
            return super().now()

    slow = ChatTemplate({"default": source}, {}, Hurried())
    with pytest.raises(RequestError, match="takes longer than 20 s"):
        slow.render([USER])
