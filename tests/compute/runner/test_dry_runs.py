"""What drafts that no step checks would have come to, by the tokens that came."""
import pytest

from penstock.compute.decoding.propose.contract import Drafts
from penstock.compute.runner.drafter import DryRun
from penstock.compute.runner.known import Known
from penstock.core.types import SamplingParams, SeqInfo

CHAIN = Drafts((5, 6, 7))
TREE = Drafts((5, 8, 6, 9), (-1, -1, 0, 1))  # 5 6 or 8 9


@pytest.mark.parametrize(("drafts", "room", "came", "path"), [
    (CHAIN, 3, [], None),
    (CHAIN, 3, [4, 5], None),  # failed, but told no sooner than if it had not
    (CHAIN, 3, [5, 6], None),
    (CHAIN, 3, [4, 5, 6], ()),
    (CHAIN, 3, [5, 6, 8], (0, 1)),
    (CHAIN, 3, [5, 6, 7], (0, 1, 2)),
    (CHAIN, 4, [5, 6, 7], None),
    (CHAIN, 4, [5, 6, 7, 9], (0, 1, 2)),
    (TREE, 4, [8, 9], None),
    (TREE, 4, [8, 9, 1, 1], (1, 3)),
    (TREE, 4, [8, 6, 1, 1], (1,)),
    (TREE, 4, [5, 6, 1, 1, 1], (0, 2)),
    (TREE, 4, [7, 9, 9, 9], ()),
    (Drafts((5,), (-1,)), 1, [5], (0,)),
    (Drafts(()), 1, [], None),
    (Drafts(()), 1, [5], ()),
])
def test_drafts_are_compared_with_the_tokens_that_come(drafts: Drafts, room: int, came: list[int], path: tuple[int, ...] | None) -> None:
    known = Known(SeqInfo(SamplingParams(), (1, 2), 0))
    run = DryRun(known, len(known.tokens), room, drafts)
    known.tokens.extend(came)
    assert run.path() == path
