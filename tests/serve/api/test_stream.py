"""Streams whose client does not read: whatever of them cannot be sent, the call is closed."""
import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest

from penstock.core.errors import RequestError
from penstock.serve.api.limits import ClientGone
from penstock.serve.api.stream import EventStream

Message = MutableMapping[str, Any]
WRITE_S = 0.05


class Call:
    headers: dict[str, str] = {}

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def sent(stuck_at: int | None, error: Exception | None = None) -> tuple[list[Message], bool]:
    """What is sent of a stream of three events (the last is the error, if given) whose message `stuck_at` nobody takes, and whether
    its call was closed."""
    messages: list[Message] = []
    call = Call()

    async def events() -> AsyncIterator[str]:
        yield "data: a\n\n"
        yield "data: b\n\n"
        if error is not None:
            raise error
        yield "data: c\n\n"

    async def send(message: Message) -> None:
        if len(messages) == stuck_at:
            await asyncio.Event().wait()
        messages.append(message)

    async def main() -> None:
        stream = EventStream(call, events(), WRITE_S)  # type: ignore[arg-type]
        await asyncio.wait_for(stream({}, None, send), 20)  # type: ignore[arg-type]

    asyncio.run(main())
    return messages, call.is_closed


@pytest.mark.parametrize("stuck_at", range(5))
def test_a_client_that_leaves_any_of_it_unread_counts_as_gone(stuck_at: int) -> None:
    messages, is_closed = sent(stuck_at)
    assert is_closed and len(messages) == stuck_at
    assert all(message.get("more_body", True) for message in messages)


@pytest.mark.parametrize(("error", "last"), [
    (None, b"data: [DONE]\n\n"), (ClientGone(), b""), (RequestError("no more"), b"no more"), (TimeoutError("too late"), b"server_error")])
def test_a_stream_that_is_read_ends_as_it_went(error: Exception | None, last: bytes) -> None:
    messages, is_closed = sent(None, error)
    assert is_closed and [message.get("more_body") for message in messages] == [None, *[True] * (3 - (error is not None)), False]
    assert last in messages[-1]["body"] and (last or not messages[-1]["body"])
