import itertools
from pathlib import Path

import pytest

from penstock.core.errors import PenstockError, UsageError
from penstock.serve.text.tokenizer import Tokenizer
from penstock.study.measure.datasets.synthetic import Synthetic, SyntheticOptions
from penstock.study.measure.load import Part, Session
from penstock.study.measure.writers import IdWriter, TextWriter
from tests.tiny import write_tokenizer

BROOK = Path(__file__).parents[4] / "penstock/bundled/brook"


def make(count: int, **options: float) -> list[Session]:
    dataset = Synthetic(SyntheticOptions(**options), IdWriter(), "seed")  # type: ignore[arg-type]
    return list(itertools.islice(dataset.sessions(), count))


def test_lengths_are_exact() -> None:
    for session in make(5, input=33, output=7):
        (turn,) = session.turns
        assert turn.num_prompt == len(turn.prompt or "") == 33 and turn.num_output == 7


def test_lengths_spread_evenly_around_the_middle() -> None:
    turns = [session.turns[0] for session in make(600, input=100, input_spread=0.5, output=10, output_spread=0.2)]
    prompts, outputs = [turn.num_prompt or 0 for turn in turns], {turn.num_output for turn in turns}
    assert min(prompts) == 50 and max(prompts) == 150 and outputs == {8, 9, 10, 11, 12}
    assert sum(prompts) / 600 == pytest.approx(100, rel=0.05)


def test_prompts_share_prefixes_and_nothing_else() -> None:
    prompts = [session.turns[0].prompt for session in make(40, input=48, prefix=32, prefixes=3)]
    assert len({prompt[:32] for prompt in prompts if prompt}) == 3
    assert len({prompt[32:40] for prompt in prompts if prompt}) == 40


def test_another_seed_gives_other_prompts() -> None:
    again = Synthetic(SyntheticOptions(), IdWriter(), "other")
    assert make(1)[0] != next(again.sessions()) and make(1) == make(1)


@pytest.mark.parametrize(("options", "word"), [
    ({"input": 0}, "input must be at least 1, not 0$"),
    ({"output_spread": 1.0}, "output_spread must be from 0 to below 1, not 1$"),
    ({"prefix": 256}, "256"), ({"input_spread": 0.5, "prefix": 128}, "128"),
    ({"prefixes": 0}, "prefixes"),
])
def test_what_does_not_fit_is_refused(options: dict[str, float], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        make(1, **options)


def test_ids_stay_away_from_the_ends_of_the_vocabulary() -> None:
    ids = IdWriter(320).write([Part("a", 500)])
    assert isinstance(ids, tuple) and min(ids) >= 20 and max(ids) < 160
    with pytest.raises(UsageError, match="32"):
        IdWriter(8)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("kind", ["brook", "bytes"])
def test_text_has_exactly_the_tokens(tmp_path: Path, kind: str, special: bool) -> None:
    write_tokenizer(tmp_path, 300)
    tokenizer = Tokenizer.load(BROOK if kind == "brook" else tmp_path)
    writer = TextWriter(tokenizer, special)
    for length in (2, 17, 400):
        parts = [Part("shared", length // 2), Part(f"own{length}", length - length // 2)]
        text = writer.write(parts)
        assert isinstance(text, str) and len(tokenizer.encode(text, add_special_tokens=special)) == length == writer.count(text)


def test_text_of_equal_parts_begins_equally() -> None:
    writer = TextWriter(Tokenizer.load(BROOK), special=False)
    one, two = (str(writer.write([Part("shared", 50), Part(own, 20)])) for own in "ab")
    same = [left == right for left, right in zip(one, two, strict=False)].index(False)
    assert len(Tokenizer.load(BROOK).encode(one[:same], add_special_tokens=False)) >= 50


class Merging:
    """A tokenizer whose text is always one token."""

    vocab_size = 40

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [0]

    def token_text(self, token_id: int) -> str:
        return f" word{'abcdefghijklmnopqrstuvwxyz'[token_id % 26]}"


def test_a_tokenizer_without_words_is_told() -> None:
    with pytest.raises(PenstockError, match="token ids"):
        TextWriter(Merging(), special=False)
