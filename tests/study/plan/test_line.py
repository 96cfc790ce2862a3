"""A replica's line, with steps whose seconds can be added up by hand."""
import pytest

from penstock.study.plan.line import Ask, Line, Served, Server, near

COME = [Ask(0.0, 100, 2), Ask(0.0, 100, 0), Ask(50.0, 30, 0)]


def server(stages: int = 1, chunk: int = 100, seats: int = 9, uneven: float = 1.0) -> Server:
    """A row of a prompt takes a second, a pass without any takes ten; all stages take so many times as long as the slowest, or as much less
    as that is slower than the others."""
    def timed(decodes: float, prompts: int, rows: int, total: int) -> tuple[float, float]:
        each = float(rows) if prompts else 10.0
        return each, stages * each / uneven
    return Server(timed, stages, chunk, seats)


def test_prompts_take_their_turns_and_tokens_ride_along() -> None:
    first, second, third = Line(server(), COME).served()
    assert first == Served(100.0, 230.0), "two tokens, in the passes in which the others' prompts are computed"
    assert second == Served(200.0, 200.0) and third == Served(230.0, 230.0)


def test_what_fits_a_pass_is_computed_together() -> None:
    assert {each.first_s for each in Line(server(chunk=200), COME[:2]).served()} == {200.0}
    halves = Line(server(chunk=150), COME[:2]).served()
    assert [each.first_s for each in halves] == [150.0, 200.0]


def test_who_has_no_seat_waits_until_one_ends() -> None:
    assert [each.first_s for each in Line(server(seats=1), COME[:2]).served()] == [100.0, 220.0]


def test_stages_take_prompts_before_the_last_is_through() -> None:
    first, second, _ = Line(server(stages=2), COME).served()
    assert (first.first_s, second.first_s) == (200.0, 300.0) and first.last_s == 100 + 100 + 30 + 2 * 10


@pytest.mark.parametrize(("sequences", "token_s"), [(1, 20.0), (2, 20.0), (3, 30.0), (4, 40.0), (8, 40.0)])
def test_a_token_waits_for_no_stage_that_has_nothing_to_do(sequences: int, token_s: float) -> None:
    """Four stages, of which the slowest takes ten seconds and all take twenty."""
    found = Line(server(stages=4, uneven=2.0), [Ask(0.0, 0, 5)] * sequences).served()
    assert {each.last_s for each in found} == {5 * token_s}


def test_tokens_of_prompts_that_were_computed_elsewhere() -> None:
    assert Line(server(), [Ask(5.0, 0, 3), Ask(11.0, 0, 1)]).served() == [Served(5.0, 35.0), Served(15.0, 25.0)]


@pytest.mark.parametrize("number", [0, 1, 31, 100, 1000, 12_345])
def test_near_numbers_are_near(number: int) -> None:
    assert near(number) == pytest.approx(number, rel=0.033) and (number > 31 or near(number) == number)
