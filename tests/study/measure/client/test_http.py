from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.study.measure.client.events import EventReader
from penstock.study.measure.client.http import BadAnswer, Reply, request_bytes

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n1\r\n\n\r\n0\r\nTrailer: z\r\n\r\n"
SIZED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-LENGTH: 6\r\n\r\nhello\n"


@given(st.sampled_from([CHUNKED, SIZED]), st.lists(st.integers(0, 120), max_size=12))
def test_a_body_is_the_same_however_it_is_cut(answer: bytes, cuts: list[int]) -> None:
    reply, body, at = Reply(), b"", 0
    for cut in [*sorted(cut for cut in cuts if cut <= len(answer)), len(answer)]:
        body += reply.feed(answer[at:cut])
        at = cut
    assert body == b"hello\n" and reply.done and reply.reusable and reply.status == 200


def test_a_body_may_go_on_to_the_end() -> None:
    reply = Reply()
    assert reply.feed(b"HTTP/1.0 200 OK\r\n\r\nab") + reply.feed(b"c") == b"abc" and not reply.done
    reply.ended()
    assert reply.done and not reply.reusable


@pytest.mark.parametrize("head", ["HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
def test_an_answer_may_be_empty(head: str) -> None:
    reply = Reply()
    assert reply.feed(head.encode()) == b"" and reply.done and reply.reusable


def test_a_connection_that_closes_is_not_used_again() -> None:
    reply = Reply()
    reply.feed(b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 1\r\n\r\na")
    assert reply.done and not reply.reusable


@pytest.mark.parametrize("answer", [
    b"GARBAGE\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"x" * 70000,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    *(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\nhello" for size in (b"-6", b"+5", b"0x5", b"0_5", b"")),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 70000,
    b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n", b"HTTP/1.1 2\xb20 OK\r\n\r\n",
])
def test_what_is_no_answer(answer: bytes) -> None:
    with pytest.raises(BadAnswer):
        Reply().feed(answer)


def test_an_end_that_comes_too_soon() -> None:
    reply = Reply()
    reply.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
    with pytest.raises(BadAnswer, match="middle"):
        reply.ended()
    with pytest.raises(BadAnswer, match="without an answer"):
        Reply().ended()


@pytest.mark.parametrize("answer", [b"HT", b"GARBAGE\r\n\r\n", b"HTTP/1.1 102 Processing\r\n\r\n"])
def test_whatever_came_is_the_begin_of_an_answer(answer: bytes) -> None:
    """A request that a server has begun to answer is not sent again."""
    reply = Reply()
    assert not reply.begun
    with suppress(BadAnswer):
        reply.feed(answer)
    assert reply.begun


def test_a_request() -> None:
    assert request_bytes("POST", "/v1/x", {"Host": "h"}, b"{}") == b"POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"
    assert request_bytes("GET", "/", {"Host": "h"}) == b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


STREAM = b"data: one\n\n: comment\n\nevent: x\ndata: two\ndata:three\n\ndata: [DONE]\n\n"


@given(st.booleans(), st.lists(st.integers(0, 90), max_size=10))
def test_events_are_the_same_however_they_are_cut(crlf: bool, cuts: list[int]) -> None:
    stream = STREAM.replace(b"\n", b"\r\n") if crlf else STREAM
    reader, found, at = EventReader(), [], 0
    for cut in [*sorted(cut for cut in cuts if cut <= len(stream)), len(stream)]:
        found += reader.feed(stream[at:cut])
        at = cut
    assert found == [b"one", b"two\nthree", b"[DONE]"]


def test_an_event_of_many_lines_is_not_read_again_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    class Noting(bytearray):
        def find(self, sub: bytes, start: int = 0) -> int:  # type: ignore[override]
            looked.append(len(self) - start)
            return super().find(sub, start)

    reader = EventReader()
    reader._rest = Noting()
    for _ in range(1000):
        assert reader.feed(b"data: x\n") == []
    assert reader.feed(b"\n") == [b"\n".join([b"x"] * 1000)]
    assert max(looked) <= 16
