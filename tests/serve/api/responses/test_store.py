"""What is kept of responses: so many, so many bytes, so long, each for the key that made it."""
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.core.clock import VirtualClock
from penstock.serve.api.keys import Asker
from penstock.serve.api.limits import Limits
from penstock.serve.api.responses.store import Store
from tests.serve.api.fakes import Running, serve
from tests.serve.api.responses.asking import CALL, LOOK, PATH, ask, prompt_of, refused, stream

ANN, BOB = Asker("ann"), Asker("bob")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Store:
    return Store(Limits(kept=3, kept_bytes=100, kept_s=60.0), clock)


def test_the_oldest_go_first_where_there_are_too_many(store: Store) -> None:
    for name in "abcd":
        store.put(ANN, name, b"1", b"[]")
    assert store.get(ANN, "a") is None and all(store.get(ANN, name) for name in "bcd")
    assert store.drop(ANN, "c") and not store.drop(ANN, "c") and store.get(ANN, "c") is None
    store.put(ANN, "e", b"1", b"[]")
    assert store.get(ANN, "b") is not None


def test_the_oldest_go_first_where_they_are_too_large(store: Store) -> None:
    store.put(ANN, "a", b"x" * 40, b"[]")
    store.put(ANN, "b", b"x" * 40, b"x" * 10)
    assert store.get(ANN, "a") is not None
    store.put(ANN, "c", b"x" * 9, b"")
    assert store.get(ANN, "a") is None and store.get(ANN, "b") is not None
    store.drop(ANN, "b")
    store.put(ANN, "d", b"x" * 91, b"")
    assert store.get(ANN, "c") is not None and store.get(ANN, "d") is not None
    store.put(ANN, "e", b"x" * 101, b"")
    assert not any(store.get(ANN, name) for name in "acde")
    store.put(ANN, "f", b"x" * 100, b"")
    assert store.get(ANN, "f") is not None


def test_they_are_forgotten_after_a_while(store: Store, clock: VirtualClock) -> None:
    store.put(ANN, "a", b"1", b"[]")
    clock.advance(59)
    assert store.get(ANN, "a") is not None
    clock.advance(1)
    assert store.get(ANN, "a") is None and not store.drop(ANN, "a")


def test_nobody_sees_what_another_key_made(store: Store) -> None:
    store.put(ANN, "a", b"1", b"[]")
    assert store.get(BOB, "a") is None and store.get(Asker("ann"), "a") is None and not store.drop(BOB, "a")
    assert store.get(ANN, "a") is not None


def test_a_key_that_takes_much_room_pushes_out_its_own(store: Store) -> None:
    store.put(BOB, "of bob", b"x" * 30, b"")
    for name in "abcd":
        store.put(ANN, name, b"1", b"")
    assert store.get(BOB, "of bob") is not None
    assert [name for name in "abcd" if store.get(ANN, name)] == ["c", "d"]
    store.put(ANN, "large", b"x" * 99, b"")
    assert store.get(BOB, "of bob") is not None and store.get(ANN, "large") is None
    store.put(BOB, "more", b"x" * 71, b"")
    assert store.get(BOB, "of bob") is None and store.get(BOB, "more") is not None


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`api-key` is what the key that has no name is called."""
    file: Path = tmp_path_factory.mktemp("keys") / "keys.toml"
    file.write_text('[ann]\nkey = "a"\n[api-key]\nkey = "b"\n')
    running = serve(api_key="c", api_keys=str(file))
    yield running
    running.stop()


def test_a_response_is_found_with_its_own_key_alone(keyed: Running) -> None:
    def send(method: str, path: str, key: str, body: object = None) -> httpx.Response:
        return keyed.client.request(method, path, json=body, headers={"Authorization": f"Bearer {key}"})

    for key in "abc":
        found = send("POST", PATH, key, {"input": "x", "max_output_tokens": 2}).json()
        for other in "abc":
            status = 200 if other == key else 404
            assert send("GET", f"{PATH}/{found['id']}", other).status_code == status
            assert send("GET", f"{PATH}/{found['id']}/input_items", other).status_code == status
            continued = {"input": "x", "max_output_tokens": 2, "previous_response_id": found["id"]}
            assert send("POST", PATH, other, continued).status_code == status
            if other != key:
                assert send("DELETE", f"{PATH}/{found['id']}", other).status_code == 404
        assert send("GET", f"{PATH}/{found['id']}", key).json() == found
    assert keyed.client.get(f"{PATH}/x").status_code == 401


@pytest.mark.parametrize("streamed", [False, True])
def test_a_conversation_goes_on_where_it_was(server: Running, streamed: bool) -> None:
    server.engine.script = "a fox"
    first = stream(server, instructions="be kind")[-1]["response"] if streamed else ask(server, instructions="be kind")
    server.engine.script = "red"
    second = ask(server, input="which?", previous_response_id=first["id"])
    assert prompt_of(server) == "<user>tell me</user><assistant>a fox</assistant><user>which?</user><assistant>"
    assert second["previous_response_id"] == first["id"]
    assert server.client.delete(f"{PATH}/{first['id']}").json() == {"id": first["id"], "object": "response", "deleted": True}
    ask(server, input="why?", previous_response_id=second["id"], instructions="be short")  # which has all that came before it
    assert prompt_of(server) == ("<system>be short</system><user>tell me</user><assistant>a fox</assistant><user>which?</user>"
                                 "<assistant>red</assistant><user>why?</user><assistant>")
    param, message = refused(server, 404, previous_response_id=first["id"])
    assert param == "previous_response_id" and first["id"] in message and "60 minutes" in message


def test_a_conversation_goes_on_behind_a_call_that_was_cut_off(server: Running) -> None:
    server.engine.script = CALL
    begun = server.engine.tokenizer.encode(CALL.partition("fox")[0], False)
    cut = ask(server, tools=[LOOK], tool_choice="required", max_output_tokens=len(begun))
    (item,) = cut["output"]
    assert (item["type"], item["status"], item["arguments"]) == ("function_call", "incomplete", '{"at": "the fox')
    found = ask(server, input="and?", previous_response_id=cut["id"])
    assert prompt_of(server) == "<user>tell me</user><user>and?</user><assistant>"
    listed = server.client.get(f"{PATH}/{found['id']}/input_items").json()["data"]
    assert [item["type"] for item in listed] == ["message"] * 2
    assert server.client.get(f"{PATH}/{cut['id']}").json() == cut
    param, message = refused(server, input=[{"role": "user", "content": "tell me"}, item])
    assert param == "input[1].arguments" and "leave the item out" in message


def test_a_response_can_be_had_again_as_it_was(server: Running) -> None:
    server.engine.script = "I look. " + CALL
    for found in (ask(server, tools=[LOOK]), stream(server, tools=[LOOK])[-1]["response"]):
        assert server.client.get(f"{PATH}/{found['id']}").json() == found


def test_what_is_not_to_be_stored_is_not(server: Running) -> None:
    found = ask(server, store=False)
    assert found["store"] is False
    response = server.client.get(f"{PATH}/{found['id']}")
    error = response.json()["error"]
    assert response.status_code == 404 and (error["type"], error["code"]) == ("not_found_error", "response_not_found")
    assert server.client.delete(f"{PATH}/{found['id']}").status_code == 404
    assert refused(server, 404, previous_response_id=found["id"])[0] == "previous_response_id"


def test_all_that_a_response_was_given_is_listed(server: Running) -> None:
    server.engine.script = "a fox"
    first = ask(server)
    more = [{"role": "assistant", "content": "red"}, {"role": "user", "content": "why?"}]
    second = ask(server, input=more, previous_response_id=first["id"])
    path = f"{PATH}/{second['id']}/input_items"
    found = server.client.get(path, params={"order": "asc"}).json()
    assert [(item["role"], item["content"][0]["type"], item["content"][0]["text"]) for item in found["data"]] == [
        ("user", "input_text", "tell me"), ("assistant", "output_text", "a fox"), ("assistant", "output_text", "red"),
        ("user", "input_text", "why?")]
    ids = [item["id"] for item in found["data"]]
    assert (found["object"], found["first_id"], found["last_id"], found["has_more"]) == ("list", ids[0], ids[-1], False)
    newest = server.client.get(path, params={"limit": 3}).json()
    assert [item["id"] for item in newest["data"]] == ids[:0:-1] and newest["has_more"]
    rest = server.client.get(path, params={"limit": 3, "after": newest["last_id"]}).json()
    assert [item["id"] for item in rest["data"]] == ids[:1] and not rest["has_more"]
    none = server.client.get(path, params={"after": ids[0]}).json()
    assert none["data"] == [] and none["first_id"] is None


@pytest.mark.parametrize(("path", "param"), [
    ("/input_items?limit=0", "limit"), ("/input_items?limit=101", "limit"), ("/input_items?limit=%C2%B2", "limit"),
    ("/input_items?order=up", "order"), ("/input_items?after=msg_x", "after"), ("/input_items?include=x", "include"),
    ("?stream=true", "stream"), ("?include[]=x", "include[]"),
])
def test_a_query_that_cannot_be_obeyed_is_refused(server: Running, path: str, param: str) -> None:
    response = server.client.get(f"{PATH}/{ask(server, max_output_tokens=1)['id']}{path}")
    assert response.status_code == 400 and response.json()["error"]["param"] == param
