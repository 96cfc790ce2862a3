import asyncio
import socket

import httpx
import pytest

from tests.guard import is_here

ELSEWHERE = "192.0.2.1"  # RFC 5737: nobody's


def test_connecting_elsewhere_fails_the_test() -> None:
    with socket.socket() as client:
        for connect in (client.connect, client.connect_ex):
            with pytest.raises(pytest.fail.Exception, match="tests need no network"):
                connect((ELSEWHERE, 80))
    with pytest.raises(pytest.fail.Exception):
        httpx.get(f"http://{ELSEWHERE}/")
    with pytest.raises(pytest.fail.Exception):
        asyncio.run(asyncio.open_connection(ELSEWHERE, 80))


@pytest.mark.parametrize(("family", "host", "here"), [
    (socket.AF_INET, "127.0.0.7", True), (socket.AF_INET, "0.0.0.0", True), (socket.AF_INET, "localhost", True),
    (socket.AF_INET, "10.0.0.1", False), (socket.AF_INET, "example.org", False),
    (socket.AF_INET6, "::1", True), (socket.AF_INET6, "fe80::1%eth0", False),
])
def test_what_is_this_machine(family: int, host: str, here: bool) -> None:
    assert is_here(family, (host, 80)) == here and is_here(socket.AF_UNIX, "/tmp/socket")
