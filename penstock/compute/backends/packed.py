"""Packed weights kept on disk between starts: a file for each model and form, put in place whole, the longest unused ones out.

A file is a header (magic, length, JSON, filled up to ALIGNED bytes) and the packed bytes. The JSON says of what layout the bytes are and
holds a checksum of each chunk, so that a file that is cut, damaged or of another layout is told from a good one.
"""
import fcntl
import hashlib
import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAGIC, ALIGNED = b"PENPACK1", 4096
FOLDER = "packed"  # of Penstock's cache
SUFFIX, UNFINISHED = ".packed", ".part"
SPARE_BYTES = 1 << 30  # of the disk, that are left to others
WRITTEN_BYTES = 16 << 20  # at once
MAX_HEADER_BYTES = 64 << 20
UNKEPT = "packed weights are not kept, so the next start packs them again, as with --no-weight-cache"
log = logging.getLogger("penstock.models")


@dataclass(frozen=True, slots=True)
class Stored:
    """Where the packed bytes of a file begin, and their checksums."""

    path: Path
    offset: int
    sums: Sequence[int]


@dataclass(frozen=True, slots=True)
class PackedCache:
    """The files of one folder; `key` stands for a model's weights and for how they are rounded."""

    folder: Path
    key: str
    max_bytes: int = 20_000_000_000  # of all files
    min_bytes: int = 64 << 20  # of packed weights: fewer are packed again as fast as they are read

    def find(self, made: Mapping[str, Any]) -> Stored | None:
        """The file whose bytes are laid out as `made` says (plain JSON values); None where there is none, or it is not a good one."""
        self._remove_unfinished()
        path = self._path(made)
        try:
            with path.open("rb") as file:
                magic, length = file.read(len(MAGIC)), int.from_bytes(file.read(8), "little")
                if magic != MAGIC or length > min(MAX_HEADER_BYTES, os.fstat(file.fileno()).st_size):
                    return None
                header = json.loads(file.read(length))
            if header["made"] != made or not are_sums(header["sums"]):
                return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        with suppress(OSError):  # others' files, or a disk that is read only
            os.utime(path)
        return Stored(path, offset_of(length), header["sums"])

    def drop(self, made: Mapping[str, Any]) -> None:
        """Removes a file that is not a good one: it would count where room is made. Call before packing, in whose time another process may
        put a good one there."""
        with suppress(OSError):  # others' files, or a disk that is read only
            self._path(made).unlink()

    def keep(self, made: Mapping[str, Any], sums: Sequence[int], content: memoryview) -> None:
        """Writes a file where there is room for it. A full disk, or a folder that cannot be written, is a warning and no error."""
        path = self._path(made)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not self._make_room(len(content)):
                log.warning("%s: %s has no room for %d bytes, if no more than %d are kept and %d stay free", UNKEPT, self.folder,
                            len(content), self.max_bytes, SPARE_BYTES)
                return
            # Processes of several containers may have the same number, hence the token.
            part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.{os.getpid()}{UNFINISHED}")
            try:
                write(part, path, json.dumps({"made": made, "sums": list(sums)}).encode(), content)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s: %s cannot be written: %s", UNKEPT, self.folder, error.strerror)

    def _path(self, made: Mapping[str, Any]) -> Path:
        text = json.dumps([self.key, made], sort_keys=True)
        return self.folder / f"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}{SUFFIX}"

    def _make_room(self, num_bytes: int) -> bool:
        """Removes unfinished files of lost processes, and the files that were not used for longest until `num_bytes` more are allowed and
        the disk has them. Whether they fit now; no good file goes where they would not."""
        self._remove_unfinished()
        files = self._files()
        total = sum(size for _, size, _ in files)
        if num_bytes > self.max_bytes or self._free() + total < num_bytes:
            return False
        for _, size, file in files:
            if total + num_bytes <= self.max_bytes and self._free() >= num_bytes:
                break
            file.unlink(missing_ok=True)
            total -= size
        return self._free() >= num_bytes

    def _files(self) -> list[tuple[float, int, Path]]:
        """(last use, bytes, path) of whole files, the longest unused first, without those that others remove meanwhile."""
        found = []
        for file in self.folder.iterdir():
            with suppress(FileNotFoundError):
                if file.suffix == SUFFIX:
                    status = file.stat()
                    found.append((status.st_mtime, status.st_size, file))
        return sorted(found)

    def _remove_unfinished(self) -> None:
        remove_unfinished(self.folder.glob(f"*{UNFINISHED}"))

    def _free(self) -> int:
        """Bytes of the disk, without those that are left to others."""
        return shutil.disk_usage(self.folder).free - SPARE_BYTES


def are_sums(given: Any) -> bool:
    """Whether it is a list of checksums, uint64."""
    return isinstance(given, list) and all(type(each) is int and 0 <= each < 1 << 64 for each in given)


def remove_unfinished(files: Iterable[Path]) -> None:
    """Removes those that lost processes left, where they may be removed, and nothing that is still being written."""
    with suppress(OSError):  # others' files, or a disk that is read only
        for file in files:
            if not alive(file):
                file.unlink(missing_ok=True)


def alive(part: Path) -> bool:
    """Whether the process that writes an unfinished file still runs here, or the file is locked: in containers many processes have the
    same number, and others' numbers cannot be seen."""
    number = part.name.removesuffix(UNFINISHED).rpartition(".")[2]
    try:
        os.kill(int(number), 0)
    except (ValueError, ProcessLookupError):
        return locked(part)
    except OSError:
        return True
    return int(number) != os.getpid() or locked(part)


def locked(path: Path) -> bool:
    """Whether anybody holds the lock of `put`, which ends with its process."""
    with suppress(OSError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def offset_of(length: int) -> int:
    """Where the bytes begin after a header of so much JSON."""
    return -(-(len(MAGIC) + 8 + length) // ALIGNED) * ALIGNED


def write(part: Path, path: Path, header: bytes, content: memoryview) -> None:
    start = MAGIC + len(header).to_bytes(8, "little") + header
    put(part, path, (memoryview(start.ljust(offset_of(len(header)), b"\0")), content))


def put(part: Path, path: Path, contents: Iterable[memoryview]) -> None:
    """Writes `part` and puts it in the place of `path`, all under a lock."""
    with part.open("wb", buffering=0) as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for content in contents:
            for at in range(0, len(content), WRITTEN_BYTES):
                piece = content[at : at + WRITTEN_BYTES]
                while len(piece):
                    piece = piece[file.write(piece) :]
        os.replace(part, path)
