"""An engine behind an OpenAI-compatible server, as a contestant: one thread and one request for each ask of a trace."""
import http.client
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from versus.contest import Entry, Measured
from versus.points import Point, asks, tokens_per_s
from versus.processes import Program, free_port
from versus.trace import Ask, Times

READY_S = 300.0


@dataclass(frozen=True, slots=True)
class Route:
    command: tuple[str, ...]  # but for --port
    vocab_size: int
    version: str
    environ: Mapping[str, str]
    log: Path


class Served:
    def __init__(self, entry: Entry, route: Route, questions: Sequence[str]) -> None:
        self.entry = entry
        self._route = route
        self._questions = questions
        self._port = 0
        self._program: Program | None = None

    def takes(self, point: Point) -> bool:
        return point.question in self._questions

    def start(self) -> str:
        """Raises RuntimeError when the server ends or is not ready in time."""
        self._port = free_port()
        self._program = Program([*self._route.command, "--port", str(self._port)], self._route.environ, self._route.log)
        deadline = time.monotonic() + READY_S
        while not healthy(self._port):
            if not self._program.running() or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not become ready; see {self._route.log}")
            time.sleep(0.05)
        self._send([Ask(0.0, 32, 4, 1)])
        self._program.pause()
        return self._route.version

    def measure(self, point: Point, round_number: int) -> Measured:
        assert self._program is not None
        self._program.resume()
        try:
            return Measured(tokens_per_s(point, self._send(asks(point, round_number))))
        finally:
            self._program.pause()

    def end(self) -> None:
        if self._program is not None:
            self._program.end()
            self._program = None

    def _send(self, trace: list[Ask]) -> list[Times]:
        """Raises RuntimeError with the first of the errors."""
        prompts = [ask.prompt(self._route.vocab_size) for ask in trace]
        found: dict[int, Times | Exception] = {}
        began = time.perf_counter()

        def send(key: int) -> None:
            try:
                time.sleep(max(0.0, began + trace[key].at_s - time.perf_counter()))
                tokens = complete(self._port, prompts[key], trace[key].num_new)
                last_s = time.perf_counter() - began
                found[key] = Times(trace[key].at_s, last_s, last_s, tokens)
            except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
                found[key] = error

        crew = [threading.Thread(target=send, args=(key,)) for key in range(len(trace))]
        for each in crew:
            each.start()
        for each in crew:
            each.join()
        times = []
        for key, ask in enumerate(trace):
            one = found[key]
            if isinstance(one, Exception) or one.num_tokens != ask.num_new:
                raise RuntimeError(f"a request for {ask.num_new} tokens brought {one!r}")
            times.append(one)
        return times


def complete(port: int, prompt: list[int], num_new: int) -> int:
    """Tokens of the answer, as the server counts them. Raises ValueError for an answer that is none."""
    body = {"prompt": prompt, "max_tokens": num_new, "temperature": 0, "ignore_eos": True}
    status, told = call(port, "POST", "/v1/completions", body)
    if status != 200:
        raise ValueError(f"status {status}: {told!s:.200}")
    return int(told["usage"]["completion_tokens"])


def healthy(port: int) -> bool:
    try:
        return call(port, "GET", "/health", None)[0] == 200
    except (OSError, ValueError, http.client.HTTPException):
        return False


def call(port: int, method: str, path: str, body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1200)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        return answer.status, json.loads(text) if text.startswith(("{", "[")) else text
    finally:
        connection.close()
