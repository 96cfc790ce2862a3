"""A name for every request: the client's `X-Request-Id` or one that is made here, sent back with the answer, whatever became of it."""
import uuid

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = b"x-request-id"


class Naming:
    """ASGI: every answer has the header. The scope's "made_id" is new for each request, also where the client's own is sent back: two
    clients may choose the same."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        made = new_id()
        told = next((value for name, value in scope["headers"] if name == HEADER), b"") or made.encode()

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (HEADER, told)]}
            await send(message)

        return await self.app({**scope, "made_id": made, "told_id": told.decode("latin-1")}, receive, named)


def new_id() -> str:
    return uuid.uuid4().hex


def made_id(http: Request) -> str:
    """What the ids of a request's answers, in logs and traces, end with; its `X-Request-Id` where the client sent none."""
    return str(http.scope["made_id"])


def told_id(http: Request) -> str:
    """The `X-Request-Id` of its answer."""
    return str(http.scope["told_id"])


def names_of(answer_id: str, num_prompts: int) -> list[str]:
    """What the engine and traces call the prompts of one answer: as the answer, with a number where there are several."""
    return [answer_id] if num_prompts == 1 else [f"{answer_id}-{at}" for at in range(num_prompts)]
