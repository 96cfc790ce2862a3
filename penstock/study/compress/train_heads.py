"""Trains heads that draft for a model: on its hidden states over given text and over its own greedy outputs, which matter most."""
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.study.compress.answers import Answers, Windows
from penstock.study.compress.heads.contract import Heads
from penstock.study.compress.measure import Agreement, agreement, calibrate, pair, told
from penstock.study.compress.optimizer import Optimizer
from penstock.study.compress.target import Target

HARD_SHARE = 0.6  # of what is to be matched: the target's first choice, which a greedy draft must hit; the rest is its distribution
FADING = 0.8  # of a place in a draft against the one before: it counts only where those were right
PROMPT_SHARE = 0.25  # of the places in given text that are learned from; of those in outputs it is all
CALIBRATING = 4  # batches
SAVE_S, SAY_S = 240.0, 20.0


@dataclass(frozen=True, slots=True)
class Length:
    """Of a run: so many minutes since `began`, so many steps, or whichever ends first. One step is always made."""

    minutes: float | None = None
    steps: int | None = None
    began: float = field(default_factory=time.monotonic)

    def done(self, step: int) -> float:
        """From 0 to 1."""
        by_steps = 0.0 if self.steps is None else step / self.steps
        by_time = 0.0 if self.minutes is None else (time.monotonic() - self.began) / 60 / self.minutes
        return min(1.0, max(by_steps, by_time))


@dataclass(frozen=True, slots=True)
class Trained:
    steps: int
    tokens: int
    seconds: float
    agreement: Agreement


def schedule(done: float) -> float:
    """Learning rate over the run: short warm-up, plateau, then linear decay to nearly zero from 0.4 on."""
    return min(1.0, done / 0.01 + 0.02, (1.0 - done) / 0.6 + 1e-3)


@dataclass(frozen=True, slots=True)
class Lessons:
    answers: Answers
    held_out: list[Windows]
    length: Length


def train(target: Target, heads: Heads, lessons: Lessons, save: Callable[[], Path], say: Callable[[str], None]) -> Trained:
    """Trains `heads` in place. `save` is called every few minutes, at the end, and before an exception is passed on if a step was made;
    `say` with lines for people."""
    generator = torch.Generator().manual_seed(1)
    answers, held_out, length = lessons.answers, lessons.held_out, lessons.length
    optimizer = Optimizer(heads.parameters)
    began = saved = said = time.monotonic()
    step = tokens = 0
    try:
        while (done := length.done(step)) < 1 or step == 0:
            parts = answers.draw()
            loss = add_gradients(target, heads, parts, generator)
            optimizer.step(schedule(done))
            step, tokens, now = step + 1, tokens + sum(part.tokens.numel() for part in parts), time.monotonic()
            if now - said > SAY_S:
                said = now
                say(f"{length.done(step):6.1%}  loss {loss:.3f}  step {step}, {tokens / (now - began):,.0f} tokens/s")
            if now - saved > SAVE_S:
                save()
                say(told(agreement(target, heads, held_out)))
                saved = time.monotonic()  # after measuring, which may take longer than that
        save()
        say(f"{step} steps done; calibrating and measuring")
        calibrate(target, heads, [part for _ in range(CALIBRATING) for part in answers.draw_few()])
        return Trained(step, tokens, time.monotonic() - began, agreement(target, heads, held_out))
    except BaseException:
        if step:
            path = save()
            say(f"{path}: what was learned so far; to continue from it: --begin {path.parent}")
        raise


def add_gradients(target: Target, heads: Heads, parts: list[Windows], generator: torch.Generator) -> float:
    """Of the loss per place of a draft, over all parts of a batch. Returns that loss."""
    total = places = 0.0
    for part in parts:
        loss, count = loss_of(target, heads, part, generator)
        loss.backward()
        total, places = total + loss.item(), places + count
    for weight in heads.parameters.values():
        if weight.grad is not None:
            weight.grad /= places
    return total / places


def loss_of(target: Target, heads: Heads, batch: Windows, generator: torch.Generator) -> tuple[Tensor, float]:
    """(cross-entropy with a mixture of the target's first choice and its distribution, in nats, summed over the places of drafts; how many
    these are). A place counts for as much as `FADING` leaves of it."""
    states = target.states(batch.tokens)
    paired = pair(target, batch, states, torch.rand(batch.tokens.shape, generator=generator) < PROMPT_SHARE)
    wanted = torch.softmax(paired.logits, dim=-1).mul_(1 - HARD_SHARE)
    wanted.scatter_add_(1, paired.logits.argmax(-1, keepdim=True), torch.full((len(wanted), 1), HARD_SHARE))
    losses, counts = [], []
    for place, guess in enumerate(heads.guesses(batch.tokens[:, 1:], states[:, :-1])):
        hidden, rows = paired.of(guess)
        if not len(rows):  # no answer of the batch is so long
            break
        losses.append(F.cross_entropy(target.logits(hidden), wanted[rows], reduction="sum") * FADING**place)
        counts.append(len(rows) * FADING**place)
    return torch.stack(losses).sum(), sum(counts)
