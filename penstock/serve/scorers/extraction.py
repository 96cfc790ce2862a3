"""The last match of a stranger's regular expression, found by a process of its own.

A short pattern may take Python's matcher years, and it cannot be interrupted where it runs. So this file is also a program that needs the
standard library alone: {"pattern", "texts", "seconds"} on stdin -> a list of strings and nulls on stdout.
"""
import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence

MAX_PATTERN = 256  # characters
MEMORY_BYTES = 1 << 30
OUT_OF_MEMORY = 3  # exit status
BUSY = 10  # times as long as it may compute it may take, where others compute, too


class TooMuchError(Exception):
    """The texts were not searched within the time of a processor, or not within the memory, that is allowed: says which."""


class EndedError(Exception):
    """The process was ended from outside, got no processor, or could not work: says how."""


def extract(pattern: str, texts: Sequence[str], seconds: float) -> list[str | None]:
    """`last_match` of each text, in so many seconds of a processor. Raises TooMuchError and EndedError."""
    asked = json.dumps({"pattern": pattern, "texts": list(texts), "seconds": seconds})
    command = [sys.executable, "-I", "-S", __file__]
    try:
        done = subprocess.run(command, input=asked, capture_output=True, text=True, encoding="utf-8", timeout=BUSY * seconds, check=True)
    except subprocess.TimeoutExpired:
        raise EndedError(f"could not compute for {seconds:g} s within {BUSY * seconds:g} s") from None
    except subprocess.CalledProcessError as error:
        if error.returncode == -signal.SIGPROF:
            raise TooMuchError(f"took longer than {seconds:g} s") from None
        if error.returncode == OUT_OF_MEMORY:
            raise TooMuchError(f"needed more than {MEMORY_BYTES >> 20} MiB of memory") from None
        status = error.returncode
        raise EndedError(f"was ended by signal {-status}" if status < 0 else f"ended with status {status}") from None
    except OSError as error:  # no memory, no process or no open file is left
        raise EndedError(f"could not be started: {error.strerror or error}") from None
    found: list[str | None] = json.loads(done.stdout)
    return found


def last_match(pattern: re.Pattern[str], text: str) -> str | None:
    """Group 1 of the last match, or the match itself where there are no groups, without white space around it; None: nothing was found."""
    said = None
    for match in pattern.finditer(text):
        said = match[1] if pattern.groups else match[0]
    return None if said is None else said.strip()


def limit(seconds: float) -> None:
    """Ends this process when it has computed for so long, also when whoever waited for it is gone."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    with contextlib.suppress(ImportError, ValueError, OSError):  # as far as the system can
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def main() -> None:
    asked = json.loads(sys.stdin.buffer.read())
    limit(asked["seconds"])
    try:
        pattern = re.compile(asked["pattern"])
        print(json.dumps([last_match(pattern, text) for text in asked["texts"]]))
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)


if __name__ == "__main__":
    main()
