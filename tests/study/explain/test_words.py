import pytest

from penstock.core.config import EngineConfig
from penstock.core.work import StepWork
from penstock.study.explain.case import Change
from penstock.study.explain.explanation import Moved, of_measure, would
from penstock.study.explain.figures import Figures
from penstock.study.explain.predict import Way
from penstock.study.explain.words import comes_to, lasts, relative, short, shortened

NONE = Figures(0, 0, 0, 0, 0, 0, 0)


class Nothing:
    def seconds(self, work: StepWork) -> float:
        return 0.0


@pytest.mark.parametrize(("ratio", "alone", "before"), [
    (1.0, "+0%", "the same"), (1.54, "+54%", "54% more"), (0.65, "-35%", "35% less"), (1.99, "+99%", "99% more"),
    (2.0, "2.0 times", "2.0 times the"), (26.11, "26 times", "26 times the"), (9.96, "10 times", "10 times the"),
    (1234.0, "1,234 times", "1,234 times the"), (0.5, "1/2.0", "1/2.0 of the"), (0.05, "1/20", "1/20 of the"), (0.0, "-100%", "100% less"),
])
def test_large_changes_are_factors(ratio: float, alone: str, before: str) -> None:
    assert (relative(ratio), comes_to(ratio)) == (alone, before)


@pytest.mark.parametrize(("ratio", "told"), [
    (1.5, "+50%"), (1.99, "+99%"), (2.0, "2.0 times as long"), (26.11, "26 times as long"), (0.65, "-35%"), (0.05, "1/20")])
def test_of_times_it_is_told_how_long_they_are(ratio: float, told: str) -> None:
    assert lasts(ratio) == told


@pytest.mark.parametrize(("ratio", "told"), [(0.65, "by 35%"), (0.5, "to 1/2.0"), (0.05, "to 1/20")])
def test_times_are_shortened_by_a_share_or_to_one(ratio: float, told: str) -> None:
    assert shortened(ratio) == told


@pytest.mark.parametrize(("gain", "measure", "told"), [
    (25.11, "output_tokens_per_s", "X would give 26 times the output tokens/s"),
    (0.54, "output_tokens_per_s", "X would give 54% more output tokens/s"),
    (19.0, "ttft_s", "X would shorten mean TTFT to 1/20"), (0.54, "ttft_s", "X would shorten mean TTFT by 35%"),
])
def test_a_gain_is_told_by_what_becomes_of_the_figure(gain: float, measure: str, told: str) -> None:
    moved = Moved("lever", Change("X", Way(EngineConfig(), Nothing())), gain, NONE, ())
    assert would(moved, measure, NONE) == told
    assert of_measure(gain, measure) == pytest.approx(1 + gain if "tokens" in measure else 1 / (1 + gain))


def test_numbers_are_short() -> None:
    assert [short(value) for value in (6e-8, 0.0, 0.0123, 12.345, 1234.5)] == ["0", "0", "0.0123", "12.3", "1,234"]
