"""Writes a result into a file that somebody named: whole or not at all, with the mode and the owner of a file that was there."""
import os
import stat
from contextlib import suppress
from pathlib import Path

from penstock.core.errors import PenstockError

PRIVATE = 0o600


def write(path: str | Path, text: str) -> None:
    """What is no file (a device, a pipe) is written as it is; of a link, the file that it means is replaced. Raises PenstockError where it
    cannot be written."""
    goal = Path(path)
    try:
        if goal.exists() and not goal.is_file():
            goal.write_text(text, encoding="utf-8")
        else:
            put(goal.resolve(), text)
    except OSError as error:
        raise PenstockError(f"cannot write {path}: {error.strerror}") from None


def put(goal: Path, text: str) -> None:
    """The whole file or, where the process is ended meanwhile, what was there before."""
    part = goal.with_name(f"{goal.name}.{os.getpid()}.part")
    try:
        before = goal.stat() if goal.exists() else None
        if before is not None:
            part.touch(PRIVATE)  # nobody reads meanwhile what he could not read before
        part.write_text(text, encoding="utf-8")
        if before is not None:
            resemble(part, before)
        part.replace(goal)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def resemble(part: Path, before: os.stat_result) -> None:
    """Has it belong to whom the other belonged to, as far as that may be done, with the same mode."""
    now = part.stat()
    for owner in ((before.st_uid, before.st_gid), (now.st_uid, before.st_gid)):  # only a superuser gives files away
        if owner != (now.st_uid, now.st_gid):
            with suppress(PermissionError):
                os.chown(part, *owner)
                break
    part.chmod(stat.S_IMODE(before.st_mode))
