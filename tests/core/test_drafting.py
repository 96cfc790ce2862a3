"""What is counted of drafts."""
from penstock.core.drafting import DraftCheck, Drafting, DraftTally, by_position, depths, together


def test_depths_of_a_tree() -> None:
    assert depths((-1, -1, 1, 1, 2)) == [1, 1, 2, 2, 3]


def test_drafts_by_position() -> None:
    assert by_position(3, None) == (1, 1, 1)
    assert by_position(5, (-1, -1, 1, 1, 2)) == (2, 2, 1)
    assert by_position(0, None) == by_position(0, ()) == ()


def test_passes_are_added_up() -> None:
    tally = DraftTally()
    tally.add(DraftCheck((1, 1), 1), 2)
    tally.add(DraftCheck((2, 1, 1), 3), 4)
    tally.add(DraftCheck((1,), 0), 1)
    found = tally.total()
    assert found == Drafting(3, 7, (4, 2, 1), (2, 1, 1))
    assert (found.num_drafted, found.num_accepted) == (7, 4)
    assert found.tokens_per_draft_pass == 7 / 3 and found.tokens_per_pass(17) == 17 / 13  # ten more passes, of a token each
    assert found.acceptance == [0.5, 0.5, 1.0]


def test_drafts_that_the_output_does_not_keep_are_not_accepted() -> None:
    tally = DraftTally()
    tally.add(DraftCheck((1, 1, 1), 3), 2)  # an end of text, or a stop string, behind the second
    assert tally.total() == Drafting(1, 2, (1, 1, 1), (1, 1, 0))


def test_several_are_one_where_they_are_put_together() -> None:
    parts = [Drafting(1, 2, (1, 1), (1, 0)), Drafting(), Drafting(2, 5, (2, 2, 1), (2, 1, 0))]
    assert together(parts) == Drafting(3, 7, (3, 3, 1), (3, 1, 0))
    assert together([]) == Drafting() and Drafting().acceptance == []
    assert Drafting().tokens_per_draft_pass is None and Drafting().tokens_per_pass(3) is None
