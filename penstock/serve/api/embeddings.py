"""POST /v1/embeddings: one pooled vector per input, in the inputs' order."""
import base64
import math
import struct
from collections.abc import Sequence

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from penstock.core.errors import PenstockError, RequestError
from penstock.core.types import SamplingParams
from penstock.serve.api import fields
from penstock.serve.api.call import Call
from penstock.serve.api.errors import json_response
from penstock.serve.api.naming import made_id, names_of
from penstock.serve.api.parts import Desk
from penstock.serve.api.prompts import read_prompts
from penstock.serve.api.room import check_room
from penstock.serve.api.schema import make_request, read_placing, receive
from penstock.serve.api.usage import usage_object
from penstock.serve.api.values import Values
from penstock.serve.engine.requests import Usage

PARAMS = SamplingParams(max_tokens=1)
CHARACTERS = 8  # of a number, or more
MAX_INPUTS = 2048  # in one request


async def create(desk: Desk, http: HttpRequest) -> Response:
    arrived_s = desk.clock.now()
    width = desk.parts.width
    received = await receive(desk, http, fields.EMBEDDINGS, None if width is None else {"dimensions": width})
    body = received.body
    values = Values(body)
    encoding = values.choice("encoding_format", "float", ("float", "base64"))
    placing = read_placing(body, http, arrived_s)
    special = values.boolean("add_special_tokens", True)
    prompts = await desk.work.run(received.size, read_prompts, desk, body, "input", special, MAX_INPUTS, False)
    for at, prompt in enumerate(prompts):
        check_room(desk, len(prompt.token_ids), None, "input" if len(prompts) == 1 else f"input[{at}]")
    names = names_of(f"embd-{made_id(http)}", len(prompts))
    requests = [make_request(name, p.token_ids, PARAMS, placing, prompt=p.text, wants_embedding=True)
                for name, p in zip(names, prompts, strict=True)]
    call = Call(desk, http, requests, arrived_s)
    call.start(at_once=desk.parts.config.max_queue)
    vectors, usages = await collect(call)
    usage = usage_object(usages)
    size = CHARACTERS * sum(map(len, vectors))

    def answer() -> Response:
        data = [{"object": "embedding", "index": at, "embedding": written(vector, encoding)} for at, vector in enumerate(vectors)]
        told = {name: usage[name] for name in ("prompt_tokens", "total_tokens")}
        return json_response({"object": "list", "data": data, "model": desk.model, "usage": told}, headers=call.headers)

    return await desk.work.run(size, answer)


async def collect(call: Call) -> tuple[list[Sequence[float]], list[Usage]]:
    """What a call that was started yields; closes it."""
    found: dict[int, Sequence[float]] = {}
    usages = []
    try:
        async for number, delta in call.deltas():
            if delta.embedding is not None:
                found[number] = delta.embedding
            if delta.usage is not None:
                usages.append(delta.usage)
    finally:
        call.close()
    if len(found) < len(call.requests):
        raise PenstockError("the engine gave no embedding")
    return [found[number] for number in range(len(call.requests))], usages


def written(vector: Sequence[float], encoding: str) -> list[float] | str:
    """As numbers that 32-bit floats hold exactly, or as those floats' bytes in base64. Raises RequestError for NaN and infinity."""
    wrong = next((value for value in vector if not math.isfinite(value)), None)
    if wrong is not None:
        raise RequestError(f"the model gave an embedding with {wrong}: its weights hold NaN, or something overflowed", status=500)
    data = struct.pack(f"<{len(vector)}f", *vector)
    return base64.b64encode(data).decode() if encoding == "base64" else list(struct.unpack(f"<{len(vector)}f", data))
