"""Suffix decoding offers what followed most often."""
import pytest

from penstock.compute.decoding.propose.contract import Draftable, Drafts
from penstock.compute.decoding.propose.suffix import Suffix
from penstock.compute.decoding.propose.tries import PythonTries
from penstock.core.errors import UsageError

pytestmark = pytest.mark.usefixtures("form")


def ask(proposer, tokens, seq_id=0, num_prompt=None, room=8):
    (found,) = proposer.propose([Draftable(seq_id, tokens, len(tokens) if num_prompt is None else num_prompt, room)])
    return found


def test_the_commonest_continuation_of_the_longest_known_end():
    tokens = [1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 4, 9, 1, 2]
    assert ask(Suffix(Suffix.Options(k=2)), tokens) == Drafts((4, 9))
    assert ask(Suffix(Suffix.Options(k=8)), tokens, room=1) == Drafts((4,))
    assert ask(Suffix(Suffix.Options()), [1, 2, 3]) == Drafts()


def test_a_guess_ends_where_it_is_no_longer_likely():
    tokens = [1, 2, 3, 1, 2, 4, 1, 2, 5, 1]
    assert ask(Suffix(Suffix.Options(likely=0.5, doubt=0)), tokens) == Drafts((2,))  # then 3, 4 and 5 are equally common
    assert ask(Suffix(Suffix.Options(likely=0.3, k=2, doubt=0)), tokens) == Drafts((2, 3))


def test_a_short_run_that_was_seen_once_is_doubted():
    assert ask(Suffix(Suffix.Options(likely=0.45, doubt=0)), [1, 2, 3, 4, 5, 6, 1]) == Drafts((2, 3, 4, 5, 6, 1))
    assert ask(Suffix(Suffix.Options(likely=0.45, doubt=1)), [1, 2, 3, 4, 5, 6, 1]) == Drafts((2,))  # 1/2; then 1/2 * 2/3
    assert ask(Suffix(Suffix.Options(likely=0.45, doubt=1)), [1, 2, 3, 4, 5, 6, 1, 2, 3]) == Drafts((4, 5, 6))  # 3/4, 3/5, 3/6; then 3/7
    assert ask(Suffix(Suffix.Options(likely=0.45, doubt=1.5)), [1, 2, 3, 4, 5, 6, 1]) == Drafts()  # 1/2.5


def test_what_others_wrote_is_offered_but_not_their_prompts():
    suffix = Suffix(Suffix.Options(k=3))
    ask(suffix, [7, 8, 20, 21, 22, 23], seq_id=0, num_prompt=2)
    assert ask(suffix, [5, 20, 21], seq_id=1) == Drafts((22, 23))
    assert ask(suffix, [5, 7], seq_id=2) == Drafts()
    suffix.forget(0)
    assert ask(suffix, [5, 20, 21], seq_id=3) == Drafts((22, 23))


def test_of_a_sequence_that_has_ended_the_output_alone_is_learned():
    suffix = Suffix(Suffix.Options(k=3))
    assert ask(suffix, [7, 8, 9, 20, 21, 22, 23], seq_id=0, num_prompt=3, room=0) == Drafts()
    suffix.forget(0)
    assert ask(suffix, [5, 20, 21], seq_id=1) == Drafts((22, 23))
    assert ask(suffix, [5, 7, 8], seq_id=2) == Drafts()
    ask(suffix, [6, 30], seq_id=3, num_prompt=1)
    assert ask(suffix, [6, 30, 31, 32], seq_id=3, num_prompt=1, room=0) == Drafts()  # the rest of one that it knows
    suffix.forget(3)
    assert ask(suffix, [5, 30], seq_id=4) == Drafts((31, 32))


class Interrupted:
    """Tries that are interrupted where a sequence ends."""

    def __init__(self, tries):
        self.begin, self.guess, self.forget = tries.begin, tries.guess, tries.forget

    def end(self, seq_id, tokens):
        raise KeyboardInterrupt


@pytest.mark.parametrize("is_known", [False, True])
def test_what_is_interrupted_while_it_ends_can_be_forgotten(monkeypatch, is_known):
    suffix = Suffix(Suffix.Options(k=1))
    if is_known:
        ask(suffix, [1, 2])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(suffix, "_tries", Interrupted(suffix._tries))
        ask(suffix, [1, 2, 3], room=0)
    suffix.forget(0)
    assert ask(suffix, [1, 2, 3, 1, 2]) == Drafts((3,))


def test_salts_are_kept_apart():
    suffix = Suffix(Suffix.Options(k=3))
    suffix.propose([Draftable(0, [20, 21, 22, 23], 0, 8, "a")])
    assert suffix.propose([Draftable(1, [5, 20, 21], 3, 8, "b"), Draftable(2, [5, 20, 21], 3, 8, "a")]) == [Drafts(), Drafts((22, 23))]


def test_only_so_much_is_remembered():
    suffix = Suffix(Suffix.Options(remembered=4))
    ask(suffix, [1, 2, 3], seq_id=0, num_prompt=0)
    suffix.forget(0)
    ask(suffix, [4, 5, 6], seq_id=1, num_prompt=0)
    suffix.forget(1)
    suffix.forget(1)
    assert ask(suffix, [1, 2], seq_id=2) == Drafts()
    assert ask(suffix, [4, 5], seq_id=3) == Drafts((6,))


@pytest.mark.parametrize("options", [{"k": 0}, {"depth": 1}, {"likely": 1.5}, {"remembered": -1}, {"doubt": -0.5}])
def test_options_without_sense_are_refused(options):
    with pytest.raises(UsageError, match="suffix: "):
        Suffix(Suffix.Options(**options))


def test_python_does_it_where_nothing_native_was_built(form):
    assert isinstance(Suffix(Suffix.Options())._tries, PythonTries) == (form == "python")


def test_a_salt_may_be_half_a_pair_of_surrogates():
    """As `block_keys` allows: over HTTP none gets here."""
    row = Draftable(1, [1, 2, 3, 1, 2], 4, 8, "\ud800")
    assert Suffix(Suffix.Options(k=1, doubt=0)).propose([row]) == [Drafts((3,))]
