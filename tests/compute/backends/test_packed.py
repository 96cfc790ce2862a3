"""Packed weights on disk: found again, told from what is broken or foreign, kept within bounds, and never a reason to fail."""
import itertools
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.compute.backends import packed
from penstock.compute.backends.packed import ALIGNED, MAGIC, PackedCache

MADE = {"layout": 1, "matrices": [["w", False, {"n": 3}]]}
CONTENT = bytes(range(256)) * 40


def keep(folder: Path, key: str = "k", made: Any = MADE, content: bytes = CONTENT, max_bytes: int = 10**9) -> PackedCache:
    cache = PackedCache(folder, key, max_bytes)
    cache.keep(made, [1, 2**64 - 1], memoryview(content))
    return cache


def with_header(text: str) -> bytes:
    return MAGIC + len(text).to_bytes(8, "little") + text.encode()


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)


def test_what_was_kept_is_found(tmp_path: Path) -> None:
    stored = keep(tmp_path / "a" / "b").find(MADE)
    assert stored is not None and list(stored.sums) == [1, 2**64 - 1]
    assert stored.offset % ALIGNED == 0 and stored.path.read_bytes()[stored.offset :] == CONTENT
    assert [file.suffix for file in files(tmp_path / "a" / "b")] == [".packed"]


def test_another_model_or_layout_is_not_found(tmp_path: Path) -> None:
    cache = keep(tmp_path)
    assert PackedCache(tmp_path, "other").find(MADE) is None
    assert cache.find({**MADE, "layout": 2}) is None
    path = files(tmp_path)[0]
    path.rename(PackedCache(tmp_path, "other")._path(MADE))
    assert PackedCache(tmp_path, "other").find(MADE) is not None  # the name is the key: the content need not repeat it
    path.write_bytes(files(tmp_path)[0].read_bytes().replace(b'"n": 3', b'"n": 4'))
    assert cache.find(MADE) is None


@pytest.mark.parametrize("content", [
    b"", b"PEN", MAGIC, b"x" * 5000, MAGIC + (2**62).to_bytes(8, "little") + b"{}", MAGIC + (2).to_bytes(8, "little") + b"{}",
    MAGIC + (2).to_bytes(8, "little") + b"[]", MAGIC + (4).to_bytes(8, "little") + b"\xff{}x",
    with_header(json.dumps({"made": MADE})), with_header("[" * 100_000), with_header(json.dumps({"made": MADE, "sums": {"1": 2}})),
    *(with_header(json.dumps({"made": MADE, "sums": [1, wrong]})) for wrong in (-1, 2**64, 1.5, True, "7", None, float("inf"))),
], ids=itertools.count())
def test_broken_files_are_not_found_and_made_again(tmp_path: Path, content: bytes) -> None:
    cache = keep(tmp_path)
    path = files(tmp_path)[0]
    path.write_bytes(content)
    assert cache.find(MADE) is None
    assert keep(tmp_path).find(MADE) is not None


def test_a_broken_file_makes_room_before_good_ones_do(tmp_path: Path) -> None:
    other, cache = keep(tmp_path, "other"), keep(tmp_path)
    path = cache._path(MADE)
    size = path.stat().st_size
    path.write_bytes(bytes(size))
    os.utime(other._path(MADE), (1000, 1000))
    cache.drop(MADE)
    assert keep(tmp_path, max_bytes=2 * size).find(MADE) is not None and other.find(MADE) is not None


def test_what_another_process_kept_meanwhile_stays(tmp_path: Path) -> None:
    cache = PackedCache(tmp_path, "k", max_bytes=100)  # where this one has no room
    assert cache.find(MADE) is None
    cache.drop(MADE)
    keep(tmp_path)  # another process has packed the same
    cache.keep(MADE, [1, 2**64 - 1], memoryview(CONTENT))
    assert cache.find(MADE) is not None


def test_the_oldest_are_removed(tmp_path: Path) -> None:
    size = files(keep(tmp_path / "probe").folder)[0].stat().st_size
    for i, key in enumerate("abc"):
        cache = keep(tmp_path / "cache", key)
        os.utime(cache._path(MADE), (1000 + i, 1000 + i))
    PackedCache(tmp_path / "cache", "a").find(MADE)  # used again: now b is the oldest
    keep(tmp_path / "cache", "d", max_bytes=3 * size)
    left = [key for key in "abcd" if PackedCache(tmp_path / "cache", key).find(MADE) is not None]
    assert left == ["a", "c", "d"]


def test_a_file_that_another_server_removes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path)
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter([*folder.glob("*"), folder / "gone.packed"]))
    assert keep(tmp_path, "other").find(MADE) is not None


def test_what_is_too_large_is_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert keep(tmp_path, max_bytes=100).find(MADE) is None and not files(tmp_path)
    (said,) = caplog.messages
    assert "the next start packs them again" in said and f"{tmp_path} has no room for {len(CONTENT)} bytes, if no more than 100" in said


def test_a_full_disk_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(part: Path, path: Path, header: bytes, content: memoryview) -> None:
        part.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packed, "write", full)
    assert keep(tmp_path).find(MADE) is None and not files(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(packed, "SPARE_BYTES", 1 << 60)
    assert keep(tmp_path).find(MADE) is None and not files(tmp_path)


def test_a_disk_that_is_nearly_full_loses_the_oldest_and_nothing_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i, key in enumerate("abc"):
        os.utime(keep(tmp_path, key)._path(MADE), (1000 + i, 1000 + i))
    size = files(tmp_path)[0].stat().st_size

    def usage(folder: Path) -> SimpleNamespace:
        return SimpleNamespace(free=packed.SPARE_BYTES + 3 * size + 100 - sum(file.stat().st_size for file in folder.iterdir()))

    monkeypatch.setattr(packed.shutil, "disk_usage", usage)
    assert keep(tmp_path, "d", content=bytes(4 * size)).find(MADE) is None and len(files(tmp_path)) == 3
    assert keep(tmp_path, "d").find(MADE) is not None
    assert [key for key in "abcd" if PackedCache(tmp_path, key).find(MADE) is not None] == ["b", "c", "d"]


def test_a_file_whose_time_cannot_be_set_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def foreign(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    cache = keep(tmp_path)
    monkeypatch.setattr(packed.os, "utime", foreign)
    assert cache.find(MADE) is not None


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    assert keep(tmp_path / "file" / "folder").find(MADE) is None
    assert caplog.messages[0].endswith(f"{tmp_path / 'file' / 'folder'} cannot be written: Not a directory")


@pytest.mark.parametrize("kept", [False, True])
def test_what_a_lost_process_left_is_removed(tmp_path: Path, kept: bool) -> None:
    cache = keep(tmp_path)
    (tmp_path / f"abc.packed.{2**22 + 1}.part").write_bytes(b"half")
    (tmp_path / f"abc.packed.{os.getpid()}.part").write_bytes(b"half")  # of another container, where as many processes had been started
    (tmp_path / f"abc.packed.{os.getppid()}.part").write_bytes(b"half")
    (tmp_path / "readme").write_text("somebody's own")
    if kept:
        keep(tmp_path)
    else:
        assert cache.find(MADE) is not None
    assert {file.suffix for file in files(tmp_path)} == {".part", ".packed", ""}
    assert [file.name for file in files(tmp_path) if file.suffix == ".part"] == [f"abc.packed.{os.getppid()}.part"]


@pytest.mark.parametrize("number", [os.getpid(), 2**22 + 1], ids=["of a thread beside", "of a process in another container"])
def test_what_is_being_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    replace, between = os.replace, []

    def replace_later(part: Path, path: Path) -> None:
        PackedCache(tmp_path, "other").find(MADE)
        between.append(part.exists())
        replace(part, path)

    monkeypatch.setattr(packed.os, "replace", replace_later)
    cache = PackedCache(tmp_path, "k")
    header = json.dumps({"made": MADE, "sums": []}).encode()
    packed.write(tmp_path / f"abc.packed.{number}.part", cache._path(MADE), header, memoryview(CONTENT))
    assert between == [True] and cache.find(MADE) is not None


def test_what_may_not_be_removed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def foreign(path: Path, missing_ok: bool) -> None:
        raise PermissionError(1, "Operation not permitted")

    cache = keep(tmp_path)
    (tmp_path / f"abc.packed.{2**22 + 1}.part").write_bytes(b"half")
    monkeypatch.setattr(Path, "unlink", foreign)
    assert cache.find(MADE) is not None
