import logging

import pytest

from penstock.core.clock import VirtualClock
from penstock.core.types import CacheMark
from penstock.decide.kv.marks import spans
from tests.decide.builders import compute, make_kv, make_seq, serve


def usage(seq):
    return seq.num_mark_created, seq.num_mark_read


def test_spans_are_whole_blocks_within_the_prompt():
    marks = [CacheMark(100, 1.0), CacheMark(7, 5.0), CacheMark(4, 2.0), CacheMark(3, 9.0)]
    assert spans(marks, num_prompt=10, block_size=4) == {1: 5.0, 2: 1.0}


@pytest.mark.parametrize("num_prompt", [4, 5, 8, 9, 11])
@pytest.mark.parametrize("num_marked", [4, 5, 8, 11])
def test_a_mark_is_created_once_then_read(num_prompt, num_marked):
    kv = make_kv()
    prompt = list(range(num_prompt))
    marked = min(num_marked, num_prompt) // 4 * 4
    first = serve(kv, make_seq(0, prompt, marks=[(num_marked, 300.0)]))
    assert usage(first) == (marked, 0) and marked > 0
    for i in (1, 2):
        assert usage(serve(kv, make_seq(i, prompt, marks=[(num_marked, 300.0)]))) == (0, marked)


def test_created_then_read_in_chunks_too():
    kv = make_kv()
    seq = make_seq(0, range(10), marks=[(9, 300.0)])
    assert kv.admit(seq)
    for num_tokens in (3, 4, 3):
        assert usage(seq) == (0, 0)
        compute(kv, seq, num_tokens)
    assert usage(seq) == (8, 0)


def test_sharing_the_beginning_of_a_prefix_reads_no_mark():
    kv = make_kv(num_blocks=32)
    serve(kv, make_seq(0, range(12)))  # cached, not marked
    assert usage(serve(kv, make_seq(1, range(12), marks=[(12, 300.0)]))) == (12, 0)
    other = [*range(8), 90, 91, 92, 93, 94]
    seq = serve(kv, make_seq(2, other, marks=[(12, 300.0)]))
    assert seq.num_cached == 8 and usage(seq) == (12, 0)
    assert usage(serve(kv, make_seq(3, other, marks=[(12, 300.0)]))) == (0, 12)


def test_a_longer_mark_reads_the_shorter_one_that_it_continues():
    kv = make_kv(num_blocks=32)
    serve(kv, make_seq(0, range(8), marks=[(8, 300.0)]))
    assert usage(serve(kv, make_seq(1, range(16), marks=[(16, 300.0)]))) == (8, 8)
    assert usage(serve(kv, make_seq(2, range(16), marks=[(8, 300.0), (16, 300.0)]))) == (0, 16)
    assert usage(serve(kv, make_seq(3, range(16), marks=[(8, 300.0)]))) == (0, 8)


def flood(kv, clock, first_id, num_seqs=10):
    """Requests whose prompts wash through the whole cache."""
    for i in range(first_id, first_id + num_seqs):
        clock.advance(1.0)
        serve(kv, make_seq(i, range(1000 * i, 1000 * i + 12)))


def test_a_marked_prefix_outlasts_a_flood_until_its_time_is_over():
    clock = VirtualClock()
    kv = make_kv(num_blocks=8, clock=clock)
    prompt = list(range(9))
    serve(kv, make_seq(0, prompt, marks=[(8, 15.0)]))
    flood(kv, clock, 10)
    again = serve(kv, make_seq(1, prompt, marks=[(8, 15.0)]))  # a use: 15 seconds from here
    assert again.num_cached == 8
    flood(kv, clock, 20)
    assert serve(kv, make_seq(2, prompt)).num_cached == 8  # a use, though without marks
    flood(kv, clock, 30, 16)
    assert usage(serve(kv, make_seq(3, prompt, marks=[(8, 15.0)]))) == (8, 0)


def test_without_a_mark_the_flood_takes_it():
    clock = VirtualClock()
    kv = make_kv(num_blocks=8, clock=clock)
    serve(kv, make_seq(0, range(9)))
    flood(kv, clock, 10)
    assert serve(kv, make_seq(1, range(9))).num_cached == 0


def test_pins_keep_at_most_their_share_and_the_log_says_so(caplog):
    kv = make_kv(num_blocks=8)  # four may be pinned
    seq = serve(kv, make_seq(0, range(24), marks=[(24, 300.0)]))
    assert kv.tree.num_pinned == 4 and usage(seq) == (16, 0)
    assert "request r0: 16 of 24 marked tokens are pinned, because pins keep at most 4 blocks" in caplog.text
    assert usage(serve(kv, make_seq(1, range(100, 108), marks=[(8, 300.0)]))) == (0, 0)


def test_pins_give_way_to_a_request_that_needs_the_whole_cache(caplog):
    kv = make_kv(num_blocks=8)
    serve(kv, make_seq(0, range(16), marks=[(16, 300.0)]))
    big = make_seq(1, range(100, 132), 1)
    assert not kv.admit(big)
    assert kv.admit(big, alone=True)
    assert kv.grow(big, 32) is None
    assert kv.grow(big, 32, break_pins=True) == []
    assert "request r1 runs alone and needs 4 pinned blocks to continue" in caplog.text
    assert kv.tree.num_pinned == 0
    kv.check_integrity()


def test_a_pin_that_expires_makes_room_for_growth():
    clock = VirtualClock()
    kv = make_kv(num_blocks=4, clock=clock)
    serve(kv, make_seq(0, range(8), marks=[(8, 10.0)]))
    seq = make_seq(1, range(100, 108), 8)
    assert kv.admit(seq)
    compute(kv, seq)
    seq.tokens.append(1)
    assert kv.grow(seq, 1) is None
    clock.advance(10.0)
    assert kv.grow(seq, 1) == []
    kv.check_integrity()


def test_a_mark_below_one_block_pins_nothing_and_says_so(caplog):
    caplog.set_level(logging.INFO, logger="penstock.prefix")
    kv = make_kv()
    seq = serve(kv, make_seq(0, range(9), marks=[(3, 300.0)]))
    assert usage(seq) == (0, 0) and kv.tree.num_pinned == 0
    assert "less than a block of 4 tokens" in caplog.text


def test_the_longest_time_of_overlapping_marks_holds():
    clock = VirtualClock()
    kv = make_kv(num_blocks=16, clock=clock)
    serve(kv, make_seq(0, range(13), marks=[(4, 5.0), (8, 20.0), (12, 10.0)]))
    clock.advance(12.0)
    kv.tree.expire(clock.now())
    kv.check_integrity()
    assert kv.tree.num_pinned == 2


def test_whoever_asks_whether_one_fits_sees_that_marks_have_expired():
    """Else drafts leave it no rows, and nothing that would take it in looks."""
    clock = VirtualClock()
    kv = make_kv(num_blocks=8, clock=clock)
    serve(kv, make_seq(0, range(16), marks=[(16, 5.0)]))
    waits = make_seq(1, range(100, 124))
    assert not kv.fits(waits)
    clock.advance(6.0)
    assert kv.fits(waits)
