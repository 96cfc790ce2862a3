"""Where a server is."""
import re

import pytest

from penstock.core.errors import UsageError
from penstock.study.measure.client.connections import address_of


@pytest.mark.parametrize(("url", "base", "root", "host"), [
    ("http://127.0.0.1:8000", "/v1", "", "127.0.0.1:8000"),
    ("https://api.example.org/openai/v1/", "/openai/v1", "/openai", "api.example.org"),
    ("http://[::1]:81/v1/chat/completions", "/v1", "", "[::1]:81"), ("http://box/v1/completions", "/v1", "", "box"),
    ("http://b\u00fccher.example/v1", "/v1", "", "xn--bcher-kva.example"),
])
def test_addresses(url: str, base: str, root: str, host: str) -> None:
    found = address_of(url)
    assert (found.base, found.root, found.host_header) == (base, root, host)


@pytest.mark.parametrize("url", [
    "ftp://x", "http://", "http://x:port", "x", "http://[::1", "http://[zz]:80", "http://a..b",
    "http://x:0", "http://x/\u00fc", "http://x/a b"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError):
        address_of(url)


@pytest.mark.parametrize(("url", "told"), [
    ("http://x/v1?key=1", "leave ? and what follows"), ("http://x/#top", "leave # and what follows"), ("http://u:secret@x", "--api-key")])
def test_nothing_of_an_address_is_left_out_in_silence(url: str, told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)) as refused:
        address_of(url)
    assert "secret" not in str(refused.value)
