#!/usr/bin/env python3
"""What Python costs between two native calls: microseconds per step beyond the model's step and the native sampler.

    python bench/host_overhead.py [--model brook] [--seqs 1 32] [--steps 400] [--paths engine loop http]

Every native call is timed where Python makes it. The time between the end of one step of the model and the start of the next, minus the
sampler, is the host's work: scheduling, laying out the batch, bookkeeping, text. Only steps that decode one token for every sequence count,
and only between others like them. Paths: `engine` steps the engine in a plain loop; `loop` is the engine's thread with one reader per
request on an event loop; `http` streams completions through the whole application, in memory, without sockets. Readers run on a separate
thread; what they cost is reported as processor time per token.
The last line is JSON: medians and the fastest tenth.
"""
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from versus.arguments import Parser, said, whole
from versus.engines import check_engine

from penstock.core.config import EngineConfig, ServerConfig
from penstock.core.types import SamplingParams
from penstock.serve.api.metrics import Metrics
from penstock.serve.api.parts import Parts
from penstock.serve.api.server import SWITCH_S, create_app
from penstock.serve.engine.build import Built, build
from penstock.serve.engine.loop import Loop
from penstock.serve.engine.patience import patience_s
from penstock.serve.engine.requests import Request

NUM_PROMPT = 24
LEAST_STEPS = 16  # that leave enough pairs to tell of
PATHS = ("engine", "loop", "http")
CHOICES = {
    "greedy": SamplingParams(temperature=0, ignore_eos=True),
    "drawn": SamplingParams(temperature=0.8, top_k=40, top_p=0.95, ignore_eos=True),
    "greedy with log-probabilities": SamplingParams(temperature=0, logprobs=5, ignore_eos=True),
}


@dataclass
class Timeline:
    """When native calls began and ended, in nanoseconds."""

    steps: list[tuple[int, int, int]] = field(default_factory=list)  # (rows, began, ended)
    sampled: list[int] = field(default_factory=list)  # nanoseconds of sampling before each step

    def __post_init__(self) -> None:
        self._since = 0

    def step(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self.sampled.append(self._since)
        self._since = 0
        began = time.perf_counter_ns()
        call(*args)
        self.steps.append((len(args[0].tokens), began, time.perf_counter_ns()))

    def sample(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        began = time.perf_counter_ns()
        found = call(*args)
        self._since += time.perf_counter_ns() - began
        return found

    def gaps(self, rows: int) -> list[float]:
        """Microseconds between steps that both have so many rows."""
        pairs = zip(self.steps, self.steps[1:], self.sampled[1:], strict=False)
        return [(later[1] - earlier[2] - sampling) / 1000 for earlier, later, sampling in pairs if earlier[0] == later[0] == rows]

    def native(self, rows: int) -> float:
        return statistics.median((ended - began) / 1000 for n, began, ended in self.steps if n == rows)


class Watched:
    """A native object whose calls are timed."""

    def __init__(self, inner: Any, timed: dict[str, Callable[..., Any]]) -> None:
        self._inner = inner
        for name, watch in timed.items():
            setattr(self, name, self._timed(getattr(inner, name), watch))

    def _timed(self, call: Callable[..., Any], watch: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: watch(call, args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def requests(built: Built, num: int, params: SamplingParams, steps: int, name: str) -> list[Request]:
    vocab = built.spec.vocab_size
    prompts = [tuple((37 * i + 11 * j) % (vocab - 10) + 5 for j in range(NUM_PROMPT)) for i in range(num)]
    return [Request(f"{name}-{i}", prompt, replace(params, max_tokens=steps, seed=i)) for i, prompt in enumerate(prompts)]


def run_engine(built: Built, asked: list[Request]) -> None:
    for request in asked:
        built.engine.add(request)
    while built.engine.num_requests():
        built.engine.step()


async def read(loop: Loop, request: Request) -> None:
    async for _ in loop.submit(request):
        pass


async def run_loop(loop: Loop, asked: list[Request]) -> None:
    await asyncio.gather(*(read(loop, request) for request in asked))


async def post(app: Any, request: Request) -> None:
    """A streaming completion whose client reads everything at once."""
    params = request.params
    body = {"prompt": list(request.token_ids), "max_tokens": params.max_tokens, "temperature": params.temperature, "stream": True,
            "seed": params.seed, "ignore_eos": True, "top_p": params.top_p, "top_k": params.top_k, "logprobs": params.logprobs}
    data = json.dumps(body).encode()
    incoming = [{"type": "http.request", "body": data, "more_body": False}]
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        if incoming:
            return incoming.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    path, host = "/v1/completions", "127.0.0.1"
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http", "path": path,
             "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers, "client": (host, 1), "server": (host, 80)}
    await app(scope, receive, send)
    if statuses != [200]:
        raise RuntimeError(f"a completion was answered with {statuses}")


async def run_http(app: Any, asked: list[Request]) -> None:
    await asyncio.gather(*(post(app, request) for request in asked))


def application(built: Built, metrics: Metrics) -> tuple[Loop, Any]:
    loop = Loop(built.engine, wedged_s=patience_s(built))
    metrics.watch(loop.gauges)
    parts = Parts(engine=loop, tokenizer=built.tokenizer, chat_template=built.chat_template, config=ServerConfig(), metrics=metrics,
                  vocab_size=built.spec.vocab_size)
    return loop, create_app(parts)


def watch(built: Built) -> Timeline:
    timeline = Timeline()
    runner = built.engine._runner
    loaded = runner._loaded  # type: ignore[attr-defined]
    loaded.model = Watched(loaded.model, {"step": timeline.step})
    sampling = loaded.sampling
    sampling._sampler = Watched(sampling._sampler, dict.fromkeys(("choose", "score"), timeline.sample))
    return timeline


def figures(gaps: list[float]) -> dict[str, float]:
    return {"median_us": round(statistics.median(gaps), 1), "fastest_tenth_us": round(statistics.quantiles(gaps, n=10)[0], 1)}


def describe(row: dict[str, Any]) -> str:
    reader = "" if row["reader_us_per_token"] is None else f"; readers take {row['reader_us_per_token']:.1f} of a processor for each token"
    return (f"{row['path']:>7} {row['choice']:30} {row['seqs']:3} sequences: {row['median_us']:8.1f} us a step "
            f"({row['fastest_tenth_us']:.1f} in the fastest tenth) besides {row['model_step_us']:.1f} in the model and "
            f"{row['sampler_us']:.1f} in the sampler{reader}")


def make_parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--model", type=said, default="brook", help="a folder, a GGUF file or a hub name; default: %(default)s")
    made.add_argument("--seqs", type=whole(1, EngineConfig().max_num_seqs), nargs="+", default=[1, 32],
                      help="numbers of sequences at once; default: 1 32")
    made.add_argument("--steps", type=whole(LEAST_STEPS), default=400, help="steps per measurement; default: %(default)s")
    made.add_argument("--paths", nargs="+", default=[*PATHS], choices=PATHS, help="paths that tokens take; default: all")
    made.add_argument("--choices", nargs="+", default=[*CHOICES], choices=[*CHOICES], help="how tokens are chosen; default: all")
    made.add_argument("--threads", type=whole(), help="threads of the engine; default: as many as it chooses for the model")
    return made


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    with parser.refusing():
        room = check_engine(EngineConfig(model=args.model, threads=args.threads)).spec.max_position - NUM_PROMPT
    if args.steps > room:
        parser.error(f"--steps {args.steps:,} must be at most {room:,}: with a prompt of {NUM_PROMPT} tokens {args.model} holds no more")
    sys.setswitchinterval(SWITCH_S)
    metrics = Metrics()
    built = build(EngineConfig(model=args.model, threads=args.threads), metrics)
    timeline = watch(built)
    loop, app = application(built, metrics)
    runs: dict[str, Callable[[list[Request]], None]] = {
        "engine": lambda asked: run_engine(built, asked),
        "loop": lambda asked: asyncio.run(run_loop(loop, asked)),
        "http": lambda asked: asyncio.run(run_http(app, asked)),
    }
    results = []
    for path in PATHS:
        if path not in args.paths:
            continue
        if path != "engine" and not loop._thread.is_alive():
            loop.start()
        for choice in args.choices:
            for num in args.seqs:
                timeline.__init__()  # type: ignore[misc]
                asked = requests(built, num, CHOICES[choice], args.steps, f"{path}-{choice}-{num}")
                began = time.thread_time_ns()
                runs[path](asked)
                seconds = time.thread_time_ns() - began
                row = {"path": path, "choice": choice, "seqs": num, **figures(timeline.gaps(num)),
                       "model_step_us": round(timeline.native(num), 1), "sampler_us": round(statistics.median(timeline.sampled) / 1000, 1),
                       "reader_us_per_token": None if path == "engine" else round(seconds / 1000 / (num * args.steps), 1)}
                results.append(row)
                print(describe(row), flush=True)
    loop.stop()
    print(json.dumps({"bench": "host_overhead", "model": args.model, "steps": args.steps, "rows": results}))


if __name__ == "__main__":
    main()
