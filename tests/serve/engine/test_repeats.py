"""What a prefix cache would find, counted without one."""
from penstock.serve.engine.repeats import Repeats


def test_whole_blocks_from_the_beginning_count() -> None:
    repeats = Repeats(4, 100)
    repeats.add(range(10), "")
    assert repeats.num_tokens == 0
    repeats.add([*range(9), 99], "")  # two whole blocks are the same
    assert repeats.num_tokens == 8
    repeats.add([99, *range(1, 10)], "")  # another begin: nothing after it can be found
    repeats.add(range(10), "other")
    assert repeats.num_tokens == 8
    repeats.add(range(8), "")  # a prompt's last token is always computed: only its first block is found
    assert repeats.num_tokens == 12


def test_the_oldest_are_forgotten() -> None:
    repeats = Repeats(4, 2)
    for first in (0, 100, 200):
        repeats.add(range(first, first + 5), "")
    repeats.add(range(5), "")
    assert repeats.num_tokens == 0
    repeats.add(range(200, 205), "")
    assert repeats.num_tokens == 4
