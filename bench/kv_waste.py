#!/usr/bin/env python3
"""How much of the allocated KV cache holds no token? Blocks on demand compared with whole lengths reserved in advance.

    python bench/kv_waste.py [--requests 400] [--block-size 16] [--context 2048] [--kv-tokens 65536] [--seed 1]

The same mixed-length load goes twice through the real scheduler and KV manager, with a runner that computes nothing: once
with blocks, once with one block per sequence as long as the context, which is what a reservation in advance amounts to. A third
figure reserves prompt + max_tokens of each live sequence; it is added up during the first run.
Waste is 1 - filled / allocated slots, summed over all steps. The last line is JSON.
"""
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass

from versus.arguments import Parser, whole

from penstock.core.clock import VirtualClock
from penstock.core.types import SamplingParams, Seq, SeqResult, StepPlan, StepResult
from penstock.decide.kv.evict.lru import Lru
from penstock.decide.kv.manager import KVManager
from penstock.decide.scheduler.batching.continuous import Continuous
from penstock.decide.scheduler.limits import Limits
from penstock.decide.scheduler.order.fcfs import Fcfs
from penstock.decide.scheduler.scheduler import Scheduler

END = 0  # the token that ends an answer
ASKED = (512, 1024)  # max_tokens
LEAST = 8  # tokens of a prompt


@dataclass(frozen=True)
class Load:
    """One request: its prompt, how long its answer will be, and what it asks for at most."""

    prompt: list[int]
    num_output: int
    max_tokens: int


@dataclass
class SlotUse:
    """Sums over steps."""

    steps: int = 0
    seqs: int = 0
    allocated: int = 0
    filled: int = 0
    asked: int = 0
    preemptions: int = 0

    def waste(self) -> float:
        return 1 - self.filled / self.allocated

    def waste_as_asked(self) -> float:
        return 1 - self.filled / self.asked


def make_load(num_requests: int, context: int, seed: int) -> list[Load]:
    """Lognormal lengths, as chat traces have them: prompts of median 200 tokens, answers of 180; users ask for 512 or 1024."""
    rng = random.Random(seed)
    load = []
    for _ in range(num_requests):
        max_tokens = rng.choice(ASKED)
        num_prompt = min(max(int(rng.lognormvariate(5.3, 0.9)), LEAST), context - max_tokens)
        num_output = min(max(int(rng.lognormvariate(5.2, 0.8)), 4), max_tokens)
        load.append(Load([rng.randrange(1, 4096) for _ in range(num_prompt)], num_output, max_tokens))
    return load


def execute(plan: StepPlan, load: list[Load]) -> StepResult:
    """Every token is 1 until the answer is as long as it will be."""
    found = []
    for planned in plan.seqs:
        last = planned.num_output + 1 >= load[planned.seq_id].num_output
        found.append(SeqResult(planned.seq_id, tokens=(END if last else 1,) if planned.samples else ()))
    return StepResult(plan.step_id, tuple(found))


def slots(seqs: Iterable[Seq], block_size: int) -> tuple[int, int]:
    """(allocated, filled) of these sequences, shared blocks counted once. Meant for when no step is in flight."""
    filled: dict[int, int] = {}
    for seq in seqs:
        for i, block_id in enumerate(seq.block_ids):
            tokens = min(max(seq.num_computed - i * block_size, 0), block_size)
            filled[block_id] = max(filled.get(block_id, 0), tokens)
    return len(filled) * block_size, sum(filled.values())


def run(load: list[Load], block_size: int, kv_tokens: int) -> SlotUse:
    clock = VirtualClock()
    kv = KVManager(kv_tokens // block_size, block_size, False, Lru(), clock)
    scheduler = Scheduler(Limits(256, 2048), kv, Fcfs(), Continuous(), clock)
    seqs = []
    for i, one in enumerate(load):
        max_len = len(one.prompt) + one.max_tokens
        seqs.append(Seq(i, list(one.prompt), len(one.prompt), SamplingParams(), max_len=max_len, arrival_s=float(i), eos_token_ids=(END,)))
        scheduler.add(seqs[-1])
    used = SlotUse()
    while (plan := scheduler.schedule()) is not None:
        scheduler.commit(plan, execute(plan, load))
        clock.advance(1.0)
        allocated, filled = slots(scheduler.seqs(), block_size)
        used.steps += 1
        used.seqs += len(kv.holders())
        used.allocated += allocated
        used.filled += filled
        used.asked += sum(seqs[i].max_len for i in kv.holders())
    assert all(seq.finish_reason == "stop" or seq.num_output == load[seq.seq_id].max_tokens for seq in seqs)
    used.preemptions = scheduler.counters.preemptions
    return used


def make_parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--requests", type=whole(), default=400, help="requests to serve; default: %(default)s")
    made.add_argument("--block-size", type=whole(), default=16, help="tokens per block; default: %(default)s")
    made.add_argument("--context", type=whole(ASKED[-1] + LEAST), default=2048,
                      help="tokens of the longest request, reserved in advance; default: %(default)s")
    made.add_argument("--kv-tokens", type=whole(), default=65536, help="size of the KV cache, in tokens; default: %(default)s")
    made.add_argument("--seed", type=int, default=1, help="seed for the lengths; default: %(default)s")
    return made


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    if (least := max(args.context, -(-args.context // args.block_size) * args.block_size)) > args.kv_tokens:
        parser.error(f"--kv-tokens {args.kv_tokens:,} must be at least {least:,}, for one request of --context {args.context:,}")
    load = make_load(args.requests, args.context, args.seed)
    ours = run(load, args.block_size, args.kv_tokens)
    whole = run(load, args.context, args.kv_tokens)
    print(f"{args.requests} requests, KV cache of {args.kv_tokens} tokens")
    for name, waste, used in (
        (f"blocks of {args.block_size} on demand", ours.waste(), ours),
        (f"whole context of {args.context} reserved", whole.waste(), whole),
    ):
        running = used.seqs / used.steps
        print(f"{name:>32}: {waste:7.2%} wasted, {running:5.1f} sequences at a time, {used.steps} steps, {used.preemptions} preemptions")
    print(f"{'prompt + max_tokens reserved':>32}: {ours.waste_as_asked():7.2%} wasted, for the same sequences at a time as with blocks")
    print(f"{'ratio':>32}: {whole.steps / ours.steps:.2f} times fewer steps for the same tokens with blocks on demand")
    result = {
        "bench": "kv_waste",
        "block_size": args.block_size,
        "requests": args.requests,
        "waste": round(ours.waste(), 5),
        "waste_context_reserved": round(whole.waste(), 5),
        "waste_as_asked_reserved": round(ours.waste_as_asked(), 5),
        "seqs_at_a_time": round(ours.seqs / ours.steps, 2),
        "seqs_at_a_time_context_reserved": round(whole.seqs / whole.steps, 2),
        "steps_ratio": round(whole.steps / ours.steps, 3),
        "below_4_percent": ours.waste() < 0.04,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
