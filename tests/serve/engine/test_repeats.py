"""What a prefix cache would find, counted without one."""
import pytest

from penstock.core.clock import VirtualClock
from penstock.serve.engine.repeats import Repeats
from tests.decide.builders import make_kv, make_seq, serve

SIZE = 16


def document(number: int, length: int = 401) -> list[int]:
    return [number * 10_000 + at for at in range(length)]


def in_turn() -> list[list[int]]:
    return [document(number) for _ in range(8) for number in range(12)]


def growing() -> list[list[int]]:
    return [document(number, 101 + 150 * turn) for turn in range(12) for number in range(8)]


def alternating() -> list[list[int]]:
    return [document(number, 901) for _ in range(8) for number in range(2)]


def whole() -> list[list[int]]:
    return [document(number, 4 * SIZE) for _ in range(8) for number in range(3)]


def test_whole_blocks_from_the_beginning_count() -> None:
    repeats = Repeats(4, 100)
    repeats.add(range(10), "")
    assert repeats.num_tokens == 0
    repeats.add([*range(9), 99], "")  # two whole blocks are the same
    assert repeats.num_tokens == 8
    repeats.add([99, *range(1, 10)], "")  # another begin: nothing after it can be found
    repeats.add(range(10), "other")
    assert repeats.num_tokens == 8
    repeats.add(range(8), "")  # all of it is found, though its last token is computed again
    assert repeats.num_tokens == 16


def test_the_oldest_are_forgotten() -> None:
    repeats = Repeats(4, 2)
    for first in (0, 100, 200):
        repeats.add(range(first, first + 5), "")
    repeats.add(range(5), "")
    assert repeats.num_tokens == 0
    repeats.add(range(200, 205), "")
    assert repeats.num_tokens == 4


@pytest.mark.parametrize(("prompts", "num_blocks"), [(in_turn(), 280), (growing(), 600), (alternating(), 100), (whole(), 100)])
def test_as_much_is_found_as_a_cache_of_that_size_finds(prompts: list[list[int]], num_blocks: int) -> None:
    clock = VirtualClock()
    kv, repeats = make_kv(num_blocks, SIZE, clock=clock), Repeats(SIZE, num_blocks)
    for number, prompt in enumerate(prompts):
        serve(kv, make_seq(number, prompt, num_new=1))
        clock.advance(1.0)
        repeats.add(prompt, "")
    assert 0 < repeats.num_tokens == pytest.approx(kv.num_hit, abs=0.05 * kv.num_queried)
