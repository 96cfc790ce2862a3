"""Programs that are measured in turns: one that waits for its turn is stopped, so that threads which spin take nothing from the others."""
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1  # prctl(2): a signal when the parent ends
END_S = 10.0
BENCH = Path(__file__).resolve().parents[1]
INSTALLED = {"PYTHONSAFEPATH": "1"}  # python -m takes what is installed, not a checkout in the current folder, which has no native module


class Program:
    """A program in a process group of its own, so that its children stop and go on with it."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], log: Path, talks: bool = False) -> None:
        """`talks`: its standard input and output are pipes; else what it says goes to `log`, as its errors do."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                list(command), env={**os.environ, **INSTALLED, **environ}, stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else errors, stderr=errors, text=True, start_new_session=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None)

    @property
    def input(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def running(self) -> bool:
        return self._process.poll() is None

    def status(self) -> int:
        """Waits for its end."""
        return self._process.wait()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """At once, whoever reads what it says; `end` still has to be called."""
        self._signal(signal.SIGKILL)

    def end(self) -> None:
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _signal(self, number: int) -> None:
        if self.running():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def with_bench() -> dict[str, str]:
    """The environment of a Python program that imports what is beside this folder, and whatever this interpreter can."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(BENCH), os.environ.get("PYTHONPATH"))))}


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def said_by(command: Sequence[str], environ: Mapping[str, str], log: Path, limit_s: float = 3600.0) -> str:
    """What a program prints until it ends. Raises RuntimeError, with the log's place, when it fails or takes longer than `limit_s`."""
    program = Program(command, environ, log, talks=True)
    try:
        with limited(program, limit_s) as late:
            program.input.close()
            text = program.output.read()
            status = program.status()
    finally:
        program.end()
    if late.is_set():
        raise RuntimeError(f"{Path(command[0]).name} took longer than {limit_s:g} s; see {log}")
    if status:
        raise RuntimeError(f"{Path(command[0]).name} ended with status {status}; see {log}")
    return text


@contextlib.contextmanager
def limited(program: Program, limit_s: float) -> Iterator[threading.Event]:
    """Kills the program if the body takes longer; the event, which it yields, then says so."""
    late = threading.Event()

    def kill() -> None:
        late.set()
        program.kill()

    watch = threading.Timer(limit_s, kill)
    watch.start()
    try:
        yield late
    finally:
        watch.cancel()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
