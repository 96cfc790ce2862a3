"""`penstock chat`: what is asked, what of the answer is shown and how, and what ends it."""
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.chat import ADVICE, short
from penstock.core.drafting import Drafting
from penstock.core.errors import RequestError


def test_chat_reads_a_pipe(penstock: Any, called: Any, pipe: Any) -> None:
    pipe(b"Hello\n\n/system Be brief\r\nAnd then?\n/reset\nAgain\n/quit\nNever\n")
    status, out, _ = penstock(["chat", "--system", "Be kind", "--max-tokens", "2"])
    user = [[turn["content"] for turn in prompt] for prompt in called.prompts]
    assert status == 0
    assert user == [["Be kind", "Hello"], ["Be brief", "Hello", "Once more", "And then?"], ["Be brief", "Again"]]
    assert out.count("Once more\n[TTFT 0.25 s, 2 tokens, 40.0 tokens/s, cut at --max-tokens 2]\n") == 3


@pytest.mark.parametrize(("terminal", "environ", "painted"), [
    (True, {"TERM": "xterm"}, True), (False, {"TERM": "xterm"}, False), (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
    (True, {"TERM": "xterm", "NO_COLOR": ""}, True), (True, {"TERM": "dumb"}, False)])
def test_chat_colours_drafts_where_colours_are_wanted(
    penstock: Any, called: Any, pipe: Any, monkeypatch: pytest.MonkeyPatch, terminal: bool, environ: dict[str, str], painted: bool
) -> None:
    pipe(b"Hello\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    called.drafted, called.drafting = "more", Drafting(1, 2, (1, 1), (1, 0))
    _, out, _ = penstock(["chat", "--show-drafts"])
    assert out.startswith("Once \x1b[32mmore\x1b[39m\n" if painted else "Once more\n")
    assert "2 tokens, 40.0 tokens/s, 1 of 2 drafts accepted, 2.00 tokens per pass (2.00 in those with drafts)" in out


@pytest.mark.parametrize("terminal", [True, False])
def test_chat_that_is_interrupted_leaves_the_terminal_in_its_own_colour(
        penstock: Any, called: Any, pipe: Any, monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    pipe(b"Hello\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    called.fail = KeyboardInterrupt()
    status, out, _ = penstock(["chat", "--show-drafts"])
    assert status == 130 and out == ("\x1b[39m" if terminal else "")


@pytest.mark.parametrize(("seconds", "said"), [(0.0042, "4.2 ms"), (0.0995, "99.5 ms"), (0.1, "0.10 s"), (12.3, "12.30 s")])
def test_chat_tells_short_times_in_milliseconds(seconds: float, said: str) -> None:
    assert short(seconds) == said


def test_chat_says_when_there_were_no_drafts_to_show(penstock: Any, called: Any, pipe: Any) -> None:
    pipe(b"Hello\n")
    _, out, err = penstock(["chat", "--show-drafts"])
    assert "nothing was drafted" in out and "--propose" in err and len(err.splitlines()) == 1
    pipe(b"Hello\n")
    assert "drafted" not in penstock(["chat"])[1]


def test_chat_through_a_pipe_fails_when_an_answer_does(penstock: Any, called: Any, pipe: Any) -> None:
    pipe(b"Hello\n")
    called.fail = RequestError("2000 tokens do not fit in 1024")
    assert penstock(["chat"]) == (2, "", "error: 2000 tokens do not fit in 1024\n")


def test_chat_through_a_pipe_ends_at_a_command_that_there_is_not(penstock: Any, called: Any, pipe: Any) -> None:
    pipe(b"/nonsense\nHello\n")
    status, out, err = penstock(["chat"])
    assert (status, out) == (2, "") and "'/nonsense' is not a command: /quit" in err


def test_chat_by_hand_goes_on_after_an_error(penstock: Any, called: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["/nonsense", "Hello", "/quit"])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    status, out, err = penstock(["chat"])
    assert status == 0 and "'/nonsense' is not a command" in err and "Once more" in out


def test_chat_by_hand_goes_on_after_an_answer_that_is_interrupted(
        penstock: Any, called: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C, at the prompt, ends the program."""
    def typed(prompt: str) -> str:
        called.fail = KeyboardInterrupt() if len(called.prompts) == 1 else None
        if len(called.prompts) == 3:
            raise KeyboardInterrupt
        return f"Hello {len(called.prompts)}"

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", typed)
    status, out, err = penstock(["chat"])
    assert [turn["content"] for turn in called.prompts[-1]] == ["Hello 0", "Once more", "Hello 2"]
    assert (status, err) == (130, "") and out.count("\n[interrupted; neither this question nor its answer is kept]\n") == 1


def test_chat_keeps_no_turn_without_an_answer(penstock: Any, called: Any, pipe: Any) -> None:
    """Templates refuse turns with nothing in them."""
    pipe(b"Hello\nAgain\n")
    called.silent = True
    status, out, _ = penstock(["chat", "--max-tokens", "2"])
    assert status == 0 and called.prompts[-1] == [{"role": "user", "content": "Again"}]
    assert out.startswith("[reasoning]\nOnce more\n[TTFT ")
    assert out.count("cut at --max-tokens 2, without an answer: the question is not kept]\n") == 2


def test_chat_sends_an_empty_system_message_and_none_where_none_is_given(penstock: Any, called: Any, pipe: Any) -> None:
    for given, opening in (["--system", ""], [{"role": "system", "content": ""}]), ([], []):
        pipe(b"Hello\n")
        penstock(["chat", *given])
        assert called.prompts.pop() == [*opening, {"role": "user", "content": "Hello"}]


def test_chat_shows_reasoning_apart(penstock: Any, called: Any, pipe: Any) -> None:
    for reasoned, shown in ("Once ", "[reasoning]\nOnce \n[answer]\nmore\n"), ("more", "Once \n[reasoning]\nmore\n"), (None, "Once more\n"):
        pipe(b"Hello\n")
        called.reasoned = reasoned
        assert penstock(["chat"])[1].startswith(shown)


def test_chat_takes_half_of_what_the_context_leaves_where_nothing_is_said(penstock: Any, called: Any, pipe: Any) -> None:
    called.room = 20
    pipe(b"Hello\nAgain\n")
    out = penstock(["chat"])[1]
    assert [params.max_tokens for params in called.params] == [7, 1]
    assert out.count("tokens/s, cut at half of what the context left; --max-tokens sets another bound]\n") == 2


def test_chat_takes_a_template_and_needs_one_before_the_first_question(penstock: Any, called: Any, pipe: Any, tmp_path: Path) -> None:
    path = tmp_path / "given.jinja"
    path.write_text("{{ messages")
    status, _, err = penstock(["chat", "--chat-template", str(path)])
    assert status == 2 and f"--chat-template {path} cannot be used: " in err and called.engine is None
    path.write_text("{{ messages }}")
    pipe(b"Hello\n")
    assert penstock(["chat", "--chat-template", str(path)])[0] == 0 and called.template == (path, ADVICE)
    called.no_template = RequestError("the model has no chat template")
    assert penstock(["chat"]) == (2, "", "error: the model has no chat template\n")
    assert called.template == (None, ADVICE) and len(called.prompts) == 1


def test_chat_says_which_line_is_not_utf8(penstock: Any, called: Any, pipe: Any) -> None:
    pipe("é\n".encode() + b"ab\xff\n")
    status, _, err = penstock(["chat"])
    assert (status, err) == (2, "error: line 2 of standard input is not UTF-8: byte 2 is 0xff\n")
    assert [talk[-1]["content"] for talk in called.prompts] == ["é"]
