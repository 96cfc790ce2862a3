"""POST /v1/responses: one prompt, made of items, and one answer."""
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from penstock.serve.api import fields
from penstock.serve.api.call import Call
from penstock.serve.api.naming import made_id
from penstock.serve.api.parts import Desk
from penstock.serve.api.responses.answer import Answer
from penstock.serve.api.responses.asked import read_asked, rendered
from penstock.serve.api.responses.lookup import find
from penstock.serve.api.room import check_room
from penstock.serve.api.schema import make_request, read_placing, receive
from penstock.serve.api.stream import answered
from penstock.serve.api.values import Values
from penstock.serve.api.wish import constrain

MAX_NAME = "max_output_tokens"


async def create(desk: Desk, http: HttpRequest) -> Response:
    arrived_s, made = desk.clock.now(), made_id(http)
    received = await receive(desk, http, fields.RESPONSES)
    body = received.body
    previous = Values(body).text("previous_response_id", None)
    before = None if previous is None else find(desk, http, previous, "previous_response_id")
    size = received.size + (0 if before is None else before.size)
    asked = await desk.work.run(size, read_asked, desk, received, before, made)
    placing = read_placing(body, http, arrived_s)
    prompt = await desk.work.run(size, rendered, desk, asked)
    check_room(desk, len(prompt.token_ids), asked.wish.params, "input", MAX_NAME)
    params, grammar = await constrain(desk, http, asked.wish, prompt, received.size)
    more = {"prompt": prompt.text, "marks": prompt.marks, "grammar": grammar}
    request = make_request(f"resp_{made}", prompt.token_ids, params, placing, MAX_NAME, **more)
    answer = Answer(desk, http.scope["asker"], made, asked, prompt)
    return await answered(desk, Call(desk, http, [request], arrived_s), answer)
