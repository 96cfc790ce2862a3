import errno
import fcntl
import json
import os
import resource

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


def test_what_was_so_when_a_search_began_stays_so(tmp_path):
    def opened(cache, restart=False):
        with Journal(tmp_path / "state", ASKED, restart, {"kv_tokens": cache}) as journal:
            return journal.begun

    assert opened(1) == {"kv_tokens": 1} and opened(2) == {"kv_tokens": 2}, "nothing was found yet"
    with Journal(tmp_path / "state", ASKED, begun={"kv_tokens": 3}) as journal:
        journal.recall("a", made(1))
    assert opened(4) == {"kv_tokens": 3} == opened(5) and opened(6, restart=True) == {"kv_tokens": 6}


def test_a_file_without_what_was_so_goes_on_as_it_is_now(tmp_path):
    (tmp_path / "state").write_text(json.dumps({"format": 1, "asked": ASKED}) + '\n{"key": "a", "found": {"value": 1}}\n')
    with Journal(tmp_path / "state", ASKED, begun={"kv_tokens": 3}) as journal:
        assert journal.recall("a", never) == {"value": 1} and journal.begun == {"kv_tokens": 3}


@pytest.mark.parametrize("begun", [3, {"kv_tokens": "3"}, {"kv_tokens": None}, {"kv_tokens": True}, {"threads": 3}])
def test_what_was_never_so_is_no_state(tmp_path, begun):
    head = {"format": 1, "asked": ASKED, "begun": begun}
    (tmp_path / "state").write_text(json.dumps(head) + '\n{"key": "a", "found": {"value": 1}}\n')
    with pytest.raises(UsageError, match="is not the state of a search"):
        Journal(tmp_path / "state", ASKED, begun={"kv_tokens": 3})


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
    b"hello", b"hello\n", 100_000 * b"[" + b"\n",
    b'{"key": "a", "found": {}}\n', b'[1]\n', b"\xff\xfe\n", b'{"format": 99, "asked": {}}\n',
])
def test_a_file_of_something_else_is_left_alone(tmp_path, content):
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(UsageError, match="is not the state of a search"):
        Journal(tmp_path / "state", ASKED)
    assert (tmp_path / "state").read_bytes() == content


@pytest.mark.parametrize("line", [b'{"key": [], "found": {}}', b'{"asked": {}}', 100_000 * b"[", b'{"key": "a"}', b'{"key": "a", "fo'])
def test_a_line_that_is_no_answer_is_told_by_its_number(tmp_path, line):
    content = b'{"format": 1, "asked": {}}\n{"key": "a", "found": {}}\n' + line + b'\n{"key": "b", "found": {}}\n'
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(UsageError, match="line 3 of .*state is no answer of a search: give another --output, or --restart to start over"):
        Journal(tmp_path / "state", {})
    assert (tmp_path / "state").read_bytes() == content


def test_a_full_disk_is_told_with_the_file(tmp_path):
    """What was found before is kept, and half a line behind it is taken away the next time."""
    with Journal(tmp_path / "state", ASKED) as journal:
        journal.recall("a", made(1))
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "state").stat().st_size + 5, limit[1]))
        try:
            with pytest.raises(PenstockError, match="^cannot write .*state: File too large$"):
                journal.recall("b", made(2))
            journal.close()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    with Journal(tmp_path / "state", ASKED) as journal:
        assert journal.recall("a", never) == {"value": 1} and journal.recall("b", made(3)) == {"value": 3}


def test_a_file_system_without_locks_is_told_as_such(tmp_path, monkeypatch):
    def flock(file, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(PenstockError, match="cannot lock .*state: No locks available"):
        Journal(tmp_path / "state", ASKED)


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
