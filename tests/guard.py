"""Guards: against work that would take hours, and against a network."""
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest


@contextlib.contextmanager
def ends(seconds: float = 15.0) -> Iterator[None]:
    """Fails what computes for longer: no measure, but for inputs on which work that grows with their square would go on for much longer,
    and work that grows with their length takes a small part of it."""
    def too_long(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"not done after {seconds:g} s of computing")

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def is_here(family: int, address: Any) -> bool:
    """Whether it is this machine: a path, the loopback interface, or any interface, which to a client is loopback."""
    if family not in (socket.AF_INET, socket.AF_INET6) or address[0] in ("localhost", ""):
        return True
    try:
        host = ipaddress.ip_address(address[0].partition("%")[0])
    except ValueError:
        return False
    return host.is_loopback or host.is_unspecified


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Fails what connects to another machine from this process by Python's sockets, which HTTP clients do."""
    def guarded(connect: Callable[[socket.socket, Any], Any]) -> Callable[[socket.socket, Any], Any]:
        def connect_here(self: socket.socket, address: Any) -> Any:
            if not is_here(self.family, address):
                pytest.fail(f"a test connects to {address}: tests need no network")
            return connect(self, address)

        return connect_here

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
        yield
