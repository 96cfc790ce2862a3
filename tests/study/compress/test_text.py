"""Files, folders and lines of JSON become documents; beginnings start where a paragraph does."""
from pathlib import Path

import pytest

from penstock.core.errors import UsageError
from penstock.study.compress import text


class Letters:
    """A tokenizer: a begin token, then a token for each character."""

    def encode(self, document: str) -> list[int]:
        return [0, *map(ord, document)]


def test_a_folder_is_read_with_all_below_it(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a.md").write_text("first")
    lines = ['{"text": "third"}', "", '{"prompt": "fourth", "id": 3}', '{"question": "fifth\u2028\x85 line"}', ""]
    (tmp_path / "below/c.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "d.bin").write_bytes(b"\xff")
    (tmp_path / "a.folder.txt").mkdir()
    assert text.read([str(tmp_path)]) == ["first", "second", "third", "fourth", "fifth\u2028\x85 line"]
    assert text.read([str(tmp_path / "b.txt"), str(tmp_path / "a.md")]) == ["second", "first"]


def test_suffixes_may_be_of_capitals_and_marks_of_byte_order_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "A.TXT").write_bytes(b"\xef\xbb\xbffirst")
    (tmp_path / "B.JSONL").write_bytes(b'\xef\xbb\xbf{"text": "second"}\n{"text": "third"}')
    assert text.read([str(tmp_path)]) == ["first", "second", "third"]


@pytest.mark.parametrize(("name", "content", "said"), [
    ("a.txt", b"  \n", "there is no text in"), ("a.txt", b"\xff\xfe", "is not UTF-8"), ("a.jsonl", b"\xff\xfe", "is not UTF-8"),
    ("a.jsonl", b'{"answer": "x"}', "none of the fields text, prompt, question"), ("a.jsonl", b"[1]", "none of the fields"),
])
def test_what_is_no_text_is_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=said):
        text.read([str(tmp_path / name)])


@pytest.mark.parametrize(("line", "said"), [
    ("{]", "is not JSON: Expecting property name enclosed in double quotes at its column 2"),
    ("[" * 100_000, "is not JSON that can be read: it is nested too deeply"),
    (f'{{"text": {"9" * 5000}}}', "is not JSON that can be read: a number has too many digits"),
])
def test_a_line_that_is_no_json_is_refused_where_it_stands(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(f'{{"text": "whole"}}\n\n{line}\n')
    with pytest.raises(UsageError) as refusal:
        text.read([str(file)])
    assert str(refusal.value) == f"line 3 of {file} {said}"


def test_half_a_character_is_refused_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "whole \\ud83d\\ude00"}\n\n{"text": "half \\ud83d"}\n')
    with pytest.raises(UsageError, match=r"^the text in line 3 of \S+a\.jsonl holds the lone surrogate U\+D83D: no character$"):
        text.read([str(file)])


def test_what_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        text.read([str(tmp_path / "nowhere.txt")])
    with pytest.raises(UsageError, match="there is no text in"):
        text.read([str(tmp_path)])
    with pytest.raises(UsageError, match="^cannot read aaa.*: File name too long$"):
        text.read(["a" * 300])


def test_the_end_of_each_document_is_held_out() -> None:
    document = "\n\n".join(f"paragraph {i} of many" for i in range(100))
    train, held_out = text.split([document, "short"], 0.1)
    assert train[0] + "\n\n" + held_out[0] == document and held_out[0].startswith("paragraph")
    assert 0.05 < len(held_out[0]) / len(document) < 0.15
    assert (train[1], held_out[1]) == ("shor", "t")


@pytest.mark.parametrize(("document", "end"), [
    ("Moby-Dick\n\n" + "Call me Ishmael.\n" * 20_000, "Ishmael."), ("Moby-Dick\n\n" + "Call me " * 20_000, "l"), ("whale" * 20_000, "")])
def test_no_more_than_the_end_is_held_out_of_one_long_paragraph(document: str, end: str) -> None:
    (train,), (held_out,) = text.split([document], 0.05)
    assert document.startswith(train) and document.endswith(held_out) and train.endswith(end)
    assert 0.04 < len(held_out) / len(document) < 0.11


def test_of_many_short_documents_whole_ones_are_held_out() -> None:
    documents = [f"document {i}" for i in range(60)]
    long = "\n\n".join(f"paragraph {i} of many" for i in range(1000))
    train, held_out = text.split([*documents, long], 0.05)
    assert held_out[:-1] == ["document 19", "document 39", "document 59"]
    assert train[:-1] == [each for each in documents if each not in held_out]
    assert train[-1] + "\n\n" + held_out[-1] == long


def test_beginnings_reach_as_far_as_every_other_of_them_does() -> None:
    documents = ["a" * length for length in range(1, 100)]
    assert 45 <= text.Beginnings(documents, Letters(), seed=0).reach(384) <= 57
    assert text.Beginnings(documents, Letters(), seed=0).reach(20) == 20
    assert text.Beginnings([], Letters(), seed=0).reach(20) == 0


def test_beginnings_start_where_a_paragraph_does() -> None:
    documents = ["one two three\n\nfour five six\n\nseven eight nine", "ten eleven twelve"]
    drawn = text.Beginnings(documents, Letters(), seed=1).draw(40, 6)
    assert {"".join(map(chr, ids[1:])) for ids in drawn} == {"one t", "four ", "seven", "ten e"}
    assert all(len(ids) == 6 and ids[0] == 0 for ids in drawn)
    assert drawn == text.Beginnings(documents, Letters(), seed=1).draw(40, 6) != text.Beginnings(documents, Letters(), seed=2).draw(40, 6)


def test_lines_and_words_are_beginnings_where_a_paragraph_goes_on_and_on() -> None:
    def drawn(document: str) -> set[str]:
        return {"".join(map(chr, ids[1:])) for ids in text.Beginnings([document], Letters(), seed=0).draw(300, 6)}

    lines = drawn("\n".join(f"{i:04} is the number of this line" for i in range(400)))
    assert len(lines) > 150 and all(line[:4].isdigit() and line[4] == " " for line in lines)
    words = drawn(" ".join(f"{i:04}x" for i in range(9000)))
    assert len(words) > 20 and all(word[:4].isdigit() and word[4] == "x" for word in words)
    assert len(drawn("".join(map(chr, range(0x4E00, 0x4E00 + 20_000))))) == 10
    assert drawn("first" + "\nlater" * 300) == {"first"}  # no paragraph is long


def test_nothing_begins_where_only_white_space_follows() -> None:
    documents = ["a line of text\n\n \n\n"] * 50 + ["two\n\n\n\nparagraphs\n\n"]
    beginnings = text.Beginnings(documents, Letters(), seed=0)
    assert beginnings.reach(10) == 10
    assert all(ids[:2] != [0, ord(" ")] for ids in beginnings.draw(200, 4))


def test_too_little_text_is_refused() -> None:
    with pytest.raises(UsageError, match="too little text: of 60 places hardly any is followed by 50 tokens"):
        text.Beginnings(["short"], Letters(), seed=0).draw(3, 50)
