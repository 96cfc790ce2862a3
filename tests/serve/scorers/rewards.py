"""A reward function on localhost that does as it is told."""
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Rewards:
    """`reply`: what to answer a request's body with, as an object or as bytes; `status` and `headers` go before it, after `wait_s`."""

    url: str = ""
    asked: list[tuple[str, Any]] = field(default_factory=list)  # path, body
    reply: Callable[[Any], Any] = lambda body: {"scores": [len(text) for text in body["candidates"]]}
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    wait_s: float = 0.0


@contextmanager
def rewards() -> Iterator[Rewards]:
    """Serves until the block ends."""
    told = Rewards()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.asked.append((self.path, body))
            time.sleep(told.wait_s)
            reply = told.reply(body)
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply if isinstance(reply, bytes) else json.dumps(reply).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.url = f"http://127.0.0.1:{server.server_port}/score"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
