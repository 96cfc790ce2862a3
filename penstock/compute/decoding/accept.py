"""Which drafts are accepted: those that the target itself chooses.

The target's choice after any draft is a function of its logits there, of the sequence's state and of the output index, since draws
take their number from (seed, index) alone. So a draft is accepted when it is the very token that the target chooses at its place, and
the target's choice after the last accepted one is a token for free. What comes out is, token for token, what plain decoding gives: for
any temperature, filter, penalty and seed, and with it the distribution.

How likely is that? For one guess x the probability is p(x), as in speculative sampling (Leviathan et al. 2023, arXiv:2211.17192) with a
proposer that is certain of x; for several guesses after one token it is the sum of theirs, as in recursive rejection sampling without
replacement. Only a proposer that draws its guesses could be accepted more often, up to sum(min(p, q)); it comes near when it draws with
the numbers that the target will draw with.
"""
from collections.abc import Callable, Sequence

Choose = Callable[[int], int | None]  # row -> the token that the target chooses there; None where it chooses nothing
Instead = Callable[[int, list[int]], int | None]  # row, the drafts after it -> the one of these that is taken in place of the choice


def walk(drafts: Sequence[int], parents: Sequence[int] | None, choose: Choose, instead: Instead | None = None,
         ) -> tuple[list[int], list[int | None]]:
    """(rows, tokens) along the accepted path: row 0 is the last token's, row i + 1 that of draft i; tokens[j] is the choice at rows[j],
    or the draft that `instead`, which makes the walk lossy, has put in its place.

    `choose` is called once for each of these rows, in order.
    """
    rows, tokens = [0], [choose(0)]
    if parents is None and instead is None:
        for row, draft in enumerate(drafts, 1):
            if draft != tokens[-1]:
                break
            rows.append(row)
            tokens.append(choose(row))
        return rows, tokens
    while (child := find(drafts, parents, rows[-1] - 1, tokens[-1])) is not None or instead is not None:
        if child is None:
            after = followers(len(drafts), parents, rows[-1] - 1)
            child = instead(rows[-1], after) if after and instead is not None else None
            if child is None:
                break
            tokens[-1] = drafts[child]
        rows.append(child + 1)
        tokens.append(choose(child + 1))
    return rows, tokens


def followers(num_drafts: int, parents: Sequence[int] | None, parent: int) -> list[int]:
    """The drafts after `parent`."""
    if parents is None:
        return [parent + 1] if parent + 1 < num_drafts else []
    return [i for i in range(parent + 1, num_drafts) if parents[i] == parent]


def find(drafts: Sequence[int], parents: Sequence[int] | None, parent: int, token: int | None) -> int | None:
    """The draft after `parent` that is this token."""
    if parents is None:
        return parent + 1 if parent + 1 < len(drafts) and drafts[parent + 1] == token else None
    return next((i for i in range(parent + 1, len(drafts)) if parents[i] == parent and drafts[i] == token), None)
