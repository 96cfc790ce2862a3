import json
import os

import pytest

from penstock.core.errors import PenstockError, UsageError
from penstock.study.plan.tune.journal import Journal

ASKED = {"--slo": "ttft=1s", "--rate": 2.0}


def made(value):
    return lambda: {"value": value}


def never():
    raise AssertionError("it is known")


def test_what_was_made_is_recalled(tmp_path):
    with Journal(tmp_path / "state", ASKED) as journal:
        assert journal.recall("a", made(1)) == {"value": 1} == journal.recall("a", never)
    with Journal(tmp_path / "state", ASKED) as journal:
        assert journal.recall("a", never) == {"value": 1}
        assert (journal.num_recalled, journal.num_made, len(journal)) == (1, 0, 1)


def test_a_file_cut_anywhere_keeps_its_whole_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    path = tmp_path / "state"
    with Journal(path, ASKED) as journal:
        for number in range(3):
            journal.recall(f"é{number}", made(number))
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with Journal(path, ASKED) as journal:
            for number in range(3):
                assert journal.recall(f"é{number}", made(number)) == {"value": number}
        assert path.read_bytes() == content


def test_what_fails_is_not_kept(tmp_path):
    def fails():
        raise PenstockError("no")

    with Journal(tmp_path / "state", ASKED) as journal:
        with pytest.raises(PenstockError):
            journal.recall("a", fails)
        assert journal.recall("a", made(1)) == {"value": 1}


@pytest.mark.parametrize(("now", "told"), [
    ({"--slo": "ttft=2s", "--rate": 2.0}, "--slo ttft=1s, not ttft=2s"), ({"--slo": "ttft=1s"}, "--rate 2.0, not without"),
    ({**ASKED, "--quant": "int8"}, "without --quant, not with int8"),
])
def test_other_arguments_are_refused_by_name(tmp_path, now, told):
    with Journal(tmp_path / "state", ASKED) as journal:
        journal.recall("a", made(1))
    with pytest.raises(UsageError, match="was begun with") as refusal:
        Journal(tmp_path / "state", now)
    assert told in str(refusal.value) and "--restart" in str(refusal.value)
    with Journal(tmp_path / "state", now, restart=True) as journal:
        assert journal.recall("a", made(2)) == {"value": 2}
    assert json.loads((tmp_path / "state").read_text().splitlines()[0])["asked"] == now


@pytest.mark.parametrize("content", [
    b'{"format": 1, "asked": {}}\n{"key": [], "found": {}}\n', b'{"format": 1, "asked": {}}\n{"asked": {}}\n',
    b'{"format": 1, "asked": {}}\n' + 100_000 * b"[" + b"\n", b"hello", b"hello\n",
    b'{"key": "a", "found": {}}\n', b'[1]\n', b"\xff\xfe\n", b'{"format": 99, "asked": {}}\n',
])
def test_a_file_of_something_else_is_left_alone(tmp_path, content):
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(UsageError, match="is not the state of a search"):
        Journal(tmp_path / "state", ASKED)
    assert (tmp_path / "state").read_bytes() == content


def test_arguments_that_nothing_was_found_for_bind_nobody(tmp_path):
    """A mistake in them is mended by giving others."""
    path = tmp_path / "state"
    with Journal(path, {"--slo": "ttft=1ms"}):
        assert path.exists()
    assert not path.exists()
    path.write_text(json.dumps({"format": 1, "asked": {"--slo": "ttft=1ms"}}) + "\n")
    with Journal(path, ASKED) as journal:
        journal.recall("a", made(1))
    with Journal(path, ASKED) as journal:
        assert journal.recall("a", never) == {"value": 1}


def test_two_searches_do_not_share_a_file(tmp_path):
    with Journal(tmp_path / "state", ASKED), pytest.raises(UsageError, match="is in use"):
        Journal(tmp_path / "state", ASKED)
    Journal(tmp_path / "state", ASKED).close()


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PenstockError, match="No such file"):
        Journal(tmp_path / "none" / "state", ASKED)


def test_a_line_is_on_the_disk_before_its_answer_is_used(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append((tmp_path / "state").read_text()))
    with Journal(tmp_path / "state", ASKED) as journal:
        journal.recall("a", made(1))
        assert '"a"' in synced[-1]
