"""An engine in a process of its own, by lines of JSON: the bench asks for runs of a trace, the worker tells when the tokens came.

Both ends are here. Standard library only: rivals' own interpreters run this file.
"""
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from versus.processes import Program, limited, with_bench
from versus.trace import Ask, Times

LIMIT_S = 3600.0  # of an answer, and of getting ready


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is started for."""

    model: str  # a folder or a file
    format: str  # in the engine's own words
    setting: str  # a way of running it, in the engine's own words
    threads: int
    max_tokens: int  # of the longest request
    kv_tokens: int  # of all requests together
    kv_bytes_per_token: int  # at two bytes a value
    keeps_prefixes: bool  # whether prompts may be kept from one run to the next
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunResult:
    times: list[Times]
    figures: Mapping[str, float] = field(default_factory=dict)  # what the engine says of itself


Run = Callable[[list[Ask]], RunResult]


class Worker:
    """The bench's end."""

    def __init__(self, command: Sequence[str], task: Task, environ: Mapping[str, str], log: Path) -> None:
        """Returns when the engine is ready. Raises RuntimeError when it ends before, or takes too long."""
        self._began = time.perf_counter()
        self._program = Program([*command, json.dumps(asdict(task))], {**with_bench(), **environ}, log, talks=True)
        try:
            ready = self._read()
        except BaseException:
            self._program.end()
            raise
        self.version = str(ready["version"])
        self.start_s = time.perf_counter() - self._began
        self._program.pause()

    def run(self, trace: Sequence[Ask]) -> RunResult:
        """Raises RuntimeError when the worker ends, takes too long or says what went wrong."""
        self._program.resume()
        try:
            with contextlib.suppress(BrokenPipeError):  # it has ended, and may have said why
                self._program.input.write(json.dumps([asdict(ask) for ask in trace]) + "\n")
                self._program.input.flush()
            told = self._read()
        finally:
            self._program.pause()
        return RunResult([Times(**each) for each in told["times"]], told["figures"])

    def end(self) -> None:
        self._program.end()

    def _read(self) -> dict[str, Any]:
        with limited(self._program, LIMIT_S) as late:
            line = self._program.output.readline()
        if late.is_set():
            raise RuntimeError(f"the worker did not answer within {LIMIT_S:g} s; see {self._program.log}")
        if not line:
            raise RuntimeError(f"the worker has ended; see {self._program.log}")
        told: dict[str, Any] = json.loads(line)
        if "failed" in told:
            raise RuntimeError(f"{told['failed']}; see {self._program.log}")
        return told


def serve(load: Callable[[Task], tuple[str, Run]]) -> None:
    """The engine's end: `load` gives the engine's version and what runs a trace. Whatever libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        version, run = load(Task(**json.loads(sys.argv[1])))
        out.write(json.dumps({"version": version}) + "\n")
        for line in sys.stdin:
            out.write(json.dumps(asdict(run([Ask(**each) for each in json.loads(line)]))) + "\n")
    except Exception as error:
        out.write(json.dumps({"failed": f"{type(error).__name__}: {error!s:.300}"}) + "\n")
        raise
    finally:
        out.flush()
    os._exit(0)  # threads of libraries are not waited for


def vocab_size(model: str) -> int:
    return int(json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))["vocab_size"])
