"""How right heads are about what their target chooses, and how sure they are made of it."""
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.study.compress.answers import Windows
from penstock.study.compress.heads.contract import Guess, Heads
from penstock.study.compress.target import Target

FACTORS = tuple(2 ** (i / 6) for i in range(-6, 10))  # that logits may be scaled by


@dataclass(frozen=True, slots=True)
class Agreement:
    """On the target's greedy outputs, by place in a draft. `right`: the share of places where the first guess is the target's choice when
    the tokens before it are; `accepted`: where it and all guesses before it are."""

    right: tuple[float, ...]
    accepted: tuple[float, ...]

    @property
    def tokens_per_pass(self) -> float:
        """Of a chain of first guesses."""
        return 1.0 + sum(self.accepted)


@dataclass(frozen=True, slots=True)
class Paired:
    """Places of a batch that are learned from, and the target's word on each: [B, length] -> row of `logits` [N, vocab], or -1."""

    rows: Tensor
    logits: Tensor

    def of(self, guess: Guess) -> tuple[Tensor, Tensor]:
        """(rows [M, hidden] of the guess, rows of `logits` that they are about)."""
        rows = self.rows[:, guess.ahead : guess.ahead + guess.hidden.shape[1]]
        hidden = guess.hidden[:, : rows.shape[1]]
        meant = rows.clone()
        meant[:, : guess.since] = -1
        return hidden[meant >= 0], meant[meant >= 0]


@torch.no_grad()
def pair(target: Target, batch: Windows, states: Tensor, of_prompt: Tensor) -> Paired:
    """`of_prompt`: the places in prompts that are to be among them."""
    place = torch.arange(batch.tokens.shape[1])
    wanted = ((place >= batch.num_prompt - 1) | of_prompt) & (place < batch.lengths[:, None])
    rows = torch.full(wanted.shape, -1)
    rows[wanted] = torch.arange(int(wanted.sum()))
    return Paired(rows, target.logits(states[wanted]))


@torch.no_grad()
def agreement(target: Target, heads: Heads, held_out: list[Windows]) -> Agreement:
    """On the greedy outputs of these."""
    right: dict[int, list[Tensor]] = {}
    accepted: dict[int, list[Tensor]] = {}
    for batch in held_out:
        for place, (hit, good) in enumerate(hits(target, heads, batch)):
            right.setdefault(place, []).append(hit)
            accepted.setdefault(place, []).append(good)
    return Agreement(*(tuple(share(torch.cat(each)) for each in found.values()) for found in (right, accepted)))


def share(hits: Tensor) -> float:
    """Of those that are true; nought of none."""
    return hits.float().mean().item() if len(hits) else 0.0


def hits(target: Target, heads: Heads, batch: Windows) -> Iterator[tuple[Tensor, Tensor]]:
    """For each place of a draft: whether the guess is right, and whether all up to it are, over the drafts that the batch has."""
    states = target.states(batch.tokens)
    paired = pair(target, batch, states, torch.zeros(batch.tokens.shape, dtype=torch.bool))
    chosen = paired.logits.argmax(-1)
    good = torch.ones(batch.tokens.shape, dtype=torch.bool)  # by the row behind which a draft begins
    for guess in heads.guesses(batch.tokens[:, 1:], states[:, :-1]):
        hidden, rows = paired.of(guess)
        hit = target.logits(hidden).argmax(-1) == chosen[rows]
        where = (paired.rows[:, guess.ahead :] >= 0)[:, : guess.hidden.shape[1]].clone()
        where[:, : guess.since] = False
        row, column = where.nonzero(as_tuple=True)
        start = column - guess.since
        now = good[row, start] & hit
        good[row, start] = now
        of_answer = start >= batch.num_prompt - 1
        yield hit[of_answer], now[of_answer]


@torch.no_grad()
def calibrate(target: Target, heads: Heads, batches: list[Windows]) -> None:
    """Scales the last norms so that a head is as sure of its guesses as it is right about the target's first choice: temperature scaling
    (Guo et al. 2017, arXiv:1706.04599), by the factor of lowest cross-entropy. One for places that no answer reaches stays as it is."""
    costs: dict[str, Tensor] = {}
    for batch in batches:
        states = target.states(batch.tokens)
        paired = pair(target, batch, states, torch.zeros(batch.tokens.shape, dtype=torch.bool))
        chosen = paired.logits.argmax(-1)
        for name, guess in zip(heads.last_norms, heads.guesses(batch.tokens[:, 1:], states[:, :-1]), strict=True):
            hidden, rows = paired.of(guess)
            if not len(rows):
                break
            costs[name] = costs.get(name, torch.zeros(len(FACTORS))) + torch.stack([
                F.cross_entropy(target.logits(hidden * factor), chosen[rows], reduction="sum") for factor in FACTORS])
    for name, cost in costs.items():
        weight, offset = heads.parameters[name], target.spec.norm_offset
        weight.copy_((weight + offset) * FACTORS[int(cost.argmin())] - offset)


def told(found: Agreement) -> str:
    return (f"correct at each position: {', '.join(f'{share:.1%}' for share in found.right)}; a chain of first guesses gives "
            f"{found.tokens_per_pass:.2f} tokens per pass")
