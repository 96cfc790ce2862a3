"""A really started `penstock serve`."""
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import httpx

START_S = 120
STOP_S = 60
SERVING = re.compile(r"^Serving .* at (http://\S+), ", re.MULTILINE)


@dataclass(frozen=True)
class Started:
    process: subprocess.Popen[bytes]
    output: int  # a file, which never fills as a pipe does

    def said(self) -> str:
        """All of it so far. Where the server writes next is not moved."""
        return os.pread(self.output, os.fstat(self.output).st_size, 0).decode()


def start(*options: str, model: str = "brook") -> tuple[Started, str]:
    """A server of a model that answers, and its URL, of a port that the system chose."""
    command = [sys.executable, "-m", "penstock", "serve", model, "--port", "0", *options]
    output, path = tempfile.mkstemp()
    os.unlink(path)
    server = Started(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT), output)
    until = time.monotonic() + START_S
    while not answers(url := url_of(server)):
        if server.process.poll() is not None or time.monotonic() > until:
            server.process.kill()
            raise AssertionError(f"the server did not start: {server.said()}")
        time.sleep(0.1)
    return server, url


def url_of(server: Started) -> str:
    """Where it says that it serves; empty before."""
    found = SERVING.search(server.said())
    return found[1] if found else ""


def answers(url: str) -> bool:
    try:
        return bool(url) and httpx.get(url + "/health").status_code == 200
    except httpx.TransportError:
        return False


def has_ipv6() -> bool:
    """Whether this machine's loopback interface has an IPv6 address."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def stop(server: Started) -> str:
    """Ends it as a terminal's Ctrl-C or an orchestrator would; what it has said."""
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(STOP_S)
    said = server.said()
    os.close(server.output)
    assert server.process.returncode == 0, said
    return said
