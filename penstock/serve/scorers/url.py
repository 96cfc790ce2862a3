"""A reward function behind a URL: POST {"prompt": text, "candidates": [text, ...]} -> {"scores": [number, ...]}, higher is better.

Only URLs that the server's owner allows are asked, redirections are not followed, and proxies of the environment are not used.
"""
import contextlib
import http.client
import json
import math
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from penstock.core.errors import RequestError
from penstock.core.types import Score
from penstock.serve.scorers.allowed import Place, place_of
from penstock.serve.scorers.contract import Candidate, Host, Ranked, best_first

MAX_SECONDS = 60
MAX_REPLY = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class UrlOptions:
    url: str
    timeout_s: float = 10.0  # for the whole exchange


class Url:
    Options = UrlOptions

    def __init__(self, options: UrlOptions, host: Host) -> None:
        """Raises RequestError for what is no URL, for one that may not be asked, and for a time that is too long."""
        name = f"{host.where}.url"
        try:
            self._place = place_of(options.url)
            allowed = host.allows(options.url)
        except ValueError as error:
            raise RequestError(f"{name} cannot be asked: {error}", name) from None
        if not allowed:
            why = "this server asks only URLs that it was started with (--scorer-url)"
            raise RequestError(f"{name} may not be asked: {why}", name, code="scorer_not_allowed")
        if not 0 < options.timeout_s <= MAX_SECONDS:
            name = f"{host.where}.timeout_s"
            raise RequestError(f"{name} must be above 0 and at most {MAX_SECONDS}, not {options.timeout_s:g}", name)
        self.waits_for = f"{self._place.scheme}://{self._place.host}:{self._place.port}"
        self._options = options
        self._where = host.where

    def rank(self, prompt: str, candidates: Sequence[Candidate]) -> list[Ranked]:
        """Raises RequestError (502), naming the URL, for whatever keeps it from answering in time with a score for each candidate."""
        body = json.dumps({"prompt": prompt, "candidates": [each.text for each in candidates]}).encode()
        scores = self._read(self._within_time(body), len(candidates))
        return best_first([Score(score) for score in scores], candidates)

    def _within_time(self, body: bytes) -> bytes:
        """The reply. A name that is not found or bytes that trickle in hold up a thread that nobody waits for any longer."""
        replies: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()

        def ask() -> None:
            try:
                replies.put(exchange(self._place, urlsplit(self._options.url).query, body, self._options.timeout_s))
            except Exception as error:
                replies.put(error)

        threading.Thread(target=ask, name="penstock-scorer", daemon=True).start()
        try:
            reply = replies.get(timeout=self._options.timeout_s)
        except queue.Empty:
            reply = TimeoutError()
        if isinstance(reply, TimeoutError):
            raise self._failed(f"did not answer within {self._options.timeout_s:g} s")
        if isinstance(reply, http.client.BadStatusLine) and not isinstance(reply, OSError):  # whose text is the stranger's
            raise self._failed("answered something that is not HTTP")
        if isinstance(reply, OSError | http.client.HTTPException | ValueError):
            raise self._failed(f"failed: {reply or type(reply).__name__}")
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _read(self, reply: bytes, count: int) -> list[float]:
        try:
            told: Any = json.loads(reply)
        except (ValueError, RecursionError):
            raise self._failed("answered something that is not JSON") from None
        scores = told.get("scores") if isinstance(told, dict) else None
        if not isinstance(scores, list):
            raise self._failed('answered without a list called "scores"')
        if len(scores) != count:
            raise self._failed(f"gave {len(scores)} scores for {count} candidates")
        return [self._number(score) for score in scores]

    def _number(self, score: Any) -> float:
        with contextlib.suppress(OverflowError):  # an integer beyond what a float holds
            if type(score) in (int, float) and math.isfinite(score):
                return float(score)
        raise self._failed(f"gave the score {repr(score)[:40]}, which is no finite number")

    def _failed(self, why: str) -> RequestError:
        return RequestError(f"the scorer at {self._options.url} {why}", self._where, status=502, code="scorer_failed")


def exchange(place: Place, query: str, body: bytes, seconds: float) -> bytes:
    """The body of the reply. Raises OSError or HTTPException, and ValueError for a status other than 200 or a reply that is too long."""
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    connection = kind(place.host, place.port, timeout=seconds)
    try:
        connection.request("POST", f"{place.path}?{query}" if query else place.path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(f"it answered with status {response.status}")
        reply = response.read(MAX_REPLY + 1)
        if len(reply) > MAX_REPLY:
            raise ValueError(f"its reply is longer than {MAX_REPLY} bytes")
        if response.length:  # of what it announced, that did not come
            raise ValueError(f"its reply ended after {len(reply)} of {len(reply) + response.length} bytes")
        return reply
    finally:
        connection.close()
