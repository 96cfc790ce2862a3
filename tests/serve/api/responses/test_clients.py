"""The official client against a really listening server."""
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.serve.api.fakes import Running
from tests.serve.api.responses.asking import CALL, LOOK


class Place(BaseModel):
    at: str


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def test_the_client_reads_a_response_and_goes_on_from_it(client: openai.OpenAI, server: Running) -> None:
    server.engine.script = "a fox"
    first = client.responses.create(model="tiny", input="tell me", extra_body={"seed": 3, "top_k": 5})
    assert first.output_text == "a fox" and first.usage is not None and first.usage.total_tokens > 0
    assert server.engine.requests[0].params.seed == 3 and server.engine.requests[0].params.top_k == 5
    second = client.responses.create(model="tiny", input="which?", previous_response_id=first.id)
    assert client.responses.retrieve(second.id) == second
    listed = [item.to_dict() for item in client.responses.input_items.list(second.id, order="asc", limit=1)]
    assert len(listed) == 3 and listed[1] == first.output[0].to_dict()
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def test_the_client_knows_every_event(client: openai.OpenAI, server: Running) -> None:
    server.engine.script = "I look. " + CALL
    tools: Any = [{**LOOK, "strict": True}]
    with client.responses.stream(model="tiny", input="tell me", tools=tools, max_output_tokens=200) as stream:
        events = list(stream)
        final = stream.get_final_response()
    unknown = [event for event in events if type(event).__name__ == "BaseModel"]
    assert not unknown and events[-1].type == "response.completed" and final.output_text == "I look."
    call = final.output[1]
    assert call.type == "function_call" and call.parsed_arguments == {"at": "the fox"} == json.loads(call.arguments)


def test_the_client_knows_the_events_of_reasoning(thinker: Running) -> None:
    thinker.engine.script = "hm|Red"
    with openai.OpenAI(base_url=thinker.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        with client.responses.stream(model="tiny", input="tell me") as stream:
            texts = [event.text for event in stream if event.type in ("response.reasoning_text.done", "response.output_text.done")]
            final = stream.get_final_response()
    assert texts == ["hm", "Red"]
    thought = final.output[0]
    assert thought.type == "reasoning" and thought.content is not None and thought.content[0].text == "hm" and final.output_text == "Red"


def test_the_client_parses_what_keeps_to_a_schema(client: openai.OpenAI, server: Running) -> None:
    server.engine.script = '{"at": "the wood"}'
    assert client.responses.parse(model="tiny", input="where?", text_format=Place).output_parsed == Place(at="the wood")
    with client.responses.stream(model="tiny", input="where?", text_format=Place) as stream:
        assert stream.get_final_response().output_parsed == Place(at="the wood")
    wanted = server.engine.requests[0].params.structured_outputs
    assert wanted is not None and json.loads(str(wanted.json))["required"] == ["at"]


def test_the_client_raises_the_errors_it_knows(client: openai.OpenAI, server: Running) -> None:
    with pytest.raises(openai.BadRequestError, match="web_search") as refused:
        client.responses.create(model="tiny", input="x", tools=[{"type": "web_search"}])
    assert refused.value.param == "tools[0].type"
    with pytest.raises(openai.NotFoundError, match="resp_x"):
        client.responses.create(model="tiny", input="x", previous_response_id="resp_x")
    server.engine.fail_after = 3
    failed = list(client.responses.create(model="tiny", input="x", stream=True))[-1]
    assert failed.type == "response.failed" and failed.response.error is not None and "log says why" in failed.response.error.message
