"""Counted tries: what they count, and one meaning in both forms."""
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compute.decoding.propose.tries import Node, PythonTries, Trie, best_tries

SALTS = (b"", b"a")


@pytest.fixture
def native():
    return pytest.importorskip("penstock._native").Tries


def runs(node: Node, path: tuple[int, ...] = ()) -> dict[tuple[int, ...], int]:
    found = {path: node.count} if path else {}
    for token, child in node.children.items():
        found |= runs(child, (*path, token))
    return found


def test_a_trie_counts_every_run_and_forgets_what_is_taken_back():
    rng, depth = random.Random(1), 4
    texts = [[rng.randrange(3) for _ in range(rng.randrange(12))] for _ in range(6)]
    trie, ends = Trie(depth), [[] for _ in texts]
    for at in range(12):  # all grow at the same time
        for i, text in enumerate(texts):
            if at < len(text):
                ends[i] = trie.add(text[at], ends[i])
    for left in range(len(texts), -1, -1):
        kept = texts[:left]
        counted = Counter(tuple(text[i:j]) for text in kept for i in range(len(text)) for j in range(i + 1, min(i + depth, len(text)) + 1))
        assert runs(trie._root) == dict(counted)
        if left:
            trie.remove(texts[left - 1])


def test_salts_that_nobody_uses_are_forgotten():
    tries = PythonTries(4, 0.3, 0, 2)
    for seq_id in range(9):
        tries.begin(seq_id, 0, b"tenant %d" % seq_id)
        tries.guess([(seq_id, [1, 2], 8)])
        tries.forget(seq_id)
    assert list(tries._shared) == [b"tenant 8"]


def test_a_copy_is_followed_beyond_the_longest_runs(native):
    """Of twenty tokens the first eight come again: all that is asked for follows, though runs have four tokens at most."""
    text = list(range(20))
    for form in (PythonTries, native):
        tries = form(4, 0.3, 0.0, 100)
        tries.begin(0, len(text), b"")
        assert list(tries.guess([(0, [*text, *text[:8]], 9)])[0]) == text[8:17]


class Both:
    """Told the same in both forms, which must answer the same."""

    def __init__(self, native, depth, likely, doubt, remembered):
        self.forms = [PythonTries(depth, likely, doubt, remembered), native(depth, likely, doubt, remembered)]
        self.begun = set()

    def begin(self, seq_id, num_prompt, salt):
        if seq_id not in self.begun:
            self.begun.add(seq_id)
            for form in self.forms:
                form.begin(seq_id, num_prompt, salt)

    def guess(self, rows):
        return [form.guess(rows) for form in self.forms]

    def forget(self, seq_id):
        self.begun.discard(seq_id)
        for form in self.forms:
            form.forget(seq_id)

    def end(self, seq_id, tokens):
        self.begun.discard(seq_id)
        for form in self.forms:
            form.end(seq_id, tokens)


row = st.tuples(st.integers(0, 4), st.lists(st.integers(0, 2), max_size=10), st.integers(0, 9))
end = st.tuples(st.integers(0, 4), st.lists(st.integers(0, 2), max_size=10))
step = st.one_of(st.lists(row, min_size=1, max_size=4, unique_by=lambda row: row[0]), st.integers(0, 4), end)


@given(depth=st.integers(2, 6), likely=st.sampled_from([0.0, 0.3, 0.5, 1.0]), doubt=st.sampled_from([0.0, 0.5, 1.0]),
       remembered=st.integers(0, 60), prompts=st.lists(st.integers(0, 12), min_size=5, max_size=5), steps=st.lists(step, max_size=40))
@settings(max_examples=300, deadline=None)
def test_both_forms_guess_the_same(depth, likely, doubt, remembered, prompts, steps):
    both = Both(pytest.importorskip("penstock._native").Tries, depth, likely, doubt, remembered)
    for step in steps:
        if isinstance(step, int):
            both.forget(step)
            continue
        if isinstance(step, tuple):
            both.begin(step[0], prompts[step[0]], SALTS[step[0] % 2])
            both.end(*step)
            continue
        for seq_id, _, _ in step:
            both.begin(seq_id, prompts[seq_id], SALTS[seq_id % 2])
        first, second = both.guess(step)
        assert first == second


@pytest.mark.parametrize("vocabulary", [2, 40, 50_000])
def test_many_texts_that_copy_from_each_other(native, vocabulary):
    rng, both, texts, guessed = random.Random(vocabulary), Both(native, 8, 0.1, 0.2, 1500), [[]], 0
    for seq_id in range(40):
        text = [rng.randrange(vocabulary) for _ in range(rng.randrange(60))]
        for source in rng.choices(texts, k=3):
            at = rng.randrange(len(source) + 1)
            text += source[at : at + rng.randrange(60)] + [rng.randrange(vocabulary) for _ in range(rng.randrange(4))]
        texts.append(text)
        both.begin(seq_id, rng.randrange(30), rng.choice(SALTS))
    told = [0] * 40
    for _ in range(900):
        some = rng.sample(range(40), 6)
        new = {seq_id: texts[seq_id + 1][told[seq_id] : told[seq_id] + rng.randrange(6)] for seq_id in some if seq_id in both.begun}
        for seq_id, tokens in new.items():
            told[seq_id] += len(tokens)
        first, second = both.guess([(seq_id, tokens, 8) for seq_id, tokens in new.items()])
        assert first == second
        guessed += sum(map(len, first))
        ended = some[0]
        if told[ended] >= len(texts[ended + 1]):
            both.forget(ended)
            both.begin(ended, rng.randrange(30), rng.choice(SALTS))
            told[ended] = 0
    assert guessed > 1000


ENDS_WITHOUT_MEMORY = """
import random, resource, sys
from pathlib import Path
from penstock import _native
rng = random.Random(0)
tries, text = _native.Tries(16, 0.3, 1.0, 0), [rng.randrange(5) for _ in range(500_000)]
tries.begin(0, 0, b"")
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (int(sys.argv[1]) << 20), resource.RLIM_INFINITY))
try:
    tries.end(0, text)
except MemoryError:
    tries.forget(0)
    tries.begin(0, 0, b"")
    print(tries.guess([(0, [1, 2, 3, 4, 9, 1, 2, 3, 4], 1)]))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("megabytes", [4, 6, 8])
def test_what_memory_ran_out_on_can_be_forgotten(megabytes):
    """Whatever of its last run was counted by then. In a process of its own, which has no memory left from others."""
    found = subprocess.run([sys.executable, "-c", ENDS_WITHOUT_MEMORY, str(megabytes)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "[(9,)]\n", "")


def test_the_native_form_is_the_one_that_is_used_and_refuses_what_it_does_not_know(native):
    tries = best_tries(2, 0.5, 0, 0)
    assert isinstance(tries, native)
    with pytest.raises(IndexError, match="sequence 3 has not begun"):
        tries.guess([(3, [1], 1)])
    tries.begin(3, 0, b"")
    with pytest.raises(ValueError, match="sequence 3 has begun"):
        tries.begin(3, 0, b"")
    with pytest.raises(ValueError, match="depth 1"):
        native(1, 0.5, 0, 0)
