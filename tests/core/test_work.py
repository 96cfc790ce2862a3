from hypothesis import given
from hypothesis import strategies as st

from penstock.core.work import StepWork, even_work

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


@given(st.integers(0, 5), st.integers(1, 90), st.integers(0, 40), st.integers(0, 90), WINDOWS)
def test_sequences_that_are_alike_count_as_they_do_one_by_one(count: int, context: int, rows: int, start: int, window: int | None) -> None:
    even = even_work(count, context, rows, start)
    contexts = [(1, context)] * count + [(rows, start + rows)] * (rows > 0)
    plain = StepWork(tuple(contexts), len(contexts))
    assert even.contexts == plain.contexts and even.windowed(window) == plain.windowed(window)
    for name in ("num_logits", "num_tokens", "num_seqs", "num_context_tokens", "attention_pairs"):
        assert getattr(even, name) == getattr(plain, name), name
    assert [each for num, *each in even.sequences() for _ in range(num)] == [list(each) for each in contexts]


def test_a_window_of_one_sees_only_itself() -> None:
    assert StepWork(((1, 10), (3, 3))).windowed(1) == (4, 4)
