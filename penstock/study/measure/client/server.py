"""A server that speaks OpenAI's HTTP API, as a target."""
import asyncio
import json
import os
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.errors import PenstockError, RequestError, UsageError
from penstock.serve.api.slo import HEADER, WARNING
from penstock.study.measure.client.connections import Address, Connect, Connections, reason
from penstock.study.measure.client.events import EventReader
from penstock.study.measure.client.http import BadAnswer, Reply, is_number, merged, request_bytes
from penstock.study.measure.client.openai import NO_REASON, TOO_LONG, Answer, Ask, Wish, body_of, error_text
from penstock.study.measure.client.target import Stopwatch
from penstock.study.measure.load import num_tokens
from penstock.study.measure.samples import Sample

MAX_ERROR = 1 << 20  # bytes of an error's body that are read
FETCH_S = 10.0
MAX_CHAR = 0xFF  # of a header: latin-1
JSON = {"Content-Type": "application/json"}
NO_LIST = (404, 405, 501)  # what servers without a list of models answer
KEY = "OPENAI_API_KEY"  # in the environment


@dataclass(frozen=True, slots=True)
class Access:
    """`keys` take turns, request by request. `ahead`: connections are opened before they are needed, as is good where requests come by the
    clock."""

    address: Address
    keys: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 600.0
    ahead: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError for a key that is none, and for what a header cannot hold."""
        if not all(key.strip() for key in self.keys):
            raise UsageError("--api-key is empty: give a key, or leave it out")
        for option, texts in (("--api-key", self.keys), ("--header", (*self.headers, *self.headers.values()))):
            if strange := [char for text in texts for char in text if not char.isprintable() or ord(char) > MAX_CHAR]:
                raise UsageError(f"{option} has {strange[0]!r}, which a header of HTTP cannot hold")


def keys_of(given: Sequence[str], environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Those that are given; else the environment's, where an empty one is none."""
    own = environ.get(KEY, "")
    return tuple(given) or ((own,) if own.strip() else ())


class Server:
    def __init__(self, access: Access, wish: Wish, connect: Connect, watch: Stopwatch, max_model_len: int | None = None) -> None:
        """`max_model_len`: tokens of a prompt and its answer that the server takes at most, where it says so."""
        self.wish, self._access, self._watch = wish, access, watch
        self.max_model_len = max_model_len
        self._connections = Connections(connect, watch, access.ahead)
        self._count = self._num_again = 0
        self._told = {HEADER: str(wish.objectives)} if wish.objectives else {}
        self._warning: str | None = None  # of objectives that nothing is done for

    @property
    def url(self) -> str:
        return self._access.address.url

    def prepare(self, ask: Ask) -> bytes:
        """The request's bytes. Raises RequestError for one that the server's context does not hold."""
        check_length(replace(ask, num_output=self.wish.output_of(ask.num_output, ask.chat)), self.max_model_len)
        keys = self._access.keys
        key = keys[self._count % len(keys)] if keys else None
        self._count += 1
        path, body = self._access.address.base + ask.path, body_of(ask, self.wish)
        return request_bytes("POST", path, self._headers(key, JSON, self._told), body)

    async def send(self, prepared: Any, sample: Sample, keep_text: bool = False) -> str:
        answer, events, reply, rest = Answer(sample, keep_text), EventReader(), Reply(), bytearray()

        def on_body(reply: Reply, body: bytes, now_s: float) -> None:
            if reply.status == 200 and is_stream(reply):
                for data in events.feed(body):
                    answer.event(data, now_s)
            elif reply.status == 200 or len(rest) < MAX_ERROR:
                rest.extend(body)

        def on_sent(connect_s: float) -> None:
            self._num_again += sample.sent_s is not None
            sample.sent_s, sample.connect_s = self._watch(), connect_s

        try:
            await within(self._access.timeout_s, self._connections.exchange(prepared, reply, on_body, on_sent))
        except TimeoutError:
            sample.fail(f"no complete answer within {self._access.timeout_s:g} s", self._watch())
            return ""
        except (OSError, BadAnswer) as error:
            sample.fail(reason(error), self._watch())
            return ""
        sample.status, sample.end_s = reply.status, self._watch()
        sample.retry_after_s = retry_after_of(reply)
        self._warning = reply.headers.get(WARNING, self._warning)
        judge(answer, sample, reply, bytes(rest))
        return answer.text

    async def fetch(self, method: str, path: str, told: Any = None) -> tuple[int, bytes]:
        """(status, body) of a path below the server's root, for what is not measured. Raises OSError, BadAnswer or TimeoutError."""
        return await self._fetch(method, self._access.address.root + path, told)

    async def models(self) -> tuple[int, bytes]:
        """(status, body) of the API's list of models. Raises OSError, BadAnswer or TimeoutError."""
        return await self._fetch("GET", self._access.address.base + "/models")

    async def _fetch(self, method: str, path: str, told: Any = None) -> tuple[int, bytes]:
        body, rest, reply = b"" if told is None else json.dumps(told).encode(), bytearray(), Reply()
        headers = self._headers(self._access.keys[0] if self._access.keys else None, {} if told is None else JSON)
        request = request_bytes(method, path, headers, body)
        await within(FETCH_S, self._connections.exchange(request, reply, lambda _, found, __: rest.extend(found), lambda _: None))
        return reply.status, bytes(rest)

    async def metrics(self) -> str | None:
        try:
            status, body = await self.fetch("GET", "/metrics")
        except (OSError, BadAnswer, TimeoutError):
            return None
        return body.decode("utf-8", "replace") if status == 200 else None

    async def state(self) -> Mapping[str, Any] | None:
        try:
            status, body = await self.fetch("GET", "/v1/penstock/state")
            told = json.loads(body) if status == 200 else None
        except (OSError, BadAnswer, TimeoutError, ValueError):
            return None
        return told if isinstance(told, dict) else None

    def notes(self) -> list[str]:
        said = [] if self._warning is None else [f"the server warns about the SLO that requests carried: {self._warning}"]
        if self._num_again:
            times = "once" if self._num_again == 1 else f"{self._num_again:,} times"
            said.append(f"requests were sent again {times}: the server closed a connection that it had kept, without an answer")
        return said

    async def lost(self) -> str | None:
        try:
            await self.models()
        except (BadAnswer, TimeoutError):
            return None
        except OSError as error:
            return f"{self.url} can no longer be reached: {reason(error)}"
        return None

    async def close(self) -> None:
        self._connections.close()

    def _headers(self, key: str | None, *more: Mapping[str, str]) -> dict[str, str]:
        """What was asked for comes before what is the client's own."""
        own = {"Host": self._access.address.host_header, "Accept": "*/*"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
        return merged(own, *more, self._access.headers)


def is_stream(reply: Reply) -> bool:
    return reply.headers.get("content-type", "").lower().startswith("text/event-stream")


def judge(answer: Answer, sample: Sample, reply: Reply, rest: bytes) -> None:
    """What is wrong with an answer that is complete as HTTP, and what is not known before its end. `rest`: what came outside of events."""
    end_s = sample.end_s or 0.0
    if reply.status != 200:
        sample.error = f"status {reply.status}: {said(rest)}"
    elif not is_stream(reply):
        answer.whole(rest, end_s)
    elif not answer.ended and sample.finish_reason is None:
        sample.error = sample.error or "the stream ended without a finish reason"
    if not sample.num_output:
        sample.num_output = len(sample.chunk_s) or None
        sample.uncounted = True
    if sample.error is None and sample.last_s is None:
        if sample.num_output is None:
            sample.error = "the answer has no tokens"
        elif not sample.unstreamed:  # tokens without any text, of which nothing but the end is seen
            sample.arrived(end_s, visible=False)


async def within(seconds: float, work: Coroutine[Any, Any, None]) -> None:
    """Raises TimeoutError when the seconds are over, and for nothing else: a connection that the kernel gives up on is an OSError too."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError as error:
        if error.errno is None:
            raise
        raise ConnectionError(error.errno, error.strerror) from None


def retry_after_of(reply: Reply) -> float:
    """The seconds in which the server wants to be left alone; 0 where it does not say, or gives a date."""
    told = reply.headers.get("retry-after", "")
    return float(told) if is_number(told) else 0.0


def said(body: bytes) -> str:
    try:
        return error_text(json.loads(body))
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace").strip()[:300] or NO_REASON


def check_length(ask: Ask, most: int | None) -> None:
    """Raises RequestError for more tokens than `most`, as far as they are known before the server counts."""
    needed = num_tokens(ask.num_prompt, ask.num_output)
    if most is not None and ask.num_prompt is not None and needed > most:
        raise RequestError(
            f"a prompt of {ask.num_prompt:,} tokens and an answer of {ask.num_output or 1:,} are {needed:,}; the server's context holds "
            f"{most:,} (max_model_len in its list of models)", "prompt", code=TOO_LONG)


def context_of(model: Mapping[str, Any]) -> int | None:
    """The tokens that a listed model takes, where the server says so, as Penstock and vLLM do."""
    most = model.get("max_model_len")
    return most if isinstance(most, int) and not isinstance(most, bool) and most > 0 else None


async def named_model(server: Server, name: str) -> Mapping[str, Any]:
    """What the list of models says of one; nothing where it is not listed, or there is no list. Raises PenstockError when there is no such
    server."""
    try:
        status, body = await server.models()
        listed = [dict(each) for each in json.loads(body)["data"]] if status == 200 else []
    except (BadAnswer, TimeoutError, ValueError, KeyError, TypeError):
        return {}
    except OSError as error:
        raise PenstockError(f"{server.url} cannot be reached: {reason(error)}") from None
    return next((each for each in listed if each.get("id") == name), {})


async def first_model(server: Server) -> Mapping[str, Any]:
    """What the list of models says of its first. Raises PenstockError when there is no such server, or no list."""
    try:
        status, body = await server.models()
        listed: Sequence[Mapping[str, Any]] = [dict(each) for each in json.loads(body)["data"]] if status == 200 else ()
    except TimeoutError:
        raise PenstockError(f"{server.url} did not say within {FETCH_S:g} s which models it has") from None
    except OSError as error:
        raise PenstockError(f"{server.url} cannot be reached: {reason(error)}") from None
    except BadAnswer as error:
        raise PenstockError(f"{server.url} is not an HTTP server: {error}") from None
    except (ValueError, KeyError, TypeError):
        raise PenstockError(f"{server.url}/models is not a list of models") from None
    if status in (401, 403):
        raise PenstockError(f"{server.url} answers only to a valid key (status {status}): give one with --api-key")
    if status not in (200, *NO_LIST):
        raise PenstockError(f"{server.url}/models answered with status {status}: {said(body)}")
    if not listed:
        raise PenstockError(f"{server.url} does not say which models it has (status {status}): --served-model-name NAME")
    return listed[0]
