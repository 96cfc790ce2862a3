"""Trains brook on the books, through the same program and backend that serve it. Seeded; a killed run goes on where it was.

    python recipes/train.py --corpus FOLDER [--passes 2] [--begin FOLDER] [--work checkpoints/brook] [--out penstock/bundled/brook]
"""
import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import data
import numpy as np
import torch
from model import Model
from shapes import SHAPES

from penstock.study.compress.optimizer import Optimizer

BATCH_TOKENS = 8192
STAGES = (  # until this share of the run: windows
    (0.15, data.Mix(256, repeats=1.0, lists=1.0)),
    (0.5, data.Mix(256, repeats=0.35, lists=0.2)),
    (0.65, data.Mix(512, repeats=0.35, lists=0.2)),
    (1.0, data.Mix(1024, repeats=0.45, lists=0.1)),
)


def schedule(done: float) -> float:
    """Learning rate over the run: short warm-up, plateau, then linear decay to zero over the last half."""
    return min(1.0, done / 0.01 + 0.02, (1.0 - done) / 0.5 + 1e-3)


@torch.no_grad()
def held_out_loss(model: Model, stream: data.Stream, windows: int = 48, length: int = 1024) -> float:
    chosen = torch.from_numpy(stream.epoch(data.Mix(length), seed=0)[:windows].astype(np.int64))
    return sum(float(model.loss(chosen[at : at + 4])) for at in range(0, len(chosen), 4)) / math.ceil(len(chosen) / 4)


@dataclass(frozen=True)
class Plan:
    total: int  # tokens
    seed: int
    begin: Path | None = None  # the weights, else random ones
    done: float = 0.0  # share of the total that the run leaves out
    steps: int | None = None  # at most, to try it

    @classmethod
    def of(cls, args: argparse.Namespace, stream: data.Stream) -> "Plan":
        return cls(int(args.passes * len(stream.ids)), args.seed, args.begin, args.done, args.steps)


class Run:
    """A training run: model, optimizer, and how far it is."""

    def __init__(self, name: str, plan: Plan, work: Path) -> None:
        self.model = Model(SHAPES[name], plan.seed)
        if plan.begin:
            self.model.restore(plan.begin)
        self.optimizer = Optimizer(self.model.parameters)
        self.tokens = int(plan.done * plan.total) // BATCH_TOKENS * BATCH_TOKENS
        self.file = work / "run.pt"
        work.mkdir(parents=True, exist_ok=True)
        if self.file.exists():
            saved = torch.load(self.file)
            with torch.no_grad():
                for key, weight in self.model.parameters.items():
                    weight.copy_(saved["parameters"][key])
            self.optimizer.state, self.optimizer.step_count = saved["state"], saved["steps"]
            self.tokens = saved["tokens"]

    def save(self) -> None:
        part = self.file.with_suffix(".part")
        torch.save({"parameters": self.model.parameters, "state": self.optimizer.state,
                    "steps": self.optimizer.step_count, "tokens": self.tokens}, part)
        part.rename(self.file)


def mix_at(done: float) -> data.Mix:
    return next(mix for until, mix in STAGES if done < until)


def batches(stream: data.Stream, run: Run, total: int, seed: int) -> Iterator[torch.Tensor]:
    """Batches [BATCH_TOKENS / length, length + 1] from where the run is to its end; a new shuffle for every pass and mix."""
    while run.tokens < total:
        mix = mix_at(run.tokens / total)
        size = BATCH_TOKENS // mix.length
        windows = stream.epoch(mix, seed=seed + run.tokens // len(stream.ids))
        first = run.tokens % len(stream.ids) // mix.length
        for at in range(first, len(windows) - size + 1, size):
            if run.tokens >= total or mix != mix_at(run.tokens / total):
                break
            yield torch.from_numpy(windows[at : at + size].astype(np.int64))
        else:
            run.tokens = (run.tokens // len(stream.ids) + 1) * len(stream.ids)  # the pass is over


def go(run: Run, stream: data.Stream, loss: Callable[[torch.Tensor], torch.Tensor], plan: Plan, report: Callable[[], str]) -> None:
    """Trains to the end of the plan. Saves every few minutes, and then prints what `report` says."""
    began, tokens_then, saved = time.time(), run.tokens, time.time()
    for step, batch in enumerate(batches(stream, run, plan.total, plan.seed), 1):
        value = loss(batch)
        value.backward()
        run.optimizer.step(schedule(run.tokens / plan.total))
        run.tokens += BATCH_TOKENS
        if step % 20 == 0:
            rate = (run.tokens - tokens_then) / (time.time() - began)
            left = (plan.total - run.tokens) / rate / 60
            print(f"{run.tokens / plan.total:6.1%}  loss {value.item():.3f}  {rate:,.0f} tokens/s  {left:.0f} min left", flush=True)
        if time.time() - saved > 180:
            run.save()
            saved = time.time()
            print(report(), flush=True)
        if step == plan.steps:
            break
    run.save()
    print(report(), flush=True)


def options(description: str, work: str, out: str, passes: float) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--corpus", type=Path, required=True, help="the folder of books")
    parser.add_argument("--passes", type=float, default=passes, help="over the training books")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(work), help="where the run is kept, so that it can go on")
    parser.add_argument("--out", type=Path, default=Path(out))
    parser.add_argument("--begin", type=Path, help="a folder whose weights are trained further, in place of random ones")
    parser.add_argument("--done", type=float, default=0.0,
                        help="begin as if this share of the run were over: with the learning rate and windows of then")
    parser.add_argument("--steps", type=int, help="stop after so many steps, to try it")
    parser.add_argument("--compile", action="store_true", help="torch.compile the loss: 1.3 times as fast, needs a C++ compiler")
    return parser


def main() -> None:
    args = options(str(__doc__), "checkpoints/brook", "penstock/bundled/brook", passes=2).parse_args()
    torch.manual_seed(args.seed)
    train, held_out = data.load(args.corpus, Path("penstock/bundled/brook/tokenizer.json"))
    plan = Plan.of(args, train)
    run = Run("brook", plan, args.work)
    model = run.model
    print(f"{model.program.num_parameters():,} parameters, {len(train.ids):,} training tokens, {len(held_out.ids):,} held out; "
          f"{run.tokens:,} of {plan.total:,} done", flush=True)
    loss = torch.compile(model.loss, dynamic=False) if args.compile else model.loss
    go(run, train, loss, plan, lambda: f"held-out perplexity {math.exp(held_out_loss(model, held_out, windows=16)):.2f}")
    print(f"held-out perplexity {math.exp(held_out_loss(model, held_out, windows=96)):.2f}")
    if not args.steps:
        model.save(args.out)


if __name__ == "__main__":
    main()
