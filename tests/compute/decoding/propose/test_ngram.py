"""Prompt lookup finds what stood before."""
import pytest

from penstock.compute.decoding.propose.contract import Draftable, Drafts
from penstock.compute.decoding.propose.ngram import Ngram
from penstock.compute.decoding.propose.runs import PythonRuns
from penstock.core.errors import UsageError

pytestmark = pytest.mark.usefixtures("form")


def propose(tokens, room=8, **options):
    (found,) = Ngram(Ngram.Options(**options)).propose([Draftable(0, tokens, len(tokens), room)])
    return found


def test_what_followed_the_last_tokens_before_is_offered():
    assert propose([1, 2, 3, 4, 5, 9, 2, 3], k=3) == Drafts((4, 5, 9))
    assert propose([1, 2, 3, 4, 5, 9, 2, 3], k=3, room=1) == Drafts((4,))


def test_nothing_is_offered_where_nothing_was_seen():
    assert propose([1, 2, 3, 4]) == Drafts()
    assert propose([]) == Drafts() == propose([7])


def test_the_longest_end_counts_and_among_equals_the_last():
    assert propose([1, 2, 3, 7, 9, 2, 3, 8, 1, 2, 3], k=1, n=3) == Drafts((7,))
    assert propose([1, 2, 3, 7, 9, 2, 3, 8, 1, 2, 3], k=1, n=2) == Drafts((8,))


def test_only_matches_of_full_length_are_sure():
    ngram = Ngram(Ngram.Options(n=3))
    rows = [Draftable(0, [1, 2, 3, 7, 9, 2, 3], 7, 1, sure=True), Draftable(1, [1, 2, 3, 7, 9, 1, 2, 3], 8, 1, sure=True)]
    assert ngram.propose(rows) == [Drafts(), Drafts((7,))]


def test_a_repetition_is_repeated():
    assert propose([5, 1, 2, 1, 2], k=5) == Drafts((1, 2, 1, 2, 1))


def test_sequences_are_kept_apart_and_forgotten():
    ngram = Ngram(Ngram.Options(k=1))
    rows = [Draftable(0, [1, 2, 3, 1, 2], 5, 1), Draftable(1, [1, 2, 4, 1, 2], 5, 1)]
    assert ngram.propose(rows) == [Drafts((3,)), Drafts((4,))]
    ngram.forget(0)
    ngram.forget(0)
    assert ngram.propose([Draftable(0, [1, 2, 5, 1, 2], 5, 1)]) == [Drafts((5,))]


@pytest.mark.parametrize("options", [{"least": 0}, {"least": 5}, {"k": 0}, {"n": 65}])
def test_sizes_that_make_no_sense_are_refused(options):
    with pytest.raises(UsageError, match="ngram: "):
        Ngram(Ngram.Options(**options))


def test_python_does_it_where_nothing_native_was_built(form):
    assert isinstance(Ngram(Ngram.Options())._runs, PythonRuns) == (form == "python")
