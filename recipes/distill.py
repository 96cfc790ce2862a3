"""Distils rill from brook: rill learns brook's whole distribution at every position of the books, and most of all its first choice.

    python recipes/distill.py --corpus FOLDER [--passes 1] [--teacher penstock/bundled/brook] [--out penstock/bundled/rill]
"""
import shutil
from pathlib import Path

import data
import numpy as np
import torch
import torch.nn.functional as F
from model import Model
from shapes import SHAPES
from torch import Tensor
from train import Plan, Run, go, options

HARD_SHARE = 0.3  # of the loss: cross-entropy with the teacher's first choice, which is what a greedy draft must hit


def loss_of(student: Model, teacher: Model, windows: Tensor) -> Tensor:
    """windows [B, length + 1] -> (1 - s) KL(teacher, student) + s CE(teacher's first choice, student), in nats a token."""
    tokens = windows[:, :-1]
    with torch.no_grad():
        wanted = teacher.logits(tokens).flatten(0, 1).float()
    logits = student.logits(tokens).flatten(0, 1).float()
    log_p = F.log_softmax(logits, dim=-1)
    log_q = F.log_softmax(wanted, dim=-1)
    kl = (log_q.exp() * (log_q - log_p)).sum(-1).mean()
    return (1 - HARD_SHARE) * kl + HARD_SHARE * F.nll_loss(log_p, wanted.argmax(-1))


@torch.no_grad()
def agreement(student: Model, teacher: Model, stream: data.Stream, num_windows: int = 24, length: int = 512) -> float:
    """Share of held-out positions at which both would choose the same next token."""
    windows = torch.from_numpy(stream.epoch(data.Mix(length), seed=0)[:num_windows, :-1].astype(np.int64))
    same = [(student.logits(part).argmax(-1) == teacher.logits(part).argmax(-1)).float().mean() for part in windows.split(4)]
    return float(torch.stack(same).mean())


def main() -> None:
    parser = options(str(__doc__), "checkpoints/rill", "penstock/bundled/rill", passes=1)
    parser.add_argument("--teacher", type=Path, default=Path("penstock/bundled/brook"))
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    train, held_out = data.load(args.corpus, args.teacher / "tokenizer.json")
    plan = Plan.of(args, train)
    teacher = Model(SHAPES["brook"], seed=0)
    teacher.restore(args.teacher)
    run = Run("rill", plan, args.work)
    student = run.model
    print(f"{student.program.num_parameters():,} parameters; {run.tokens:,} of {plan.total:,} tokens done", flush=True)
    loss = torch.compile(loss_of, dynamic=False) if args.compile else loss_of
    go(run, train, lambda batch: loss(student, teacher, batch), plan,
       lambda: f"agrees with the teacher on {agreement(student, teacher, held_out):.1%} of held-out tokens")
    if not args.steps:
        student.save(args.out)
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
            if (args.teacher / name).exists():
                shutil.copy(args.teacher / name, args.out / name)


if __name__ == "__main__":
    main()
