"""The tree is that of the head's own word on each path, whatever is in the step beside it and whatever was left out before."""
import heapq
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.compute.decoding.propose.confidence import SAMPLED_SCALE
from penstock.compute.decoding.propose.contract import Draftable, Drafts
from penstock.compute.decoding.propose.eagle import Eagle
from penstock.compute.decoding.state import RowState
from penstock.core.errors import UsageError
from penstock.core.types import SamplingParams, SeqInfo
from tests.compute.decoding.propose.oracle import VOCAB, Host, Pair, fold, logprobs_of


class Story:
    """A sequence and the states that its model would have."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.seq_id = seed
        self.tokens = [rng.randrange(VOCAB) for _ in range(3000)]
        self.states = [rng.randrange(1000) for _ in range(3000)]

    def row(self, begin: int, size: int, room: int = 6) -> Draftable:
        """Shown with `size` tokens, and the states of those from `begin` on."""
        states = np.array([[state, 0] for state in self.states[begin : size - 1]], dtype=np.float32).reshape(-1, 2)
        return Draftable(self.seq_id, self.tokens[:size], 1, room, states=states)

    def pairs(self, begin: int, size: int) -> list[Pair]:
        """What the head's cache is to hold then."""
        return list(zip(self.tokens[begin + 1 : size], self.states[begin : size - 1], strict=True))


def best(prefix: list[Pair], room: int, told: Any = logprobs_of) -> dict[tuple[int, ...], float]:
    """The likeliest paths behind a prefix, found one after another."""
    open_ones: list[tuple[float, tuple[int, ...], list[Pair]]] = [(0.0, (), prefix)]
    found: dict[tuple[int, ...], float] = {}
    while len(found) <= room:
        cost, path, before = heapq.heappop(open_ones)
        found[path] = -cost
        for token, logprob in enumerate(told(before)):
            heapq.heappush(open_ones, (cost - logprob, (*path, token), [*before, (token, fold(before))]))
    del found[()]
    return found


def paths(drafts: Drafts) -> list[tuple[int, ...]]:
    assert drafts.parents is not None
    found: list[tuple[int, ...]] = []
    for at, (token, parent) in enumerate(zip(drafts.tokens, drafts.parents, strict=True)):
        assert -1 <= parent < at
        found.append((*(found[parent] if parent >= 0 else ()), token))
    assert len(set(found)) == len(found)
    return found


def thorough(**changes: Any) -> Eagle.Options:
    return replace(Eagle.Options(k=6, depth=8, width=VOCAB), **changes)


def test_the_best_paths_are_offered() -> None:
    eager, story = Eagle(thorough(), Host()), Story(1)
    for begin, size in ((0, 20), (19, 23), (22, 24), (23, 25)):
        (drafts,) = eager.propose([story.row(begin, size)])
        assert set(paths(drafts)) == set(best(story.pairs(0, size), 6))


def test_sequences_do_not_meet() -> None:
    """All of them in one step each round, joining and leaving."""
    stories, host = [Story(i) for i in range(5)], Host()
    eager = Eagle(thorough(), host)
    rng, sizes = random.Random(2), dict.fromkeys(range(5), 0)
    for _ in range(12):
        chosen = rng.sample(range(5), rng.randint(1, 5))
        begins = {i: max(0, sizes[i] - 1) for i in chosen}
        sizes |= {i: sizes[i] + rng.randint(2, 7) for i in chosen}
        before = len(host.aux.batches)
        found = eager.propose([stories[i].row(begins[i], sizes[i], room=4) for i in chosen])
        assert len(host.aux.batches) - before <= 8
        for i, drafts in zip(chosen, found, strict=True):
            assert set(paths(drafts)) == set(best(stories[i].pairs(0, sizes[i]), 4))


def test_a_gap_begins_a_new_span() -> None:
    eager, story = Eagle(thorough(), Host()), Story(3)
    eager.propose([story.row(0, 10)])
    (drafts,) = eager.propose([story.row(14, 18)])
    assert set(paths(drafts)) == set(best(story.pairs(14, 18), 6))
    (drafts,) = eager.propose([story.row(17, 20)])
    assert set(paths(drafts)) == set(best(story.pairs(14, 20), 6))


def test_states_that_are_shown_again_are_not_read_again() -> None:
    eager, story = Eagle(thorough(), Host()), Story(4)
    eager.propose([story.row(0, 10)])
    (drafts,) = eager.propose([story.row(5, 12)])
    assert set(paths(drafts)) == set(best(story.pairs(0, 12), 6))


def test_a_sequence_that_comes_back_is_new() -> None:
    """Preempted: computed again from its beginning, or from where a cached prefix ends."""
    eager, story = Eagle(thorough(), Host()), Story(5)
    eager.propose([story.row(0, 30)])
    eager.forget(5)
    eager.forget(99)
    (drafts,) = eager.propose([story.row(16, 31)])
    assert set(paths(drafts)) == set(best(story.pairs(16, 31), 6))


def test_without_states_nothing_is_offered() -> None:
    eager, story = Eagle(thorough(), Host()), Story(6)
    nothing, there = eager.propose([replace(story.row(0, 9), states=None), Story(7).row(0, 9)])
    assert nothing == Drafts() and len(there.tokens) == 6
    assert eager.propose([story.row(8, 9)]) == [Drafts()]
    (drafts,) = eager.propose([story.row(8, 11)])
    assert set(paths(drafts)) == set(best(story.pairs(8, 11), 6))


def test_a_full_cache_leaves_a_sequence_without_drafts_until_it_has_room() -> None:
    host = Host()
    eager = Eagle(thorough(kv_tokens=VOCAB * 8 + 40), host)
    first, second = Story(8), Story(9)
    assert eager.propose([first.row(0, 30)])[0].tokens
    assert eager.propose([second.row(0, 30)]) == [Drafts()]
    eager.forget(8)
    (drafts,) = eager.propose([second.row(29, 33)])
    assert set(paths(drafts)) == set(best(second.pairs(29, 33), 6))
    eager.forget(9)
    assert eager._tables.num_free == host.aux.layout.num_blocks


def test_a_sequence_that_draws_gets_a_broader_tree() -> None:
    def softer(prefix: list[Pair]) -> Any:
        wide = logprobs_of(prefix) * SAMPLED_SCALE
        return wide - np.log(np.exp(wide).sum())

    stories = [Story(20), Story(21)]
    states = [RowState(SeqInfo(SamplingParams(temperature=heat), (1,), 1)) for heat in (0.7, 0.0)]
    eager = Eagle(thorough(), Host())
    drawn, greedy = eager.propose([replace(story.row(0, 20), state=state) for story, state in zip(stories, states, strict=True)])
    assert set(paths(drawn)) == set(best(stories[0].pairs(0, 20), 6, softer)) != set(best(stories[0].pairs(0, 20), 6))
    assert set(paths(greedy)) == set(best(stories[1].pairs(0, 20), 6))


@pytest.mark.parametrize(("sizes", "steps"), [((1500,), 3), ((400, 400, 400), 3), ((11,) * 60, 2), ((1300, 30, 25), 3)])
def test_long_prompts_are_read_in_pieces(sizes: tuple[int, ...], steps: int) -> None:
    """One step of the head for each of the target's, which makes a token meanwhile; short ones have drafts from the first."""
    host, stories = Host(kv_tokens=8192), [Story(10 + i) for i in range(len(sizes))]
    eager = Eagle(thorough(), host)
    for step in range(steps):
        host.aux.batches.clear()
        shown = [size + step for size in sizes]
        found = eager.propose([story.row(0, size) for story, size in zip(stories, shown, strict=True)])
        for story, size, drafts in zip(stories, shown, found, strict=True):
            assert drafts.is_reading is not bool(drafts.tokens) and not (drafts.is_reading and len(sizes) == 3 and size < 40)
            assert drafts.is_reading or set(paths(drafts)) == set(best(story.pairs(0, size), 6))
        (read,) = [len(batch.tokens) for batch in host.aux.batches if batch.parents is None]
        assert read == min(host.max_num_batched_tokens, sum(shown) - len(shown) - step * host.max_num_batched_tokens)
        assert any(drafts.is_reading for drafts in found) is (step + 1 < steps)


@pytest.mark.parametrize("seed", range(20))
def test_any_options_make_a_tree_in_room(seed: int) -> None:
    """A tree of `room` drafts at most, each with its parent, none deeper than there were rounds."""
    rng = random.Random(seed)
    options = Eagle.Options(k=rng.randint(1, 20), depth=rng.randint(1, 6), width=rng.randint(1, 5))
    eager, story = Eagle(options, Host()), Story(seed)
    begin, size = 0, rng.randint(2, 12)
    for _ in range(8):
        room = rng.randint(1, options.k)
        (drafts,) = eager.propose([story.row(begin, size, room)])
        found = paths(drafts)
        assert 1 <= len(found) <= room
        assert max(map(len, found)) <= options.depth
        assert (int(np.argmax(logprobs_of(story.pairs(0, size)))),) in found
        begin, size = size - 1, size + rng.randint(1, 5)


def test_options_without_sense_are_refused() -> None:
    for options in (Eagle.Options(k=0), Eagle.Options(depth=0), Eagle.Options(width=10**11), Eagle.Options(kv_tokens=-1)):
        with pytest.raises(UsageError, match=r"eagle: (k|depth|width|kv_tokens) must be from [01] to"):
            Eagle(options, Host())
    host = Host()
    assert Eagle(Eagle.Options(path="somewhere", k=7), host).lookahead() == 7 and host.asked == ("somewhere", "eagle")
