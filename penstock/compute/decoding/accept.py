"""Exact acceptance: a draft is accepted if it is the token that the target itself chooses at its position.

The target's choice after any draft depends only on its logits there, on the sequence's state and on the output index, since the random
number of a draw is a function of (seed, output index). So the target can choose at every draft position in one step; the walk follows
its choices along the drafts, and the choice after the last accepted draft is a bonus token. The output equals that of plain decoding
token for token, for any temperature, filter, penalty and seed.

A single draft x is accepted with probability p(x), as in speculative sampling (Leviathan et al. 2023, arXiv:2211.17192) with a
deterministic proposer; several drafts after one token with the sum of their probabilities, as in recursive rejection sampling without
replacement. Rejection sampling would accept a draft that was sampled from q with probability sum(min(p, q)); here a proposer comes close
to that if it draws with the same random numbers as the target (Sampler.guess).
"""
from collections.abc import Callable, Sequence

Choose = Callable[[int], int | None]  # row -> the token that the target chooses after it; None: the row samples nothing
Substitute = Callable[[int, list[int]], int | None]  # row, the drafts that follow it -> the one that is accepted in place of the choice


def walk(drafts: Sequence[int], parents: Sequence[int] | None, choose: Choose, substitute: Substitute | None = None,
         ) -> tuple[list[int], list[int | None]]:
    """The accepted path as (rows, tokens). Row 0 is that of the sequence's last token, row i + 1 that of draft i; tokens[j] is the target's
    choice after rows[j], so the last one is the bonus token. `parents`: as in `Drafts`.

    `choose` is called once for each row of the path, in order. `substitute`, if given, makes the walk lossy: where no draft is the target's
    choice, it may name one that is accepted all the same, which then replaces the choice in `tokens`.
    """
    rows, tokens = [0], [choose(0)]
    if parents is None and substitute is None:
        for row, draft in enumerate(drafts, 1):
            if draft != tokens[-1]:
                break
            rows.append(row)
            tokens.append(choose(row))
        return rows, tokens
    while (child := find(drafts, parents, rows[-1] - 1, tokens[-1])) is not None or substitute is not None:
        if child is None:
            children = children_of(len(drafts), parents, rows[-1] - 1)
            child = substitute(rows[-1], children) if children and substitute is not None else None
            if child is None:
                break
            tokens[-1] = drafts[child]
        rows.append(child + 1)
        tokens.append(choose(child + 1))
    return rows, tokens


def num_agreeing(drafts: Sequence[int], choices: Sequence[int | None]) -> int:
    """How many drafts of a chain are accepted where the target's choices are known: that after the last token, and after each draft."""
    for count, (draft, choice) in enumerate(zip(drafts, choices, strict=False)):
        if draft != choice:
            return count
    return len(drafts)


def children_of(num_drafts: int, parents: Sequence[int] | None, parent: int) -> list[int]:
    """The drafts that follow draft `parent`, or the last token (-1)."""
    if parents is None:
        return [parent + 1] if parent + 1 < num_drafts else []
    return [i for i in range(parent + 1, num_drafts) if parents[i] == parent]


def find(drafts: Sequence[int], parents: Sequence[int] | None, parent: int, token: int | None) -> int | None:
    """The index of the draft that follows `parent` and is this token, or None."""
    if parents is None:
        return parent + 1 if parent + 1 < len(drafts) and drafts[parent + 1] == token else None
    return next((i for i in range(parent + 1, len(drafts)) if parents[i] == parent and drafts[i] == token), None)
