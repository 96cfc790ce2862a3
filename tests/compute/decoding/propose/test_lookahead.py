import pytest

from penstock.compute.decoding.accept import walk
from penstock.compute.decoding.propose.contract import Draftable, Drafts, Verification
from penstock.compute.decoding.propose.lookahead import Lookahead
from penstock.core.errors import UsageError


class Jacobi:
    """A sequence whose next token is a function of the last one, decoded with drafts."""

    def __init__(self, proposer: Lookahead, tokens: list[int], room: int | None = None) -> None:
        self.proposer = proposer
        self.tokens = tokens
        self.room = proposer.lookahead() if room is None else room
        self.verification: Verification | None = None

    def step(self) -> tuple[Drafts, int]:
        """(what was offered, tokens gained)"""
        (drafts,) = self.proposer.propose([Draftable(0, self.tokens, 2, self.room, verification=self.verification)])
        parents = drafts.parents or ()
        choices = [after(self.tokens[-1]), *map(after, drafts.tokens)]
        rows, tokens = walk(drafts.tokens, parents, choices.__getitem__)
        self.tokens = [*self.tokens, *tokens]
        self.verification = Verification(drafts, tuple(row - 1 for row in rows[1:]), tuple(choices))
        return drafts, len(tokens)


class Blind(Lookahead):
    """Knows no runs but those of its window."""

    def _read(self, window, tokens):
        pass


def after(token: int) -> int:
    return (token * 2 + 3) % 13


def test_the_tree_is_a_chain_with_columns_behind_the_candidates():
    proposer = Lookahead(Lookahead.Options(window=3, n=3, candidates=1, chained=0))
    (drafts,) = proposer.propose([Draftable(0, [7, 8, 9, 1, 7], 5, 8)])
    assert drafts.tokens[:2] == (8, 9) and drafts.parents == (-1, 0, -1, 2, 3, 2, 3, 4)


def test_guesses_that_follow_the_model_are_accepted():
    """What the columns came through is tried where its first token has come."""
    jacobi = Jacobi(Blind(Lookahead.Options(window=6, n=4)), [1, 2])
    gained = [jacobi.step()[1] for _ in range(40)]
    assert jacobi.tokens[2:] == [after(token) for token in jacobi.tokens[1:-1]]
    assert gained[0] == 1 and sum(gained[20:]) >= 60


def test_the_latest_candidate_goes_on_with_the_run_that_begins_at_its_end():
    """Runs are 7 8 9, 8 9 1, 9 1 7, 1 7 4, 7 4 8, 4 8 7; after 7 the latest is 4 8, the one before it 8 9."""
    for chained, longest in ((0, (4, 8)), (1, (4, 8, 9, 1)), (2, (4, 8, 9, 1, 7, 4))):
        proposer = Lookahead(Lookahead.Options(window=3, n=3, chained=chained))
        num = len(longest) + 2
        (drafts,) = proposer.propose([Draftable(0, [7, 8, 9, 1, 7, 4, 8, 7], 8, num)])
        assert drafts == Drafts((*longest, 8, 9), (*range(-1, len(longest) - 1), -1, len(longest)))
        assert proposer.lookahead() == (3 + 3 + chained) * 2


def test_room_is_kept():
    for room in range(12):
        jacobi = Jacobi(Lookahead(Lookahead.Options(window=3, n=3)), [1, 2, 1, 2, 1], room)
        for _ in range(4):
            drafts, _ = jacobi.step()
            assert len(drafts.tokens) <= room
            assert all(parent < at for at, parent in enumerate(drafts.parents or ()))


def test_what_was_not_checked_moves_nothing():
    """Drafts that were cut, or choices that are not known: the window stays."""
    proposer = Lookahead(Lookahead.Options(window=2, n=3))
    row = Draftable(0, [5, 6], 2, 8)
    (first,) = proposer.propose([row])
    shorter = Drafts(first.tokens[:-1], (first.parents or ())[:-1])
    for verification in (None, Verification(first, (), ()), Verification(shorter, (), tuple(range(9)))):
        assert proposer.propose([Draftable(0, [5, 6], 2, 8, verification=verification)]) == [first]
    proposer.forget(0)
    proposer.forget(1)


@pytest.mark.parametrize("options", [{"window": 0}, {"n": 1}, {"candidates": 0}, {"kept": 0}, {"chained": -1}, {"window": 10**11}])
def test_options_without_sense_are_refused(options):
    with pytest.raises(UsageError, match=r"must be from [012] to 4,096, not"):
        Lookahead(Lookahead.Options(**options))
