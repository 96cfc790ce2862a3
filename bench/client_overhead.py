#!/usr/bin/env python3
"""What the load generator adds to what it measures: `penstock bench`'s client against a server whose latencies are known exactly.

    python bench/client_overhead.py [--rate 500] [--requests 5000] [--ttft 0.05] [--itl 0.01] [--tokens 20]

The server (clock.py) is a separate process that computes nothing: it sends each token when its timer says so, and reports in its usage how
late it was itself, which is subtracted. Nothing else should run: at 500 requests/s, client and server take most of a processor each.
The last line is JSON: errors of TTFT and TPOT, the client's own delays, all in milliseconds.
"""
import argparse
import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from versus.arguments import Parser, amount, whole

from penstock.study.measure.arrivals.renewal import Poisson, RateOptions
from penstock.study.measure.client.connections import address_of, tcp
from penstock.study.measure.client.drive import Ahead, Driver, Extent
from penstock.study.measure.client.openai import Wish
from penstock.study.measure.client.precise import new_loop, no_collection
from penstock.study.measure.client.server import Access, Server
from penstock.study.measure.client.target import Stopwatch
from penstock.study.measure.datasets.synthetic import Synthetic, SyntheticOptions
from penstock.study.measure.writers import IdWriter

CLOCK = Path(__file__).with_name("clock.py")
MICRO = 1e6


async def measure(args: argparse.Namespace, port: int) -> dict[str, Any]:
    address, watch = address_of(f"http://127.0.0.1:{port}"), Stopwatch(asyncio.get_running_loop().time)
    target = Server(Access(address, ahead=True), Wish("clock"), tcp(address), watch)
    driver, extent = Driver(target, watch), Extent(args.requests)
    sessions = Synthetic(SyntheticOptions(args.prompt, args.tokens), IdWriter(), "prompts").sessions()
    ahead = Ahead(Poisson(RateOptions(args.rate)).schedule(sessions, "arrivals"), target, extent)
    began_s = time.process_time()
    with no_collection():
        await driver.run(ahead, None, extent)
    cpu_share = (time.process_time() - began_s) / watch()
    done = [sample for sample in driver.samples if sample.ok]
    ttft = [(sample.ttft_s or 0.0) - args.ttft - sample.num_cached / MICRO for sample in done]
    server_s = [(sample.num_reasoning - sample.num_cached) / MICRO / max(1, args.tokens - 1) for sample in done]
    tpot = [(sample.tpot_s or 0.0) - args.itl - late for sample, late in zip(done, server_s, strict=True)]
    median = float(np.median([sample.ttft_s or 0.0 for sample in done]))
    return {
        "rate": args.rate, "requests": len(driver.samples), "answered": len(done), "cpu_share": cpu_share,
        "median_ttft_error_share": abs(median / args.ttft - 1), "ttft_error_ms": told(ttft), "tpot_error_ms": told(tpot),
        "send_delay_ms": told([sample.send_delay_s or 0.0 for sample in done]), "loop_lag_ms": told(driver.lag.seconds),
        "server_late_ms": told([sample.num_cached / MICRO for sample in done]),
    }


def told(values: list[float]) -> dict[str, float]:
    """In milliseconds."""
    p50, p90, p99, most = (float(value) * 1000 for value in np.percentile(values, [50, 90, 99, 100]))
    return {"p50": p50, "p90": p90, "p99": p99, "max": most}


def make_parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--rate", type=amount(above=0), default=500.0, help="requests per second, Poisson; default: %(default)s")
    made.add_argument("--requests", type=whole(), default=5000, help="requests to send; default: %(default)s")
    made.add_argument("--prompt", type=whole(), default=256, help="tokens per prompt; default: %(default)s")
    made.add_argument("--ttft", type=amount(above=0), default=0.05, help="seconds until the server's first token; default: %(default)s")
    made.add_argument("--itl", type=amount(), default=0.01, help="seconds between two of its tokens; default: %(default)s")
    made.add_argument("--tokens", type=whole(2), default=20, help="tokens per answer; default: %(default)s")
    return made


def main() -> None:
    args = make_parser().parse_args()
    told_to = [word for name in ("ttft", "itl", "tokens") for word in (f"--{name}", str(getattr(args, name)))]
    server = subprocess.Popen([sys.executable, str(CLOCK), *told_to], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with asyncio.Runner(loop_factory=new_loop) as runner:
            found = runner.run(measure(args, port))
    finally:
        server.terminate()
        server.wait()
    for name, value in found.items():
        print(f"{name:26}", "  ".join(f"{key} {each:8.3f}" for key, each in value.items()) if isinstance(value, dict) else value)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
