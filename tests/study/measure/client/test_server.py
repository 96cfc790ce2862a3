import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from penstock.core.errors import PenstockError, RequestError, UsageError
from penstock.core.slo import Objectives
from penstock.study.measure.client.connections import Address, address_of
from penstock.study.measure.client.openai import TOO_LONG, Ask, Wish
from penstock.study.measure.client.server import Access, Server, context_of, first_model, named_model
from penstock.study.measure.client.target import Stopwatch
from penstock.study.measure.metrics import Warmup, figures
from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import parse_slo
from tests.study.measure.client.virtual import ADDRESS, END, STREAM, Mock, Reply, answer, chunk, event, plain, run, server

ASK = Ask((1, 2, 3), num_output=4)
CHAT = Ask(None, ({"role": "user", "content": "hi"},), 60, 500)
WISH = Wish("m")


def send(mock: Mock, ask: Ask = ASK, wish: Wish = WISH, times: int = 1, timeout_s: float = 600.0) -> list[Sample]:
    async def main() -> list[Sample]:
        target, watch = server(mock, wish, ("k1", "k2"), timeout_s)
        watch.start()
        samples = [Sample(number, watch()) for number in range(times)]
        for sample in samples:
            sample.due_s = watch()
            await target.send(target.prepare(ask), sample)
        return samples

    return run(main())


def prepared(ask: Ask, wish: Wish = WISH, most: int | None = None) -> bytes:
    """`most`: tokens of the server's context."""
    async def main() -> Any:
        return server(Mock(lambda asked: Reply([])), wish, max_model_len=most)[0].prepare(ask)

    return bytes(run(main()))


def one(*pieces: tuple[float, bytes], closes: bool = False, **options: Any) -> Sample:
    return send(Mock(lambda asked: Reply(pieces, closes)), **options)[0]


@pytest.mark.parametrize(("keys", "headers", "said"), [
    (("sk\nX: y",), {}, r"--api-key has '\\n'"), ((), {"X": "a\r"}, r"--header has '\\r'"), ((), {"X": "\u2603"}, "--header has '\u2603'")])
def test_what_a_header_cannot_hold_is_refused(keys: tuple[str, ...], headers: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Access(address_of("http://box"), keys, headers)


def test_several_answers_to_a_request_are_refused() -> None:
    for one in (1, None):
        assert Wish("m", more={"n": one}).more == {"n": one}
    with pytest.raises(UsageError, match="n=2 asks for several answers"):
        Wish("m", more={"n": 2})


def test_a_header_replaces_the_clients_own_in_whatever_case() -> None:
    mock, given = Mock(lambda asked: answer(asked, 0.1, 0.1)), {"host": "x", "content-type": "application/json; charset=utf-8"}

    async def main() -> None:
        target = Server(Access(ADDRESS, ("k",), given), WISH, mock.connect, Stopwatch(asyncio.get_running_loop().time))
        await target.send(target.prepare(ASK), Sample(0, 0.0))

    run(main())
    assert mock.asked[0].headers.keys() == {"host", "Accept", "Authorization", "content-type", "Content-Length"}
    assert given.items() <= mock.asked[0].headers.items()


def test_keys_take_turns() -> None:
    mock = Mock(lambda asked: answer(asked, 0.1, 0.1))
    send(mock, times=3)
    assert [asked.headers["Authorization"] for asked in mock.asked] == ["Bearer k1", "Bearer k2", "Bearer k1"]
    assert mock.asked[0].headers["Host"] == "mock" and mock.num_connections == 1


def test_what_is_asked_for() -> None:
    mock = Mock(lambda asked: answer(asked, 0.1, 0.1))
    send(mock, wish=Wish("m", more={"temperature": 0}))
    assert mock.asked[0].body == {
        "model": "m", "prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True},
        "temperature": 0}
    send(mock, Ask(None, ({"role": "user", "content": "hi"},), num_output=4), Wish("m", ignore_eos=False))
    assert mock.asked[1].path == "/v1/chat/completions" and "ignore_eos" not in mock.asked[1].body


@pytest.mark.parametrize(("more", "sent"), [
    ({"max_completion_tokens": 9}, {"max_completion_tokens": 9}),
    ({"max_completion_tokens": None}, {"max_completion_tokens": None, "max_tokens": 4}),
    ({"max_completion_tokens": 9, "max_tokens": 8}, {"max_completion_tokens": 9, "max_tokens": 8})])
def test_a_chat_has_one_length_of_its_answer(more: dict[str, Any], sent: dict[str, Any]) -> None:
    """Two are refused, by OpenAI and by Penstock. Completions have no such field: it is left to the server what it makes of it."""
    bodies = [json.loads(prepared(ask, Wish("m", more=more)).partition(b"\r\n\r\n")[2]) for ask in (replace(CHAT, num_output=4), ASK)]
    chat, completion = ({name: body[name] for name in body if name.startswith("max_")} for body in bodies)
    assert chat == sent and completion == {"max_tokens": 4} | more


def test_objectives_are_sent_where_they_are_asked_for() -> None:
    mock = Mock(lambda asked: answer(asked, 0.1, 0.1))
    send(mock, wish=Wish("m", objectives=Objectives(0.3, None, 5.0)))
    send(mock)
    assert [asked.headers.get("x-slo") for asked in mock.asked] == ["ttft=300ms,e2e=5000ms", None] and "slo" not in mock.asked[0].body


def test_a_server_that_serves_no_objectives_says_so() -> None:
    told = {"choices": [{"text": "abc", "finish_reason": "length"}]}

    async def notes(more: str) -> list[str]:
        target, watch = server(Mock(lambda asked: Reply([(0.1, plain(200, told, more))])), Wish("m", objectives=Objectives(0.3)))
        await target.send(target.prepare(ASK), Sample(0, watch()))
        return target.notes()

    assert run(notes("X-SLO-Warning: only counted\r\n")) == ["the server warns about the SLO that requests carried: only counted"]
    assert not run(notes(""))


def test_an_answer_that_is_not_streamed_has_no_first_token() -> None:
    whole = {"choices": [{"text": "abc", "finish_reason": "length"}], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    sample = one((0.7, plain(200, whole)), wish=Wish("m", stream=False))
    assert sample.ok and sample.unstreamed and sample.first_s is None and sample.e2e_s == pytest.approx(0.7) and sample.num_output == 4


TOKEN = event({"choices": [{"index": 0, "text": "a", "finish_reason": None}]})
LAST = event({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})


def test_without_usage_pieces_are_counted() -> None:
    sample = one((0.1, STREAM + TOKEN), (0.1, TOKEN), (0.1, LAST + END))
    assert sample.ok and sample.num_output == 2 and sample.uncounted and sample.finish_reason == "stop"
    assert sample.e2e_s == pytest.approx(0.2), "the piece that only ends the answer is no token"


@pytest.mark.parametrize("thoughts", [(), ({"reasoning_content": "so"},), ({"content": "<think>"}, {"content": "so</think>"})])
def test_reasoning_that_did_not_come_takes_no_time_per_token(thoughts: tuple[dict[str, str], ...]) -> None:
    """It is counted all the same. Where some of it came, all did."""
    deltas = (*thoughts, {"content": "a"}, {"content": "b"}, {"content": "c"})
    pieces = [event({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
    ended = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
             "usage": {"completion_tokens": 13, "completion_tokens_details": {"reasoning_tokens": 10}}}
    ask = Ask(None, ({"role": "user", "content": "hi"},), num_output=13)
    sample = one((0.0, STREAM), *((0.1, piece) for piece in pieces), (0.0, event(ended) + END), ask=ask)
    assert sample.tpot_s == pytest.approx(0.1 * (len(pieces) - 1) / (12 if thoughts else 2)) and sample.num_output == 13
    assert figures([sample], Warmup(), None).rates.tokens_per_chunk == pytest.approx(13 / len(pieces) if thoughts else 1.0)


def test_events_may_come_in_crumbs() -> None:
    crumbs = STREAM + TOKEN + TOKEN + LAST + END
    sample = one(*((0.001, crumbs[at : at + 1]) for at in range(len(crumbs))))
    assert sample.ok and sample.num_output == 2


def test_a_stream_is_one_in_whatever_case_it_is_named() -> None:
    named = STREAM.replace(b"text/event-stream", b"Text/Event-Stream; charset=UTF-8")
    assert named != STREAM and one((0.1, named + TOKEN), (0.1, LAST + END)).ttft_s == pytest.approx(0.1)


def test_an_answer_of_no_token_is_none() -> None:
    """As it is in process."""
    told = {"choices": [{"text": "", "finish_reason": "stop"}], "usage": {"completion_tokens": 0}}
    for pieces in ([(0.1, plain(200, told))], [(0.1, STREAM + event(told) + END)]):
        assert one(*pieces).error == "the answer has no tokens"


def test_errors_are_told() -> None:
    cases = {
        "status 429: busy": [(0.1, plain(429, {"error": {"message": "busy"}}))],
        "status 400: bad field": [(0.1, plain(400, {"detail": "bad field"}))],
        "status 502: Bad Gateway": [(0.1, plain(502, "Bad Gateway"))],
        "status 503: no reason given": [(0.1, plain(503, {"error": {"message": ""}}))],
        "no reason given": [(0.1, STREAM + event({"error": {"message": ""}}) + END)],
        "status 500: no reason given": [(0.1, plain(500, {"error": {"message": None}}))],
        "status 504: no reason given": [(0.1, plain(504, {"error": None}))],
        "status 507: no reason given": [(0.1, plain(507, {"error": {"message": "  "}}))],
        "status 500: half ? a letter": [(0.1, plain(500, {"error": {"message": "half \ud800 a letter"}}))],
        "went wrong": [(0.1, STREAM + TOKEN), (0.1, event({"error": {"message": "went wrong"}}) + b"0\r\n\r\n")],
        "the stream ended without a finish reason": [(0.1, STREAM + TOKEN), (0.1, b"0\r\n\r\n")],
        "the answer has no tokens": [(0.1, STREAM + END)],
        "the answer begins with 'SSH-2.0-x', not with HTTP/1.1 and a status": [(0.1, b"SSH-2.0-x\r\n\r\n")],
        "an event is not JSON: b'{'": [(0.1, STREAM + event(b"{") + END)],
        "the answer is not JSON: b''": [(0.1, plain(200, ""))],
    }
    for error, pieces in cases.items():
        sample = one(*pieces)
        assert sample.error == error and not sample.ok and sample.end_s is not None


@pytest.mark.parametrize(("usage", "num"), [(1, 1), (3, 3)])
def test_tokens_without_text_came_with_the_end(usage: int, num: int) -> None:
    """As special ones do, which a reader never sees: their TTFT is known no better, and it is none that was not kept."""
    ended = event({"choices": [{"text": "", "finish_reason": "length"}], "usage": {"prompt_tokens": 3, "completion_tokens": usage}})
    sample = one((0.1, STREAM), (0.2, ended + END))
    assert sample.ok and sample.num_output == num and sample.ttft_s == sample.e2e_s == pytest.approx(0.3)
    assert sample.publish_s is None and sample.tpot_s is None and sample.came_at_once is (num > 1)
    found = figures([sample], Warmup(), parse_slo("ttft=400ms,tpot=50ms"))
    assert found.goodput is not None and found.goodput.kept.value == 1.0 and found.rates.output_tokens_per_s == pytest.approx(num / 0.3)


def test_text_that_no_usage_counts_is_counted_by_its_pieces() -> None:
    none = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 0}})
    sample = one((0.1, STREAM + TOKEN), (0.1, TOKEN + LAST + none + END))
    assert sample.ok and sample.num_output == 2 and sample.uncounted and sample.tpot_s == pytest.approx(0.1)


def test_broken_characters_are_replaced_as_in_any_stream_of_events() -> None:
    broken = event(b'{"choices": [{"text": "a\xff\xc3"}]}')
    sample = one((0.1, STREAM + broken[:30]), (0.1, broken[30:] + LAST + END))
    assert sample.ok and sample.num_output == 1


STRANGE: list[dict[str, Any]] = [
    {"choices": ["a"]}, {"choices": {"text": "a"}}, {"choices": 7}, {"choices": [{"text": ["a"]}]}, {"choices": [{"text": 7}]},
    {"choices": [{"delta": "a", "message": "a"}]}, {"usage": [1]}, {"usage": {"completion_tokens_details": 7}}]


@pytest.mark.parametrize("told", STRANGE)
def test_an_answer_of_another_form_is_an_error_at_once(told: dict[str, Any]) -> None:
    streamed = one((0.1, STREAM + event(told) + TOKEN + END))
    whole = one((0.1, plain(200, told)), wish=Wish("m", stream=False))
    for sample in (streamed, whole):
        assert not sample.ok and "no answer in OpenAI's form" in (sample.error or "") and sample.end_s == pytest.approx(0.1)


def test_usage_that_is_no_number_is_passed_over() -> None:
    usage = {"prompt_tokens": "3", "completion_tokens": -1, "prompt_tokens_details": {"cached_tokens": "x"}}
    sample = one((0.1, STREAM + TOKEN + LAST + event({"choices": [], "usage": usage}) + END))
    assert sample.ok and (sample.num_prompt, sample.num_output, sample.num_cached) == (None, 1, 0)


def test_a_closed_connection_in_the_middle_of_an_answer_is_an_error() -> None:
    assert "middle" in (one((0.1, STREAM + TOKEN), (0.1, TOKEN), closes=True).error or "")


class Unreached(Mock):
    """Connections to it are given up by the kernel, whose error is a TimeoutError as well."""

    async def connect(self, connection: Any) -> None:
        raise TimeoutError(110, "Connect call failed ('10.0.0.1', 80)")


def test_what_the_kernel_gives_up_is_not_what_took_too_long() -> None:
    mock = Unreached(lambda asked: answer(asked, 0.1, 0.1))
    assert [sample.error for sample in send(mock)] == ["Connection timed out"]
    with pytest.raises(PenstockError, match="http://mock/v1 cannot be reached: Connection timed out"):
        run(asked_of(mock, first_model))


async def asked_of(mock: Mock, ask: Any) -> Any:
    return await ask(server(mock, WISH)[0])


def test_a_fresh_connection_that_is_closed_is_an_error() -> None:
    assert one(closes=True).error == "the server closed the connection without an answer"


def test_a_server_that_closes_after_each_answer() -> None:
    body = json.dumps({"choices": [{"text": "a", "finish_reason": "stop"}]}).encode()
    said = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + body
    mock = Mock(lambda asked: Reply([(0.1, said)], closes=True))
    assert all(sample.ok for sample in send(mock, times=2)) and mock.num_connections == 2


def test_an_answer_that_takes_too_long_fails_and_its_connection_is_left() -> None:
    mock = Mock(lambda asked: answer(asked, 9.0 if len(mock.asked) == 1 else 0.1, 0.1))
    late, fine = send(mock, times=2, timeout_s=2.0)
    assert late.error == "no complete answer within 2 s" and late.end_s == pytest.approx(2.0) and fine.ok and mock.num_connections == 2


def test_thoughts_in_the_text_are_hidden() -> None:
    texts = ["<th", "ink>so", "mething</thi", "nk>", "\n", "Yes"]
    pieces = [(0.1, event({"choices": [{"index": 0, "text": text}]})) for text in texts]
    sample = one((0.0, STREAM), *pieces, (0.0, LAST + END))
    assert sample.ttft_s == pytest.approx(0.1) and sample.publish_s == pytest.approx(0.6)


def test_text_that_only_begins_like_a_thought_is_shown() -> None:
    pieces = [(0.1, event({"choices": [{"index": 0, "text": text}]})) for text in ("<t", "able>", "x")]
    sample = one((0.0, STREAM), *pieces, (0.0, LAST + END))
    assert sample.publish_s == pytest.approx(0.2) and len(sample.chunk_s) == 3


def test_comments_and_other_events_are_passed_over() -> None:
    passed = chunk(b": ping\r\n\r\n") + chunk(b"event: x\nid: 7\n\n") + chunk(b"event: ping\ndata: \n\ndata:\n\n")
    sample = one((0.1, STREAM + passed), (0.1, TOKEN), (0.0, LAST + END))
    assert sample.ok and sample.ttft_s == pytest.approx(0.2)


def models(body: Any, status: int = 200, ask: Any = first_model, base: str = "/v1") -> Any:
    class Listing(Mock):
        def take(self, pipe: Any, request: bytes) -> None:
            listed = request.startswith(f"GET {base}/models HTTP".encode())
            pipe.reply(Reply([(0.0, plain(status, body) if listed else plain(404, "not here"))]), 0.0)

    async def main() -> Any:
        access = Access(Address("http", "mock", 80, base))
        return await ask(Server(access, WISH, Listing(lambda asked: Reply([])).connect, Stopwatch(asyncio.get_running_loop().time)))

    return run(main())


def test_what_the_context_does_not_hold_is_not_sent() -> None:
    """Where the server tells its context, and the tokens are known."""
    for ask, most in ((Ask((1,) * 60, (), 60, 5), 64), (Ask((1,) * 64, (), 64), 64)):
        with pytest.raises(RequestError, match=f"a prompt of {ask.num_prompt} tokens .* are 65; the server's context holds 64") as refused:
            prepared(ask, most=most)
        assert refused.value.code == TOO_LONG
    for ask, most in ((Ask((1,) * 60, (), 60, 4), 64), (Ask((1,) * 60, (), 60, 5), None), (Ask("a text", (), None, 5), 4)):
        assert b"POST" in prepared(ask, most=most)
    assert b"POST" in prepared(Ask((1,) * 60, (), 60, 500), Wish(more={"max_tokens": 4}), 64)
    assert b"POST" in prepared(CHAT, Wish(more={"max_completion_tokens": 4}), 64)
    for long in ({"max_completion_tokens": 5}, {"max_tokens": 4, "max_completion_tokens": 5}, {"max_output_tokens": 4}):
        with pytest.raises(RequestError, match="the server's context holds 64"):
            prepared(CHAT, Wish(more=long), 64)
    assert [context_of({"max_model_len": told}) for told in (64, None, "64", 0, True)] == [64, None, None, None, None]
    assert context_of({}) is None


def test_a_model_is_looked_up_where_it_is_listed() -> None:
    listed = {"data": [{"id": "a"}, {"id": "b", "max_model_len": 7}]}
    assert models(listed, ask=lambda target: named_model(target, "b")) == listed["data"][1]
    for body, status in ((listed, 404), ("no", 200), ({"data": []}, 200)):
        assert models(body, status, lambda target: named_model(target, "b")) == {}


@pytest.mark.parametrize(("body", "status", "word"), [
    ({"data": []}, 200, "which models"), ("no", 200, "not a list"), ({"error": 1}, 401, "answers only to a valid key"),
    ({}, 404, r"status 404\): --served-model-name"), ("later", 503, "http://mock/v1/models answered with status 503: later"),
    ("Moved", 301, "status 301: Moved"), ({"data": ["a"]}, 200, "not a list"), ({"data": {"id": "a"}}, 200, "not a list")])
def test_servers_that_list_no_model(body: Any, status: int, word: str) -> None:
    with pytest.raises(PenstockError, match=word):
        models(body, status)


@pytest.mark.parametrize("base", ["/v1", "/v1beta/openai", "/openai/v1"])
def test_the_first_model_is_asked_for(base: str) -> None:
    assert models({"data": [{"id": "a"}, {"id": "b"}]}, base=base)["id"] == "a"
