"""Where results are written to, and what becomes of a file that was there."""
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import PenstockError
from penstock.study.measure import keep
from penstock.study.measure.keep import write


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, link = tmp_path / "r.json", tmp_path / "link.json"
    kept.write_text("before")
    link.symlink_to(kept)

    def cut_off(self: Path, text: str, **options: Any) -> int:
        self.write_bytes(text[:3].encode())
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", cut_off)
        with pytest.raises(KeyboardInterrupt):
            write(str(kept), "afterwards")
    assert kept.read_text() == "before" and sorted(tmp_path.iterdir()) == [link, kept]
    write(str(link), "afterwards")
    assert kept.read_text() == "afterwards" and link.is_symlink()


def test_a_pipe_is_written_as_it_is(tmp_path: Path) -> None:
    """As --save /dev/stdout | jq has it, and --samples >(gzip > samples.gz)."""
    reader, writer = os.pipe()
    with open(reader, encoding="utf-8") as end:
        with open(writer, "wb"):
            write(f"/dev/fd/{writer}", "told\n")
        assert end.read() == "told\n"
    (tmp_path / "file").write_text("")
    with pytest.raises(PenstockError, match="cannot write .*file/r.json"):
        write(str(tmp_path / "file" / "r.json"), "told")


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_a_file_that_was_there_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    kept, new = tmp_path / "r.json", tmp_path / "new.json"
    kept.write_text("before")
    kept.chmod(mode)
    write(str(kept), "afterwards")
    write(str(new), "afterwards")
    assert kept.read_text() == "afterwards" and stat.S_IMODE(kept.stat().st_mode) == mode
    new_mode, usual = stat.S_IMODE(new.stat().st_mode), tmp_path / "usual"
    usual.touch()
    assert new_mode == stat.S_IMODE(usual.stat().st_mode), "the user's own, of a file that was not there"


def test_nobody_reads_meanwhile_what_he_could_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, modes = tmp_path / "r.json", []
    kept.write_text("before")
    kept.chmod(0o640)
    replace = Path.replace
    write_text = Path.write_text

    def seen(self: Path, text: str, **options: str) -> int:
        count = write_text(self, text, **options)
        modes.append(stat.S_IMODE(self.stat().st_mode))
        return count

    def last(self: Path, goal: Path) -> Path:
        modes.append(stat.S_IMODE(self.stat().st_mode))
        return replace(self, goal)

    monkeypatch.setattr(Path, "write_text", seen)
    monkeypatch.setattr(Path, "replace", last)
    write(str(kept), "afterwards")
    assert modes == [0o600, 0o640]


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_a_file_keeps_its_owner_as_far_as_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int) -> None:
    kept, asked = tmp_path / "r.json", []
    kept.write_text("before")
    mine = kept.stat()
    theirs = os.stat_result((*mine[:4], mine.st_uid + 1, mine.st_gid + 1, *mine[6:]))

    def chown(path: Path, uid: int, gid: int) -> None:
        asked.append((uid, gid))
        if len(asked) <= refused:
            raise PermissionError

    monkeypatch.setattr(keep.os, "chown", chown)
    keep.resemble(kept, theirs)
    both = [(mine.st_uid + 1, mine.st_gid + 1), (mine.st_uid, mine.st_gid + 1)]
    assert asked == both[: refused + 1]
    keep.resemble(kept, mine)
    assert asked == both[: refused + 1], "it is whose it should be"
