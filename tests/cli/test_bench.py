"""`penstock bench` against a server that is really there, and what it refuses."""
import http.server
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.bench import BenchOptions, told, warmup_of
from penstock.study.measure import job
from penstock.study.measure.interrupt import SAME_S
from penstock.study.measure.metrics import Warmup
from penstock.study.measure.report import text as in_text

Command = Callable[[list[str]], tuple[int, str, str]]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.metrics_may_be_read.wait(60)  # type: ignore[attr-defined]
        if self.path == "/v1/models":
            self.answer(200, "application/json", json.dumps({"data": [{"id": "little", "max_model_len": 512}]}).encode())
        else:
            self.answer(404, "text/plain", b"none")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append((self.headers.get("Authorization"), body))  # type: ignore[attr-defined]
        self.server.slos.append(self.headers.get("x-slo"))  # type: ignore[attr-defined]
        if body.get("temperature") == 9:
            self.answer(400, "application/json", json.dumps({"error": {"message": body.get("user", "too hot")}}).encode())
            return
        if body.get("whole"):
            told = {"choices": [{"text": "a b", "finish_reason": "length"}], "usage": {"prompt_tokens": 8, "completion_tokens": 2}}
            self.answer(200, "application/json", json.dumps(told).encode())
            return
        events = [{"choices": [{"index": 0, "text": "a ", "finish_reason": None}]} for _ in range(body["max_tokens"])]
        events[-1]["choices"][0]["finish_reason"] = "length"  # type: ignore[index]
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}
        stream = "".join(f"data: {json.dumps(event)}\n\n" for event in [*events, {"choices": [], "usage": usage}]) + "data: [DONE]\n\n"
        self.answer(200, "text/event-stream", stream.encode())

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def served() -> Iterator[Any]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.bodies, server.slos = [], []  # type: ignore[attr-defined]
    server.metrics_may_be_read = threading.Event()  # type: ignore[attr-defined]
    server.metrics_may_be_read.set()  # type: ignore[attr-defined]
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that was killed would show in a later test's stderr
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.metrics_may_be_read.set()  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_is_measured(penstock: Command, served: Any, tmp_path: Path) -> None:
    page, kept, samples = tmp_path / "r.html", tmp_path / "r.json", tmp_path / "s.jsonl"
    url = f"http://127.0.0.1:{served.server_port}"
    status, out, err = penstock([
        "bench", url, "--arrivals", "constant:rate=200", "--dataset", "synthetic:input=12,output=3", "--requests", "20",
        "--api-key", "s3cret", "--slo", "e2e=1min", "--price", "2", "--tdp", "50", "--report", str(page), "--save", str(kept),
        "--samples", str(samples), "--json"])
    assert status == 0, err
    result = json.loads(out.splitlines()[-1])
    assert result["requests"] | {"at_once": 0} == {  # all it sends may come in one read
        "sent": 20, "measured": 18, "completed": 18, "refused": 0, "failed": 0, "refusals": {}, "errors": {}, "unstreamed": 0, "at_once": 0}
    assert result["goodput"]["kept_share"]["value"] == 1.0 and result["target"]["model"] == "little" and result["energy"]["source"]
    assert result["ttft_by_prompt_tokens"][0]["from"] == 8 and result["cost"]["usd_per_hour"] == 2.0
    assert json.loads(kept.read_text()) == result and len(samples.read_text().splitlines()) == 20
    assert json.loads(samples.read_text().splitlines()[0])["num_output"] == 3
    assert len(served.bodies) == 20 and {key for key, _ in served.bodies} == {"Bearer s3cret"}
    assert all(len(body["prompt"]) == 12 and body["model"] == "little" for _, body in served.bodies)
    for text in (out, err, page.read_text(), kept.read_text()):
        assert "s3cret" not in text
    assert "<svg" in page.read_text() and "goodput" in err


def test_prompts_are_new_each_time_unless_seeded(penstock: Command, served: Any) -> None:
    args = ["bench", f"http://127.0.0.1:{served.server_port}", "--requests", "1", "--dataset", "synthetic:input=8,output=1"]
    for more in ([], [], ["--load-seed", "5"], ["--load-seed", "5"]):
        assert penstock([*args, *more])[0] == 0
    one, two, three, four = (body["prompt"] for _, body in served.bodies)
    assert one != two and three == four


def test_a_server_is_told_the_slo_where_that_is_asked_for(penstock: Command, served: Any) -> None:
    args = ["bench", f"http://127.0.0.1:{served.server_port}", "--requests", "1", "--dataset", "synthetic:input=8,output=1", "--json",
            "--slo", "ttft=0.3s,e2el=5s"]
    said = [json.loads(penstock([*args, *more])[1].splitlines()[-1])["load"]["send_slo"] for more in ([], ["--send-slo"])]
    assert said == [False, True] and served.slos == [None, "ttft=300ms,e2e=5000ms"]


def test_a_server_that_refuses_everything(penstock: Command, served: Any) -> None:
    status, _, err = penstock(["bench", f"http://127.0.0.1:{served.server_port}", "--requests", "4", "--body", '{"temperature": 9}'])
    assert status == 1 and "too hot" in err and "ignore" not in err


def test_a_server_that_does_not_know_ignore_eos(penstock: Command, served: Any) -> None:
    more = {"temperature": 9, "user": "Unrecognized request argument supplied: ignore_eos"}
    status, _, err = penstock(["bench", f"http://127.0.0.1:{served.server_port}", "--requests", "2", "--body", json.dumps(more)])
    assert status == 1 and "supplied: ignore_eos; --no-ignore-eos leaves that out" in err


@pytest.mark.parametrize("named", [(), ("--served-model-name", "little")])
def test_what_is_longer_than_the_servers_context_is_refused_before_anything_is_sent(
    penstock: Command, served: Any, named: tuple[str, ...]
) -> None:
    args = ["bench", f"http://127.0.0.1:{served.server_port}", *named, "--dataset", "synthetic:input=510,output=3"]
    status, _, err = penstock(args)
    assert status == 2 and "a prompt of 510 tokens and an answer of 3 are 513; the server's context holds 512" in err and not served.bodies


def test_a_server_that_is_not_there(penstock: Command) -> None:
    for url in ("http://127.0.0.1:9", "http://localhost:9", "HTTP://localhost:9"):
        status, _, err = penstock(["bench", url, "--requests", "1"])
        assert status == 1 and err == f"error: {url.lower()}/v1 cannot be reached: Connection refused\n"
    assert penstock(["bench", "http://127.0.0.1:9", "--requests", "1", "--served-model-name", "little"]) == (
        1, "", "error: http://127.0.0.1:9/v1 cannot be reached: Connection refused\n")


@pytest.mark.parametrize("text", ["127.0.0.1:8000", "localhost:8000/v1", "[::1]:8000", "gpu-3.example.org:80"])
@pytest.mark.parametrize("command", [["bench"], ["explain"], ["tune", "--slo", "ttft=1s"]])
def test_an_address_without_a_scheme_is_told_how_it_is_given(penstock: Command, command: list[str], text: str) -> None:
    assert penstock([*command, text]) == (2, "", f"error: a server is given as its URL: http://{text}\n")


def test_a_report_may_be_called_like_an_address(penstock: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run:8000").write_text("{}")
    assert "run:8000 is not a report" in penstock(["explain", "run:8000"])[2]


@pytest.mark.parametrize(("args", "word"), [
    (["--requests", "0"], "--requests must be more than 0"), (["--arrivals", "weibull"], "unknown arrival process 'weibull'"),
    (["--arrivals", "poisson:users=3"], "rate"), (["--dataset", "jsonl"], "path=FILE"), (["--slo", "ttft=200"], "200ms"),
    (["--warmup", "9s", "--duration", "9"], "--warmup 9s leaves nothing to measure in a run of 9 s: give less, or a longer --dur"),
    (["--find-goodput"], "--slo"), (["--warmup", "half"], "--warmup"), (["--warmup", "100%"], "--warmup"), (["--body", "["], "--body"),
    (["--body", "[]"], "JSON object"), (["--api", "embeddings"], "--api"),
    (["--header", "x"], "Name: value"), (["--header", "x: 1", "--header", "X:2"], "--header gives X twice"),
    (["--header", "content-length: 1"], "the client's"), (["--header", "authorization: b", "--api-key", "k"], "leave one of them out"),
    (["--quant", "int8"], "--quant"), (["--prompts", "runes"], "ids or text"), (["--api", "chat"], "--tokenizer"),
    (["--price", "-1"], "--price"), (["--attain", "0.5"], "--attain needs --find-goodput"), (["--start-rate", "2"], "--find-goodput"),
    (["--find-goodput", "--slo", "ttft=1s", "--attain", "2"], "--attain must be"),
    (["--send-slo"], "--send-slo needs objectives to send"), (["--send-slo", "--slo", "ttft=1s,itl=5ms"], "--slo has itl"),
    (["--send-slo", "--slo", "ttft=1s", "--body", '{"slo": "ttft=2s"}'], "leave one of them out"),
    (["--send-slo", "--slo", "ttft=1s", "--header", "X-SLO: ttft=2s"], "leave one of them out"),
    (["--save", "nowhere/at-all/r.json"], "no folder"),
    (["--no-stream", "--slo", "e2e=1s,tpot=5ms,publish=1s"], "--slo has tpot, publish, which only streamed answers tell"),
])
def test_what_cannot_be_is_refused(penstock: Command, served: Any, args: list[str], word: str) -> None:
    status, _, err = penstock(["bench", f"http://127.0.0.1:{served.server_port}", *args])
    assert status == 2 and word in err, err


def test_options_of_servers_need_one(penstock: Command) -> None:
    for option in (["--api-key", "k"], ["--header", "A: b"], ["--served-model-name", "m"], ["--request-timeout", "5"]):
        status, _, err = penstock(["bench", "brook", *option])
        assert status == 2 and "not a URL" in err


def test_a_trace_comes_at_its_own_times(penstock: Command, served: Any, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text("".join(
        json.dumps({"timestamp": 50 * at, "input_length": 8, "output_length": 2, "hash_ids": [at]}) + "\n" for at in range(4)))
    asked = ["bench", f"http://127.0.0.1:{served.server_port}", "--dataset", f"mooncake:path={trace}", "--warmup", "0", "--json"]
    samples = tmp_path / "s.jsonl"

    def due(*more: str) -> tuple[str, list[float], str]:
        status, out, err = penstock([*asked, "--samples", str(samples), *more])
        assert status == 0, err
        times = [json.loads(line)["due_s"] for line in samples.read_text().splitlines()]
        return json.loads(out.splitlines()[-1])["load"]["arrivals"], times, err

    arrivals, times, err = due()
    assert (arrivals, times) == ("replay", pytest.approx([0.0, 0.05, 0.1, 0.15])) and "replay:speed=2" in err
    arrivals, times, err = due("--arrivals", "replay:speed=2")
    assert (arrivals, times) == ("replay:speed=2", pytest.approx([0.0, 0.025, 0.05, 0.075])) and "own times" not in err
    assert due("--arrivals", "closed:users=4")[0] == "closed:users=4"
    status, out, _ = penstock([*asked[:2], "--requests", "1", "--dataset", "synthetic:input=8,output=1", "--json"])
    assert status == 0 and json.loads(out)["load"]["arrivals"] == "closed:users=8"


def test_a_server_that_refuses_a_trace_is_not_all_that_is_said(penstock: Command, served: Any, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text(json.dumps({"timestamp": 0, "input_length": 8, "output_length": 2, "hash_ids": [0]}))
    words = ["bench", f"http://127.0.0.1:{served.server_port}", "--body", '{"temperature": 9}']
    status, _, err = penstock([*words, "--dataset", f"mooncake:path={trace}"])
    assert status == 1 and "too hot; of a trace, a smaller scale=... in --dataset" in err
    assert "scale" not in penstock([*words, "--requests", "2"])[2]


def die(served: Any, after: int) -> None:
    """From then on connections are refused."""
    posted = served.bodies

    class Bodies(list[Any]):
        def append(self, each: Any) -> None:
            posted.append(each)
            if len(posted) == after:
                served.socket.close()

    served.bodies = Bodies()


def one_connection_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "protocol_version", "HTTP/1.0")


def test_a_server_that_dies_is_told_and_no_success(penstock: Command, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one_connection_each(monkeypatch)
    die(served, after=6)
    url = f"http://127.0.0.1:{served.server_port}"
    status, out, err = penstock(["bench", url, "--requests", "9", "--arrivals", "closed:users=1", "--warmup", "0", "--json",
                                 "--dataset", "synthetic:input=8,output=1"])
    told = json.loads(out)
    assert status == 1 and told["requests"]["completed"] == 6 and told["requests"]["failed"] == 3
    assert told["lost"] == f"{url}/v1 can no longer be reached: Connection refused" and told["lost"] in told["notes"]
    assert f"note: {told['lost']}" in err


def test_a_search_ends_with_the_server(penstock: Command, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate that nobody was there to serve broke no SLO."""
    one_connection_each(monkeypatch)
    die(served, after=6)  # all of the first rate
    url = f"http://127.0.0.1:{served.server_port}"
    status, out, err = penstock(["bench", url, "--find-goodput", "--slo", "ttft=5s", "--duration", "0.3", "--arrivals", "constant",
                                 "--start-rate", "20", "--dataset", "synthetic:input=8,output=1", "--json"])
    told = json.loads(out)
    assert status == 1 and (told["search"]["rate"], told["search"]["ended_early"]) == (20, True) and len(told["search"]["probes"]) == 1
    assert "as far as the search came" in err
    assert f"the search ended, as {url}/v1 can no longer be reached: Connection refused, after 1 rate: a higher one may" in err


def test_a_search_needs_a_rate(penstock: Command, served: Any) -> None:
    url = f"http://127.0.0.1:{served.server_port}"
    status, _, err = penstock(["bench", url, "--find-goodput", "--slo", "ttft=1s", "--requests", "5"])
    assert status == 2 and "the default is a closed loop (closed:users=8)" in err and "--arrivals poisson" in err
    asked = penstock(["bench", url, "--find-goodput", "--slo", "ttft=1s", "--requests", "5", "--arrivals", "closed"])
    assert asked[0] == 2 and "in a closed loop the server sets the rate" in asked[2]


def test_a_search_ends_where_no_answer_is_streamed(penstock: Command, served: Any) -> None:
    args = ["bench", f"http://127.0.0.1:{served.server_port}", "--requests", "4", "--dataset", "synthetic:input=8,output=2",
            "--body", '{"whole": true}', "--slo", "ttft=1s,tpot=1us"]
    status, _, err = penstock([*args, "--find-goodput", "--arrivals", "constant", "--start-rate", "50"])
    assert status == 1 and "no answer was streamed token by token, so that its ttft and tpot is not known" in err
    status, out, _ = penstock([*args, "--warmup", "0"])
    assert status == 0 and "note: 4 of 4 answers were not streamed" in out and "kept it" not in out


def test_a_file_that_cannot_be_written(penstock: Command, served: Any, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{served.server_port}"
    page = tmp_path / "a.html"
    words = ["bench", url, "--requests", "2", "--dataset", "synthetic:input=8,output=1", "--save", "/dev/full", "--json"]
    status, out, err = penstock([*words, "--samples", "/proc/none", "--report", str(page)])
    assert status == 1 and json.loads(out)["requests"]["sent"] == 2, "what was measured is told all the same"
    assert "cannot write /dev/full: No space left on device; cannot write /proc/none: " in err and "</html>" in page.read_text()


def test_files_that_cannot_be_are_refused_before_anything_is_measured(penstock: Command, tmp_path: Path) -> None:
    status, _, err = penstock(["bench", "--requests", "2", "--save", str(tmp_path)])
    assert status == 2 and f"--save {tmp_path} is a folder" in err
    status, _, err = penstock(["tune", "--slo", "ttft=1s", "--output", str(tmp_path)])
    assert status == 2 and f"--output {tmp_path} is a folder" in err
    page = "a.html"
    status, _, err = penstock(["bench", "--save", str(tmp_path / page), "--report", str(tmp_path / "b" / ".." / page)])
    assert status == 2 and "there is no folder" in err
    status, _, err = penstock(["bench", "--save", str(tmp_path / page), "--report", str(tmp_path / page)])
    assert status == 2 and "--report and --save both name" in err


@pytest.mark.parametrize("name", ["a.txt", "a", "html"])
def test_a_page_is_not_written_into_a_file_of_another_kind(penstock: Command, tmp_path: Path, name: str) -> None:
    status, _, err = penstock(["bench", "--report", str(tmp_path / name)])
    assert status == 2 and err == f"error: --report writes a page of HTML, so its file must end in .html or .htm, not {name}\n"


def test_who_interrupts_while_it_is_told_gets_all_of_it(
    penstock: Command, served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(report: Any) -> Iterator[str]:
        signal.raise_signal(signal.SIGINT)
        yield "told"

    monkeypatch.setattr(in_text, "lines", interrupted)
    kept = tmp_path / "r.json"
    url = f"http://127.0.0.1:{served.server_port}"
    words = ["bench", url, "--requests", "2", "--dataset", "synthetic:input=8,output=1", "--save", str(kept)]
    status, out, _ = penstock(words)
    assert (status, out) == (130, "told\n") and json.loads(kept.read_text())["cut_short"] is None


def test_who_reads_no_further_gets_the_files_all_the_same(served: Any, tmp_path: Path) -> None:
    kept = tmp_path / "r.json"
    command = [sys.executable, "-m", "penstock", "bench", f"http://127.0.0.1:{served.server_port}", "--requests", "2",
               "--dataset", "synthetic:input=8,output=1", "--save", str(kept)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode != 0 and err == ""
    assert json.loads(kept.read_text())["requests"]["sent"] == 2


@contextmanager
def running(served: Any, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A really started `penstock bench` that would go on for minutes, once it has asked for something."""
    command = [sys.executable, "-m", "penstock", "bench", f"http://127.0.0.1:{served.server_port}", "--duration", "600", "--json",
               "--arrivals", "closed:users=2", "--dataset", "synthetic:input=8,output=3", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while len(served.bodies) < 20:
            assert process.poll() is None and time.monotonic() < until, "the bench did not begin"
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "by", "status"), [(signal.SIGINT, "Ctrl-C", 130), (signal.SIGTERM, "SIGTERM", 143)])
def test_who_interrupts_gets_what_was_measured(served: Any, tmp_path: Path, number: int, by: str, status: int) -> None:
    kept, page, samples = tmp_path / "r.json", tmp_path / "r.html", tmp_path / "s.jsonl"
    with running(served, "--warmup", "0", "--save", str(kept), "--report", str(page), "--samples", str(samples)) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    result = json.loads(out)
    assert result["cut_short"]["by"] == by and result["requests"]["completed"] >= 10 and result["requests"]["failed"] == 0
    assert result["requests"]["sent"] == result["requests"]["completed"] + result["cut_short"]["num_in_flight"]
    assert f"{by}: ending the run" in err and f"note: cut short by {by} after" in err
    assert json.loads(kept.read_text()) == result and f"cut short by {by}" in page.read_text()
    assert len(samples.read_text().splitlines()) == result["requests"]["sent"]


def test_who_interrupts_a_search_gets_the_rates_that_were_tried(served: Any) -> None:
    search = ("--find-goodput", "--slo", "e2e=1min", "--arrivals", "constant", "--duration", "0.3", "--start-rate", "40")
    with running(served, *search) as process:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    result = json.loads(out)
    assert process.returncode == 130 and result["cut_short"]["by"] == "Ctrl-C"
    assert any("cut short by Ctrl-C" in note for note in result["notes"])


def test_who_interrupts_twice_leaves_at_once(served: Any) -> None:
    with running(served) as process:
        served.metrics_may_be_read.clear()  # the first one waits for what the server says of itself
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None and "Ctrl-C: ending the run" in process.stderr.readline()
        time.sleep(2 * SAME_S)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == "" and "Traceback" not in err


@pytest.mark.parametrize(("text", "ends"), [("0", True), ("0ms", True), ("0.0%", True), ("00s", True), ("0.5s", False), ("1%", False)])
def test_no_warmup_is_said_in_any_unit(text: str, ends: bool) -> None:
    assert (warmup_of(text, None) == Warmup()) is ends


def test_reports_repeat_no_secrets() -> None:
    said = told(BenchOptions(api_key=("k",), header=("Cookie: c",), slo="ttft=1s"))
    assert said["slo"] == "ttft=1s" and not {"api_key", "header"} & set(said)


@pytest.mark.parametrize(("dataset", "said"), [
    ("azure:path=nowhere", "cannot read nowhere"), ("jsonl:path=nowhere", "cannot read nowhere"), ("synthetic:input=0", "input must be")])
def test_a_dataset_that_cannot_be_is_told_before_a_model_is_loaded(
    penstock: Command, monkeypatch: pytest.MonkeyPatch, dataset: str, said: str
) -> None:
    monkeypatch.setattr(job, "start", lambda *_: pytest.fail("a model was loaded"))
    status, out, err = penstock(["bench", "brook", "--dataset", dataset])
    assert (status, out) == (2, "") and said in err and len(err.splitlines()) == 1
