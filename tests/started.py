"""A really started `penstock serve`."""
import signal
import socket
import subprocess
import sys
import time

import httpx

START_S = 120
STOP_S = 60


def start(*options: str, model: str = "brook") -> tuple[subprocess.Popen[str], str]:
    """A server of a model that answers, and its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "penstock", "serve", model, "--port", str(port), *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + START_S
    while True:
        assert server.poll() is None and time.monotonic() < until, "the server did not start"
        try:
            if httpx.get(url + "/health").status_code == 200:
                return server, url
        except httpx.TransportError:
            time.sleep(0.1)


def has_ipv6() -> bool:
    """Whether this machine's loopback interface has an IPv6 address."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def stop(server: subprocess.Popen[str]) -> str:
    """Ends it as a terminal's Ctrl-C or an orchestrator would; what it has said."""
    server.send_signal(signal.SIGTERM)
    said, _ = server.communicate(timeout=STOP_S)
    assert server.returncode == 0, said
    return said
