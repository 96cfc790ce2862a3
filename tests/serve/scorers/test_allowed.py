"""A prefix lets in what is below it, and nothing that only looks as if it were."""
import pytest

from penstock.serve.scorers.allowed import Allowed, place_of

OURS = Allowed((place_of("http://reward.local:8080/v1/score"), place_of("https://judge.example")))


@pytest.mark.parametrize("url", [
    "http://reward.local:8080/v1/score", "http://reward.local:8080/v1/score/", "http://reward.local:8080/v1/score/a/b",
    "http://reward.local:8080/v1/score?model=x", "HTTP://REWARD.local:8080/v1/score", "https://judge.example", "https://judge.example:443/x"])
def test_what_is_below_a_prefix_is_allowed(url: str) -> None:
    assert OURS(url)


@pytest.mark.parametrize("url", [
    "http://reward.local:8080/v1/scores", "http://reward.local:8080/v1", "http://reward.local:8080/", "http://reward.local/v1/score",
    "https://reward.local:8080/v1/score", "http://reward.local:8081/v1/score", "http://reward.local.evil.com:8080/v1/score",
    "http://judge.example", "https://judge.example.evil.com", "https://judge.example:8443", "https://evil.com/judge.example",
    "http://169.254.169.254/latest/meta-data", "http://localhost:8080/v1/score"])
def test_what_is_elsewhere_is_not(url: str) -> None:
    assert not OURS(url)


@pytest.mark.parametrize("url", [
    "http://reward.local:8080@evil.com/v1/score", "http://evil.com\\@reward.local:8080/v1/score", "http://reward.local:8080/v1/score/../admin",
    "http://reward.local:8080/v1/score/%2e%2E/admin", "http://reward.local:8080/v1/score/..%2fadmin", "http://reward.local:8080/v1/score#x",
    "http://reward.local:8080/v1/score HTTP/1.1", "http://reward.local:8080/v1/score\r\nX: y", "http://reward.local:8080/v1/sc\tore",
    "http://reward.local:99999/v1/score", "http://reward.local:0/v1/score", "//reward.local:8080/v1/score", "http://réward.local/"])
def test_what_can_be_read_in_two_ways_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        place_of(url)


def test_whoever_runs_the_engine_alone_may_ask_anyone() -> None:
    assert Allowed(None)("http://anywhere/") and not Allowed(())("http://anywhere/")
