"""A reward function behind a URL: what it is asked, and what becomes of every way in which it fails."""
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.core.errors import RequestError
from penstock.serve.scorers.allowed import Allowed
from penstock.serve.scorers.contract import Candidate, Host
from penstock.serve.scorers.url import MAX_REPLY, Url, UrlOptions
from tests.serve.scorers.rewards import Rewards, rewards

CANDIDATES = [Candidate("long answer", (-1.0,)), Candidate("short", (-2.0,)), Candidate("the longest answer", (-3.0,))]
ANYWHERE = Host("scorer", Allowed(None))


@pytest.fixture
def server() -> Iterator[Rewards]:
    with rewards() as told:
        yield told


def fails(server: Rewards, timeout_s: float = 10.0) -> str:
    with pytest.raises(RequestError) as raised:
        Url(UrlOptions(server.url, timeout_s), ANYWHERE).rank("p", CANDIDATES)
    error = raised.value
    assert (error.status, error.code, error.param) == (502, "scorer_failed", "scorer")
    assert str(error).startswith(f"the scorer at {server.url} ") and "\n" not in str(error)
    return str(error)


def test_the_prompt_and_all_candidates_are_sent_and_the_highest_score_comes_first(server: Rewards) -> None:
    ranked = Url(UrlOptions(server.url + "?model=a%20b"), ANYWHERE).rank("What?", CANDIDATES)
    assert server.asked == [("/score?model=a%20b", {"prompt": "What?", "candidates": [each.text for each in CANDIDATES]})]
    assert [(each.place, each.score.value) for each in ranked] == [(2, 18.0), (0, 11.0), (1, 5.0)]


def test_equal_scores_are_told_apart_by_likelihood(server: Rewards) -> None:
    server.reply = lambda body: {"scores": [1, 1, 1]}
    candidates = [Candidate("a", (-2.0, -2.0)), Candidate("b", (-1.0,)), Candidate("c", (-1.0,))]
    assert [each.place for each in Url(UrlOptions(server.url), ANYWHERE).rank("", candidates)] == [1, 2, 0]


@pytest.mark.parametrize(("reply", "said"), [
    (b"nonsense", "not JSON"), (b"[" * 100_000, "not JSON"), (b"\xff\xfe", "not JSON"), ([1, 2, 3], 'without a list called "scores"'),
    ({"scores": 5}, 'without a list called "scores"'), ({"scores": [1, 2]}, "gave 2 scores for 3 candidates"),
    ({"scores": [1, 2, "3"]}, "gave the score '3',"), ({"scores": [1, 2, True]}, "gave the score True"),
    ({"scores": [1, None, 2]}, "gave the score None"), (b'{"scores": [1, 2, NaN]}', "gave the score nan"),
    (b'{"scores": [1, 2, 1e999]}', "gave the score inf"), (b'{"scores": [1, 2, 1' + b"0" * 400 + b"]}", "no finite number"),
    (b" " * (MAX_REPLY + 1), f"longer than {MAX_REPLY} bytes")])
def test_a_reply_that_is_not_a_score_for_each_is_an_error(server: Rewards, reply: Any, said: str) -> None:
    server.reply = lambda body: reply
    assert said in fails(server)


@pytest.mark.parametrize(("reply", "said"), [
    (b"\x00\x1b[31mgarbage\r\n\r\n", "answered something that is not HTTP"),  # none of it is shown
    (b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"scores":[1,2,3]}', "failed: its reply ended after 18 of 1000 bytes")])
def test_what_does_not_speak_http_or_breaks_off_is_an_error(server: Rewards, reply: bytes, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(reply)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):  # closed with anything unread, it would be reset
                    pass

        threading.Thread(target=answer, daemon=True).start()
        server.url = f"http://127.0.0.1:{listening.getsockname()[1]}/score"
        assert fails(server) == f"the scorer at {server.url} {said}"


def test_another_status_is_an_error_and_redirections_are_not_followed(server: Rewards) -> None:
    server.status = 500
    assert "status 500" in fails(server)
    server.status, server.headers = 302, {"Location": server.url + "/elsewhere"}
    assert "status 302" in fails(server) and len(server.asked) == 2


def test_who_does_not_answer_in_time_is_named(server: Rewards) -> None:
    server.wait_s = 5
    assert "did not answer within 0.1 s" in fails(server, timeout_s=0.1)


def test_a_reply_that_trickles_in_does_not_hold_up_the_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told = Rewards(f"http://127.0.0.1:{listener.getsockname()[1]}/score")
        assert "did not answer within 0.1 s" in fails(told, timeout_s=0.1)  # it accepts, and says nothing


def test_a_server_that_is_not_there_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told = Rewards(f"http://127.0.0.1:{listener.getsockname()[1]}/score")
    assert "failed: " in fails(told)


def test_a_server_that_hangs_up_is_an_error(server: Rewards) -> None:
    server.reply = lambda body: b""
    assert "not JSON" in fails(server)


@pytest.mark.parametrize("url", ["", "score", "ftp://a/b", "file:///etc/passwd", "http://", "http://a:b/c", "http://a\n/b", "http://u@h/"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(RequestError, match=r"^scorer\.url cannot be asked") as raised:
        Url(UrlOptions(url), ANYWHERE)
    assert (raised.value.status, raised.value.param) == (400, "scorer.url")


def test_only_allowed_urls_are_asked() -> None:
    with pytest.raises(RequestError, match="--scorer-url") as raised:
        Url(UrlOptions("http://10.0.0.1/"), Host("scorer", Allowed(())))
    assert (raised.value.status, raised.value.code) == (400, "scorer_not_allowed")


@pytest.mark.parametrize("seconds", [0.0, -1.0, 61.0, float("inf"), float("nan")])
def test_no_one_is_waited_for_too_long(seconds: float) -> None:
    with pytest.raises(RequestError, match="must be above 0 and at most 60") as raised:
        Url(UrlOptions("http://a/", seconds), ANYWHERE)
    assert raised.value.param == "scorer.timeout_s"
