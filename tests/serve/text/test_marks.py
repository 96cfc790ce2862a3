"""Cache marks: the prefix that is pinned ends where the marked part ends in the rendered prompt, whatever the template."""
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import RequestError
from penstock.core.prefix import num_common
from penstock.core.types import CacheMark
from penstock.serve.text.chat import ChatTemplate
from penstock.serve.text.marks import cache_marks
from penstock.serve.text.tokenizer import Tokenizer
from tests.serve.text import templates
from tests.serve.text.makers import byte_fallback, byte_level

TOKENIZER = Tokenizer(byte_level())
SHORT: dict[str, Any] = {"type": "ephemeral"}
LONG: dict[str, Any] = {"type": "ephemeral", "ttl": "1h"}
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("first", "second", "third")]


def part(text: str, mark: Any = None) -> dict[str, Any]:
    return {"type": "text", "text": text} | ({} if mark is None else {"cache_control": mark})


def marked_texts(source: str, messages: Any, tools: Any = None, tokenizer: Tokenizer = TOKENIZER) -> list[tuple[str, float]]:
    """The text of each pinned prefix, and how long it lives."""
    template = ChatTemplate({"default": source}, {"bos_token": "<s>", "eos_token": "</s>"})

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    ids = encode(template.render(messages, tools))
    marks = cache_marks(messages, tools, template.render, encode)
    return [(tokenizer.decode(ids[: mark.num_tokens]), mark.ttl_s) for mark in marks]


@pytest.mark.parametrize(("style", "prefix"), [
    ("chatml_tools", "<|im_start|>system\nBe kind."),
    ("phi3", "<|system|>\nBe kind."),
    ("zephyr", "<|system|>\nBe kind."),
    ("llama2", "<s>[INST] <<SYS>>\nBe kind."),  # the system text stands inside the first user message
    ("llama3", "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 1 May\n\nBe kind."),
])
def test_a_mark_on_the_system_text_ends_with_it(style: str, prefix: str) -> None:
    source = templates.ALL[style].replace('date_string or strftime_now("%Y")', '"1 May"')
    messages = [{"role": "system", "content": [part("Be kind.", SHORT)]}, {"role": "user", "content": "Hi"}]
    assert marked_texts(source, messages) == [(prefix, 300.0)]


def test_white_space_that_the_template_trims_is_not_missed() -> None:
    messages = [{"role": "user", "content": [part("Hello  \n", SHORT)]}]
    assert marked_texts(templates.GEMMA, messages) == [("<s><start_of_turn>user\nHello", 300.0)]


def test_marks_on_several_parts_turns_and_tools() -> None:
    messages = [
        {"role": "user", "content": [part("One.", SHORT), part("Two."), part("Three.", LONG)]},
        {"role": "assistant", "content": "Four."},
        {"role": "user", "content": "Five.", "cache_control": SHORT},
    ]
    tools = [TOOLS[0], {**TOOLS[1], "cache_control": LONG}, TOOLS[2]]
    found = marked_texts(templates.CHATML_TOOLS, messages, tools)
    assert [ttl_s for _, ttl_s in found] == [3600.0, 300.0, 3600.0, 300.0]
    assert found[0][0].endswith('"name": "second", "parameters": {}}}\n') and "third" not in found[0][0]
    assert [text.rpartition("\n")[2] for text, _ in found[1:]] == ["One.", "Three.", "Five."]


def test_a_mark_on_the_last_tool_ends_with_it() -> None:
    found = marked_texts(templates.MISTRAL, [{"role": "user", "content": "Hi"}], [*TOOLS[:2], {**TOOLS[2], "cache_control": SHORT}])
    assert found == [(found[0][0], 300.0)] and found[0][0].endswith('"name": "third", "parameters": {}}}')


def test_a_mark_on_the_last_message_ends_before_the_prompt_for_an_answer() -> None:
    messages = [{"role": "user", "content": [part("Hi", SHORT)]}]
    assert marked_texts(templates.PHI3, messages) == [("<|user|>\nHi", 300.0)]


@settings(max_examples=40)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), st.text(max_size=4, alphabet="ab é\n"))
def test_the_pinned_tokens_are_a_prefix_of_the_prompt_that_holds_the_part(text: str, other: str) -> None:
    messages = [{"role": "user", "content": [part(text, SHORT), part(other)]}]
    (found, _), = marked_texts(templates.PHI3, messages)
    whole = f"<|user|>\n{text}\n{other}"
    assert whole.startswith(found.replace("\ufffd", "")) or "\ufffd" in text
    assert len(found) >= len(f"<|user|>\n{text}") - 1  # the last token may go on behind the part


def test_the_same_mark_pins_the_same_tokens_whatever_follows() -> None:
    def pinned(follows: str) -> list[tuple[str, float]]:
        messages = [{"role": "system", "content": [part("A long story. " * 9, SHORT)]}, {"role": "user", "content": follows}]
        return marked_texts(templates.CHATML_TOOLS, messages, tokenizer=Tokenizer(byte_fallback(leading_space=True)))

    assert pinned("Who?") == pinned("And then what happened?")


def test_equal_prefixes_are_one_mark_that_lives_as_long_as_the_longest() -> None:
    messages = [{"role": "user", "content": [part("Hi", LONG)], "cache_control": SHORT}]
    assert [ttl_s for _, ttl_s in marked_texts(templates.PHI3, messages)] == [3600.0]


def test_without_marks_nothing_is_rendered() -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("rendered")

    assert cache_marks([{"role": "user", "content": "Hi"}], None, never, never) == ()


def test_marks_are_the_contract_of_the_scheduler() -> None:
    template = ChatTemplate({"default": "{{ messages[0].content }}!"}, {})
    marks = cache_marks([{"role": "user", "content": [part("the", SHORT)]}], None, template.render, lambda text: list(text.encode()))
    assert marks == (CacheMark(3, 300.0),)


@pytest.mark.parametrize("mark", [
    "ephemeral", {}, {"type": "persistent"}, {"type": "ephemeral", "ttl": "2h"}, {"type": "ephemeral", "ttl": 300},
    {"type": "ephemeral", "scope": "x"}, {"type": "ephemeral", "ttl": None}, [],
])
def test_a_mark_of_another_form_is_refused_by_name(mark: Any) -> None:
    with pytest.raises(RequestError, match=r"messages\[0\].content\[1\].cache_control must be .*ephemeral") as refused:
        marked_texts(templates.PHI3, [{"role": "user", "content": [part("a"), {**part("b"), "cache_control": mark}]}])
    assert refused.value.param == "messages"


def test_a_fifth_mark_is_refused() -> None:
    with pytest.raises(RequestError, match=r"content\[4\].cache_control: a request may have 4 cache_control marks, not 5"):
        marked_texts(templates.PHI3, [{"role": "user", "content": [part("a", SHORT)] * 5}])


@pytest.mark.parametrize(("messages", "tools", "says"), [
    ([{"role": "critic", "content": [part("a", SHORT)]}], None, r"messages\[0\].content\[0\].cache_control: the chat template does not"),
    ([{"role": "user", "content": "a"}], [{**TOOLS[0], "cache_control": SHORT}], r"tools\[0\].cache_control: the chat template does not"),
    ([{"role": "critic", "cache_control": SHORT}], None, r"messages\[0\].cache_control: the message has no content"),
])
def test_a_mark_on_what_the_template_does_not_show_is_refused(messages: Any, tools: Any, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        marked_texts(templates.PHI3, messages, tools)


@given(st.text(alphabet="ab", max_size=12), st.text(alphabet="ab", max_size=12), st.text(alphabet="ab", max_size=12))
def test_common_prefixes(start: str, a: str, b: str) -> None:
    n = num_common(start + a, start + b)
    assert n >= len(start)
    assert (start + a)[:n] == (start + b)[:n]
    assert (start + a)[n : n + 1] != (start + b)[n : n + 1] or n == min(len(start + a), len(start + b))
