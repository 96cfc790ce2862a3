import pytest
from versus.points import MIXED_IN, MIXED_OUT, NEW, Point, asks, tokens_per_s
from versus.trace import Times


def test_decode_counts_the_tokens_after_the_first():
    assert tokens_per_s(Point("decode", 2048), [Times(0.0, 3.0, 3.0 + 2.0, NEW + 1)]) == NEW / 2
    assert [ask.num_prompt for ask in asks(Point("decode", 2048), 0)] == [2048]
    assert asks(Point("decode", 2048), 0) == asks(Point("decode", 2048), 1)


def test_prefill_counts_the_prompt_until_the_first_token():
    assert tokens_per_s(Point("prefill", 512), [Times(1.0, 3.0, 3.0, 1)]) == 256
    assert asks(Point("prefill", 512), 0)[0].prompt(4096) != asks(Point("prefill", 512), 1)[0].prompt(4096)


def test_serving_counts_all_output_from_the_first_arrival_to_the_last_token():
    assert tokens_per_s(Point("streams", 2), [Times(0.5, 1.0, 2.5, 64), Times(1.0, 2.0, 4.5, 64)]) == 32
    assert {ask.seed for ask in asks(Point("streams", 8), 0)}.isdisjoint(ask.seed for ask in asks(Point("streams", 8), 1))


def test_mixed_requests_are_one_draw_with_other_tokens_in_each_round():
    first, second = asks(Point("mixed", 40, 0.1), 0), asks(Point("mixed", 40, 0.1), 1)
    assert [(a.at_s, a.num_prompt, a.num_new) for a in first] == [(a.at_s, a.num_prompt, a.num_new) for a in second]
    assert {a.seed for a in first}.isdisjoint(a.seed for a in second)
    lengths = [ask.num_prompt for ask in first]
    assert MIXED_IN[0] <= min(lengths) < 64 and 512 < max(lengths) <= MIXED_IN[1]
    assert all(MIXED_OUT[0] <= ask.num_new <= MIXED_OUT[1] for ask in first)
    assert first[0].at_s == 0 and [a.at_s for a in first] == sorted(a.at_s for a in first)
    assert all(ask.at_s == 0 for ask in asks(Point("mixed", 40), 0))


def test_no_prompt_of_a_point_begins_like_one_of_another_point_or_round():
    points = [Point("prefill", 512), Point("prefill", 2048), Point("streams", 8), Point("streams", 32), Point("mixed", 32, 0.1)]
    begins = [tuple(ask.prompt(4096)[:4]) for point in points for round_number in range(3) for ask in asks(point, round_number)]
    assert len(set(begins)) == len(begins)


def test_a_point_tells_how_much_cache_it_takes():
    assert Point("streams", 4).kv_tokens == 4 * 192 and Point("streams", 4).max_tokens == 192
    assert Point("decode", 0).depth == 128


def test_an_unknown_question_is_an_error():
    with pytest.raises(ValueError, match="no such question"):
        asks(Point("guess", 1), 0)
