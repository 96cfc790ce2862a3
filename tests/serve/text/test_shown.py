"""What a template would pass over in silence: it is given in a form that shows, or refused by its place."""
from typing import Any

import pytest

from penstock.core.clock import VirtualClock
from penstock.core.errors import RequestError
from penstock.serve.text.chat import MAX_SECONDS, ChatTemplate
from tests.serve.text import templates
from tests.serve.text.test_calls_back import called, result, says

USER = {"role": "user", "content": "Hi"}
EACH = "{% for m in messages %}({{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %})" \
    "{% endfor %}"
FIRST = "{% if messages[0].role in ('system', 'developer') %}<{{ messages[0].content }}>{% set messages = messages[1:] %}{% endif %}" \
    "{% for m in messages if m.role not in ('system', 'developer') %}({{ m.content }}){% endfor %}"
LOOP = "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}"
LAST = "{% set ns = namespace(system='') %}{% for m in messages if m.role == 'system' %}{% set ns.system = m.content %}{% endfor %}" \
    "<{{ ns.system }}>{% for m in messages if m.role != 'system' %}({{ m.content }}){% endfor %}"
STRICT = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}" \
    "({{ m.content }}){% endfor %}"
IN_PARTS = FIRST.replace("{{ messages[0].content }}", "{% for part in messages[0].content %}{{ part.text }}{% endfor %}").replace(
    "{{ m.content }}", "{% for part in m.content %}{{ part.text }}{% endfor %}")


def system(content: Any, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": content}


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def render(source: str, *messages: dict[str, Any], **more: Any) -> str:
    return ChatTemplate({"default": source}, {}).render(messages, **more)


def refused(source: str, *messages: dict[str, Any]) -> str:
    with pytest.raises(RequestError, match="cannot be given to this model: its chat template does not show it here") as error:
        render(source, *messages)
    assert error.value.param == "messages"
    return str(error.value).partition(" ")[0]


@pytest.mark.parametrize(("source", "text"), [
    (EACH, "(system:A)(developer:B)(user:Hi)"), (FIRST, "<A\n\nB>(Hi)"), (IN_PARTS, "<A\n\nB>(Hi)"),
    (STRICT.replace("'system' and", "'developer' and"), "(A\n\nB)(Hi)")])
def test_system_messages_become_one_where_the_template_does_not_show_each(source: str, text: str) -> None:
    assert render(source, system("A"), system("B", "developer"), USER) == text


def test_the_last_of_several_system_messages_does_not_stand_for_all() -> None:
    assert render(LAST, system("A"), system(parts("B", "C")), USER) == "<A\n\nB\nC>(Hi)"
    assert render(LAST, USER, system("A")) == "<A>(Hi)"
    assert refused(LAST, system("A"), USER, system("B")) == "messages[0].content"


def test_system_messages_that_all_show_stay_apart() -> None:
    source = EACH.replace("{{ m.content }}", LOOP.replace("{% for", "{{ m.content if m.role == 'system' }}{% for", 1))
    assert render(source, system(parts("A", "B")), system("C"), USER) == "(system:A\nB)(system:C)(user:Hi)"


def test_a_system_message_that_is_alone_is_refused_where_the_template_has_no_place_for_it() -> None:
    no_system = templates.PHI3.replace("'system'", "'none'")
    for role, content in (("system", "A"), ("developer", "A"), ("system", parts("A", "B"))):
        assert refused(no_system, system(content, role), USER) == "messages[0].content"
    assert render(no_system, system(""), USER) == render(no_system, USER)
    with_name = "{% if name %}{{ messages[0].content }}{% endif %}{{ messages[1].content }}"
    assert render(with_name, system("A"), USER, name="x") == "AHi" and refused(with_name, system("A"), USER)


def test_a_later_system_message_that_is_not_shown_is_refused_by_its_place() -> None:
    assert render(EACH, USER, system("B")) == "(user:Hi)(system:B)"
    assert refused(FIRST, USER, system("B")) == "messages[1].content"
    assert refused(FIRST, system("A"), system("B"), USER, system("C")) == "messages[3].content"
    with pytest.raises(RequestError, match="cannot render these messages: no"):
        render(STRICT, USER, system("B"))


BY_ROLE = "{% for m in messages %}{% if m.role == 'system' %}{{ m.content[0].text if m.content is not string else m.content }}" \
    "{% elif m.role == 'tool' %}<{{ m.content | string }}>{% elif m.role == 'assistant' %}{{ m.content | tojson }}" \
    "{% else %}(" + LOOP + "){% endif %}{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %}{% endfor %}"


@pytest.mark.parametrize(("message", "text"), [
    ({"role": "user", "content": parts("A", "B")}, "(AB)"), (system(parts("A", "B")), "A\nB"), (system(parts("A")), "A"),
    ({"role": "tool", "content": parts("A")}, "<A>"), ({"role": "assistant", "content": parts("A", "B")}, '"A\\nB"'),
])
def test_parts_that_the_template_does_not_show_as_such_become_one_text(message: dict[str, Any], text: str) -> None:
    assert render(BY_ROLE, message) == text
    assert render(BY_ROLE, USER, message, {"role": "user", "content": parts("C", "D")}) == f"(Hi){text}(CD)"


def test_parts_in_json_that_the_template_writes_itself_are_parts() -> None:
    source = "{% for m in messages %}{% for part in m.content %}" + '{"content": {{ part.text | tojson }}}' + "{% endfor %}{% endfor %}"
    assert render(source, {"role": "tool", "content": parts("A", "B")}) == '{"content": "A"}{"content": "B"}'


def test_one_part_has_all_where_only_the_first_is_shown_and_strings_are_not_taken() -> None:
    source = "{% for m in messages %}{{ m.content[0].text }}{% for part in m.content if part.type == 'image' %}{% endfor %}{% endfor %}"
    assert render(source, {"role": "user", "content": parts("A", "B")}) == "A\nB"


SIZED = EACH.replace("{{ m.content }}", "{% if m.content is none %}none{% elif m.content | length %}{{ m.content }}{% endif %}")
FAILS = SIZED.replace("none{% elif m.content | length %}", "{% endif %}{% if m.content | length %}")


@pytest.mark.parametrize("content", [None, ""])
def test_content_beside_calls_is_empty_where_the_template_fails_without(content: str | None) -> None:
    message = says(called("f")) | {"content": content}
    assert render(SIZED, USER, message, result("f", "x")) == "(user:Hi)(assistant:none[f])(tool:x)"
    assert render(FAILS, USER, message, result("f", "x")) == "(user:Hi)(assistant:[f])(tool:x)"
    with pytest.raises(RequestError, match="no such role"):
        render(FAILS + "{{ raise_exception('no such role') }}", USER, message)


@pytest.mark.parametrize(("source", "messages", "field"), [
    (templates.PHI3, [USER, says(called("f"))], "messages[1].tool_calls[0]"),
    (templates.ZEPHYR, [USER, says(called("f"), content="I look.")], "messages[1].tool_calls[0]"),
    (EACH.replace("m.tool_calls or []", "(m.tool_calls or [])[:1]"), [USER, says(called("f"), called("g"))], "messages[1].tool_calls[1]"),
    (EACH.replace("[{{", "{% if not m.content %}[{{").replace("]{% endfor", "]{% endif %}{% endfor"),
     [says(called("f")), says(called("g"), content="So.")], "messages[1].tool_calls[0]"),
    (templates.PHI3, [USER, {"role": "assistant", "content": "x"}, result("f", "seen")], "messages[2].content"),
])
def test_calls_and_results_that_are_not_shown_are_refused(source: str, messages: list[dict[str, Any]], field: str) -> None:
    assert refused(source, *messages) == field


def test_calls_of_earlier_turns_choose_the_template_that_shows_them() -> None:
    named = ChatTemplate({"default": templates.PHI3, "tool_use": EACH + "{% for tool in tools %}{% endfor %}"}, {})
    assert named.render([USER, says(called("f"), content="x"), result("f", "seen")]) == "(user:Hi)(assistant:x[f])(tool:seen)"
    assert named.render([USER]) == "<|user|>\nHi<|end|>\n<|assistant|>\n"


def test_an_ordinary_conversation_is_rendered_once() -> None:
    counting = ChatTemplate({"default": "{{ count() if count }}" + EACH}, {})
    counts: list[int] = []
    many = [system("A"), USER, {"role": "assistant", "content": "B"}, {"role": "user", "content": parts("C")}]
    assert counting.render(many, count=lambda: counts.append(1)).startswith("None(system:A)") and counts == [1]


def test_a_text_of_many_parts_is_looked_through_once() -> None:
    source = "{% for m in messages %}" + LOOP + "{% endfor %}"
    many = [{"role": "user", "content": parts(*["a" * 100] * 20_000)}]
    assert render(source, *many) == "a" * 2_000_000  # part by part, it would be minutes


def test_a_rendering_that_takes_too_long_is_not_tried_otherwise() -> None:
    class Hurried(VirtualClock):
        def now(self) -> float:
            self.advance(MAX_SECONDS / 9)
            return super().now()

    counts: list[int] = []
    slow = ChatTemplate({"default": "{{ count() if count }}{% for i in range(99) %}{{ i }}{% endfor %}" + EACH}, {}, Hurried())
    with pytest.raises(RequestError, match="takes longer than 20 s"):
        slow.render([USER, says(called("f")), result("f", "x")], count=lambda: counts.append(1))
    assert counts == [1]
