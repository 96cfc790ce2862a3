from hypothesis import given
from hypothesis import strategies as st

from penstock.core.work import StepWork

SEQS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 90)).map(lambda s: (s[0], s[0] + s[1])), max_size=5)
WINDOWS = st.none() | st.integers(1, 140)


def visible(rows: int, total: int, window: int | None) -> list[set[int]]:
    """The positions that each row of a sequence sees, one by one."""
    seen = []
    for position in range(total - rows, total):
        seen.append({key for key in range(total) if key <= position and (window is None or position - key < window)})
    return seen


@given(SEQS, WINDOWS)
def test_windows_are_counted_as_by_hand(contexts: list[tuple[int, int]], window: int | None) -> None:
    rows = [visible(*each, window) for each in contexts]
    expected = sum(len(set().union(*seen)) for seen in rows), sum(len(keys) for seen in rows for keys in seen)
    assert StepWork(tuple(contexts)).windowed(window) == expected


@given(SEQS)
def test_counts_follow_from_the_sequences(contexts: list[tuple[int, int]]) -> None:
    work = StepWork(tuple(contexts), num_logits=3)
    assert work.num_tokens == sum(rows for rows, _ in contexts) and work.num_seqs == len(contexts) and work.num_logits == 3
    assert (work.num_context_tokens, work.attention_pairs) == work.windowed(None) == work.windowed(1000)


def test_a_window_of_one_sees_only_itself() -> None:
    assert StepWork(((1, 10), (3, 3))).windowed(1) == (4, 4)
