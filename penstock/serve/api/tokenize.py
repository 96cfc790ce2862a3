"""POST /tokenize and /detokenize, in vLLM's shapes."""
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from penstock.core.errors import RequestError
from penstock.serve.api import fields
from penstock.serve.api.errors import json_response
from penstock.serve.api.parts import Desk
from penstock.serve.api.rendering import read_conversation, render
from penstock.serve.api.schema import receive
from penstock.serve.api.values import Values

OF_MESSAGES = ("add_generation_prompt", "continue_final_message", "tools", "chat_template_kwargs")


async def tokenize(desk: Desk, http: HttpRequest) -> Response:
    received = await receive(desk, http, fields.TOKENIZE)
    return await desk.work.run(received.size, tokenized, desk, received.body)


def tokenized(desk: Desk, body: Mapping[str, Any]) -> Response:
    ids = token_ids(desk, body)
    found: dict[str, Any] = {"count": len(ids), "max_model_len": desk.parts.engine.max_model_len, "tokens": ids}
    if Values(body).boolean("return_token_strs", False):
        found["token_strs"] = [desk.parts.tokenizer.token_text(token_id) for token_id in ids]
    return json_response(found)


def token_ids(desk: Desk, body: Mapping[str, Any]) -> Sequence[int]:
    values = Values(body)
    if values.given("prompt") == values.given("messages"):
        raise RequestError("give either prompt or messages", param="prompt")
    if values.given("messages"):
        return render(desk, read_conversation(desk, body)).token_ids
    for name in OF_MESSAGES:
        if values.given(name):
            raise RequestError(f"{name} goes with messages, not with prompt", param=name)
    return desk.parts.tokenizer.encode(values.text("prompt", ""), values.boolean("add_special_tokens", True))


async def detokenize(desk: Desk, http: HttpRequest) -> Response:
    received = await receive(desk, http, fields.DETOKENIZE)
    return await desk.work.run(received.size, lambda: json_response({"prompt": text_of(desk, received.body)}))


def text_of(desk: Desk, body: Mapping[str, Any]) -> str:
    if body.get("tokens") is None:
        raise RequestError("tokens is missing; it must be a list of token ids", param="tokens")
    return desk.parts.tokenizer.decode(Values(body).token_ids("tokens", desk.vocab_size))
