import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import UsageError
from penstock.study.measure.datasets import TABLE
from penstock.study.measure.load import Session
from penstock.study.measure.writers import IdWriter


class Letters:
    """A tokenizer for which each letter is a token."""

    vocab_size = 100

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(map(ord, text))

    def token_text(self, token_id: int) -> str:
        return chr(token_id)


def read(text: str, tokenizer: Letters | None = None) -> tuple[list[Session], list[str]]:
    dataset, options = TABLE.parse(text)
    made = dataset(options, IdWriter(None, tokenizer), "seed")
    return list(made.sessions()), made.notes()


def lines(path: Path, *values: Any) -> Path:
    path.write_text("\n".join(json.dumps(value) for value in values) + "\n\n")
    return path


def test_a_line_has_a_prompt_or_messages_or_turns(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "a.jsonl", {"prompt": "tell me", "max_tokens": 9}, {"prompt": [5, 6, 7]},
        {"messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 7}, {"turns": ["one", "two"], "question_id": 4})
    sessions, notes = read(f"jsonl:path={path},output=3", Letters())
    text, ids, chat, two = (session.turns for session in sessions)
    assert (text[0].prompt, text[0].num_prompt, text[0].num_output) == ("tell me", 7, 9)
    assert (ids[0].prompt, ids[0].num_prompt, ids[0].num_output) == ((5, 6, 7), 3, 3)
    assert (chat[0].messages, chat[0].num_output) == (({"role": "user", "content": "hi"},), 7)
    assert len(two) == 2 and two[1].messages[0]["content"] == "two"
    assert not notes


@pytest.mark.parametrize(("value", "word"), [
    ({}, "none"), ({"prompt": "a", "turns": ["b"]}, "prompt, turns"), ({"prompt": ""}, "empty"), ({"prompt": [1, True]}, "token ids"),
    ({"messages": [{"role": "user"}]}, "content"), ({"messages": []}, "messages"), ({"turns": [1]}, "strings"),
    ({"prompt": "a", "max_tokens": 0}, "max_tokens"), ([], "none"), ({"prompt": "a", "max_completion_tokens": "9"}, "not '9'"),
    ({"prompt": "a", "max_tokens": 8, "max_completion_tokens": 9}, "max_tokens = 8 and max_completion_tokens = 9 differ: give one of them"),
])
def test_a_bad_line_is_named(tmp_path: Path, value: Any, word: str) -> None:
    path = lines(tmp_path / "a.jsonl", {"prompt": "fine"}, value)
    with pytest.raises(UsageError, match=f"a.jsonl:2.*{word}"):
        read(f"jsonl:path={path}")


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "broken").write_text("{")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xfd")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b'{"prompt": "a"}' * 9)[:-9])
    for text, word in (("empty", "no lines"), ("broken", "broken:1 is not JSON"), ("binary", "UTF-8"), ("absent", "cannot read"),
                       ("cut.gz", "cut.gz cannot be unpacked")):
        with pytest.raises(UsageError, match=word):
            read(f"jsonl:path={tmp_path / text}")
    with pytest.raises(UsageError, match="path=FILE"):
        read("jsonl")
    (tmp_path / "deep").write_text("[" * 100_000)
    for name in ("jsonl", "sharegpt"):
        with pytest.raises(UsageError, match="deep.* is not JSON"):
            read(f"{name}:path={tmp_path / 'deep'}")


@pytest.mark.parametrize("packed", [False, True])
def test_files_may_be_gzipped_and_end_their_lines_as_they_like(tmp_path: Path, packed: bool) -> None:
    text = '\ufeff{"prompt": "one"}\r\n{"prompt": "two"}\r\n'.encode()
    (tmp_path / "a.jsonl").write_bytes(gzip.compress(text) if packed else text)
    sessions, _ = read(f"jsonl:path={tmp_path / 'a.jsonl'}", Letters())
    assert [session.turns[0].prompt for session in sessions] == ["one", "two"]


TALK = [("system", "Be brief."), ("human", "Hello"), ("gpt", "Hi there"), ("human", "More"), ("gpt", "No"), ("human", "Please")]


def share(path: Path, *talks: Any) -> Path:
    path.write_text(json.dumps([{"id": "x", "conversations": [{"from": who, "value": said} for who, said in talk]} for talk in talks]))
    return path


def test_conversations_are_replayed_turn_by_turn(tmp_path: Path) -> None:
    path = share(tmp_path / "s.json", TALK, [("gpt", "I begin"), ("human", "and nobody answers")])
    sessions, notes = read(f"sharegpt:path={path},wait=1.5", Letters())
    first, second = sessions[0].turns
    assert [each["role"] for each in first.messages] == ["system", "user"] and [each["content"] for each in second.messages] == ["More"]
    assert (first.answer, second.answer) == ("Hi there", "No") and (first.num_output, second.num_output) == (8, 2)
    assert (first.wait_s, second.wait_s) == (0.0, 1.5)
    assert len(sessions) == 1 and notes == ["1 conversation was left out: no user says anything that was answered"]


def test_answers_are_as_long_as_they_were_written(tmp_path: Path) -> None:
    """Without what a tokenizer puts before a text."""
    class Begun(Letters):
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            return [1] * add_special_tokens + super().encode(text)

    sessions, _ = read(f"sharegpt:path={share(tmp_path / 's.json', TALK)}", Begun())
    assert [turn.num_output for turn in sessions[0].turns] == [8, 2]


def test_conversations_have_options(tmp_path: Path) -> None:
    path = share(tmp_path / "s.json", TALK)
    sessions, notes = read(f"sharegpt:path={path},turns=1,history=generated,output=50,max_output=40")
    (turn,) = sessions[0].turns
    assert turn.answer is None and turn.num_output == 40 and "50 tokens" in notes[0]
    with pytest.raises(UsageError, match="recorded or generated"):
        read(f"sharegpt:path={path},history=none")


def test_conversations_as_messages_a_line(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    sessions, _ = read(f"sharegpt:path={lines(tmp_path / 'm.jsonl', {'messages': said})}")
    assert sessions[0].turns[0].messages == ({"role": "user", "content": "a"},)


@pytest.mark.parametrize("talk", [[("narrator", "x")], [("human", 5)]])
def test_conversations_of_another_kind(tmp_path: Path, talk: Any) -> None:
    with pytest.raises(UsageError, match="conversation 1"):
        read(f"sharegpt:path={share(tmp_path / 's.json', talk)}")


@pytest.mark.parametrize(("talks", "told"), [
    ([], "in no conversation a user says anything that was answered"),
    ([[("human", "a")], [("gpt", "b")]], "in none of the 2 conversations a user says anything that was answered")])
def test_conversations_that_ask_nothing_are_told(tmp_path: Path, talks: list[Any], told: str) -> None:
    said = [{"conversations": [{"from": who, "value": text} for who, text in talk]} for talk in talks]
    (tmp_path / "s.json").write_text(json.dumps(said))
    with pytest.raises(UsageError, match=f"s.json has nothing to ask: {told}"):
        read(f"sharegpt:path={tmp_path / 's.json'}")
