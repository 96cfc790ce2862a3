"""What is asked of a deployment, from options and from traces."""
import gzip
import os
import threading
from pathlib import Path

import pytest

from penstock.core.errors import UsageError
from penstock.study.measure.datasets.traces import Row
from penstock.study.plan.load import Asked, Load, load_of, read_trace, within_context
from penstock.study.plan.rehearsal import calls_of

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:00:00.0000000,100,10
2023-11-16 18:00:01.0000000,300,30
2023-11-16 18:00:04.0000000,200,20
"""
MOONCAKE = """{"timestamp": 0, "input_length": 600, "output_length": 4, "hash_ids": [1, 2]}
{"timestamp": 500, "input_length": 200, "output_length": 8, "hash_ids": [1]}
"""
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,GPT-4,10,20,30,API log\n15,GPT-4,30,40,70,API log\n"


@pytest.mark.parametrize(("text", "lengths", "rate", "longest"), [
    (AZURE, (200, 20), 0.5, 330), (MOONCAKE, (400, 6), 2.0, 604), (BURST, (20, 30), 0.1, 70)])
def test_a_trace_is_its_means_and_its_rate(tmp_path: Path, text: str, lengths: tuple[int, int], rate: float, longest: int) -> None:
    file = tmp_path / "trace"
    file.write_text(text)
    rows = read_trace(str(file))
    load = load_of(Asked(traffic=str(file)), rows)
    assert (load.input, load.output) == lengths and load.rate == pytest.approx(rate) and load.most_tokens == longest
    faster = load_of(Asked(traffic=str(file), rate=7.0), rows)
    assert faster.rate == 7 and "taken at 7" in faster.told


def test_a_trace_may_be_gzipped(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(AZURE)
    (tmp_path / "trace.gz").write_bytes(gzip.compress(AZURE.replace("\n", "\r\n").encode()))
    assert read_trace(str(tmp_path / "trace.gz")) == read_trace(str(tmp_path / "trace"))


@pytest.mark.parametrize("text", [AZURE, MOONCAKE, BURST])
def test_a_trace_may_come_through_a_pipe(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace").write_text(text)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_text, args=(text,), daemon=True)
    writing.start()
    found: list[list[Row]] = []
    reading = threading.Thread(target=lambda: found.append(read_trace(str(pipe))), daemon=True)  # the second time it would wait for ever
    reading.start()
    reading.join(20)
    assert found == [read_trace(str(tmp_path / "trace"))]


def test_requests_beyond_a_models_context_are_left_out_and_told(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text(AZURE)
    rows = read_trace(str(file))
    load = load_of(Asked(traffic=str(file)), rows)
    assert within_context(rows, load, 330, None) == (rows, load)
    fitting, lighter = within_context(rows, load, 329, None)
    assert [row.num_prompt for row in fitting] == [100, 200] and (lighter.input, lighter.output, lighter.most_tokens) == (150, 15, 220)
    left_out = "; 1 that take more than the model's context of 329 tokens are left out"
    assert lighter.rate == 0.25 and lighter.told.endswith(f"0.5 a second on average{left_out}, which leaves 0.25 a second")
    _, faster = within_context(rows, load_of(Asked(traffic=str(file), rate=7.0), rows), 329, 7.0)
    assert faster.rate == 7 and faster.told.endswith(f", taken at 7{left_out}")
    whole, told = within_context(rows, load, 200, None)  # one request is no trace: what it is asked for is said not to fit
    assert whole is rows and told.most_tokens == 330 and told.told.endswith("; 2 that take more than the model's context of 200 tokens are "
                                                                            "too many to be left out")


def test_what_fits_the_context_comes_when_it_came() -> None:
    """Not at the rate of the whole trace, which would squeeze its bursts and take more replicas."""
    rows = [Row(float(at), 10_000 if at % 5 else 100, 10) for at in range(101)]
    fitting, load = within_context(rows, load_of(Asked(traffic="trace"), rows), 8192, None)
    assert load.rate == pytest.approx(0.2) and [call.at_s for call in calls_of(load, fitting, 3)] == pytest.approx([0.0, 5.0, 10.0])
    fitting, load = within_context(rows, load_of(Asked(traffic="trace", rate=2.0), rows), 8192, 2.0)
    assert [call.at_s for call in calls_of(load, fitting, 3)] == pytest.approx([0.0, 0.5, 1.0])


def test_without_a_trace_lengths_are_given_or_usual() -> None:
    assert load_of(Asked()) == Load(512, 128) and load_of(Asked()).most_tokens == 640
    assert load_of(Asked(batch=4, input=10, output=1)) == Load(10, 1, 4)


@pytest.mark.parametrize(("asked", "said"), [
    (Asked(batch=0), "--batch"), (Asked(input=0), "--input"), (Asked(output=-1), "--output"), (Asked(rate=0.0), "--rate"),
    (Asked(rate=float("nan")), "--rate"), (Asked(rate=1e-9), "at least 1e-06, not 1e-09"), (Asked(batch=1, rate=1.0), "--batch"),
    (Asked(batch=10**20), "--batch must be at most 1,000,000,000,000,000"), (Asked(input=10**400), "--input must be at most")])
def test_what_makes_no_load_is_refused(asked: Asked, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_of(asked)


def test_a_trace_without_prompts_and_answers_says_how_many_have_none(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(AZURE.replace(",10\n", ",0\n").replace(",20\n", ",0\n"))
    with pytest.raises(UsageError, match="trace has 1 with a prompt and an answer of 3 requests; a trace needs two, at different times"):
        load_of(Asked(traffic="trace"), read_trace(str(tmp_path / "trace")))


@pytest.mark.parametrize("text", ["hello", AZURE.splitlines()[0] + "\n2023-11-16 18:00:00.0000000,100,10\n"])
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace").write_text(text)
    with pytest.raises(UsageError, match="trace"):
        load_of(Asked(traffic="trace"), read_trace(str(tmp_path / "trace")))


def test_a_trace_of_a_request_in_years_is_refused(tmp_path: Path) -> None:
    """Its virtual clock could not tell milliseconds."""
    file = tmp_path / "trace"
    file.write_text(BURST.replace("15,", "1e300,"))
    with pytest.raises(UsageError, match="has 1e-300 requests a second"):
        load_of(Asked(traffic=str(file)), read_trace(str(file)))


def test_a_file_that_is_not_there_is_no_trace() -> None:
    with pytest.raises(UsageError, match="there is no trace 'nowhere'"):
        read_trace("nowhere")


def test_a_trace_brings_its_lengths(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(AZURE)
    with pytest.raises(UsageError, match="--input"):
        load_of(Asked(traffic="trace", input=5), read_trace(str(tmp_path / "trace")))


@pytest.mark.parametrize(("text", "why"), [
    ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,5,5\n2023-11-16 18:17:04.9,x,5\n", "trace:3: ContextTokens must be"),
    ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,5,inf\n", "trace:2: GeneratedTokens must be"),
    ("Timestamp,Model,Request tokens,Response tokens\n0,a,1e999,5\n", "trace:2: Request tokens must be"),
    (MOONCAKE + '{"timestamp": 1, "input_length": Infinity, "output_length": 5}', "trace:3: "),
    (MOONCAKE + '{"timestamp": 1, "input', "trace:3"),
    ("hello\n", "is no trace of Azure, BurstGPT or Mooncake: its first line is 'hello'"), ("", "trace is empty")])
def test_a_trace_with_a_bad_line_is_refused_by_that_line(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "trace"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=why):
        read_trace(str(file))
