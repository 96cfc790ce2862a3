"""What rivals print, as they print it, and the arguments that they are given."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from versus.points import Point
from versus.rivals.llamacpp import batch_arguments, bench_arguments, samples, streams_tokens_per_s

BATCHED = """\
main: n_kv_max = 1536, n_batch = 2048, n_ubatch = 512, n_threads = 2

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   128 |     64 |    8 |   1536 |    5.000 |   204.80 |    3.000 |   170.67 |    8.000 |   192.00 |

llama_print_timings: load time = 1.00 ms
"""


def test_a_batch_counts_its_output_over_its_whole_time():
    assert streams_tokens_per_s(BATCHED) == 64 * 8 / 8.0
    with pytest.raises(ValueError, match="no row"):
        streams_tokens_per_s("\n".join(BATCHED.splitlines()[:4]))
    with pytest.raises(ValueError, match="no row"):
        streams_tokens_per_s("error: out of memory")


def test_the_last_row_of_llama_bench_is_taken():
    rows = [{"n_prompt": 128, "n_gen": 0, "samples_ts": [1.0]}, {"n_prompt": 0, "n_gen": 128, "samples_ts": [50.0, 52.5]}]
    assert samples("warning: a line before\n" + json.dumps(rows)) == [50.0, 52.5]
    with pytest.raises(ValueError, match="no row"):
        samples("error: failed to load model")


def test_a_context_is_given_by_depth_or_by_a_prompt():
    assert bench_arguments(Point("decode", 8192), False) == ("-p", "0", "-n", "128", "-d", "8192", "-r", "1", "-o", "json")
    assert bench_arguments(Point("decode", 0), True) == ("-p", "0", "-n", "0", "-gp", "128,128", "-r", "2", "-o", "json")
    assert bench_arguments(Point("prefill", 512), True) == ("-p", "512", "-n", "0", "-r", "2", "-o", "json")


def test_a_batch_has_room_for_all_of_its_requests():
    arguments = batch_arguments(Point("streams", 32))
    assert arguments[arguments.index("-c") + 1] == str(32 * 192)
    assert arguments[arguments.index("-npl") + 1] == "32"


def test_workers_of_rivals_need_no_penstock():
    names = "contest library place points processes served trace worker rivals".split()
    code = "import sys; sys.modules['penstock'] = None\n" + "\n".join(f"import versus.{name}" for name in names)
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "bench")}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
