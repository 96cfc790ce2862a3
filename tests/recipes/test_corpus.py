"""What is trained on and what is held out."""
from pathlib import Path

import corpus
import pytest

STORY = "CHAPTER I\n\n" + "A fox went out. " * 20


def test_a_held_out_book_under_another_name_is_not_trained_on(tmp_path: Path) -> None:
    for name in (*corpus.HELD_OUT, "another"):
        (tmp_path / f"{name}.txt").write_text(STORY)
    train, held_out = corpus.split(tmp_path)
    assert len(train) == 1 and len(held_out) == len(corpus.HELD_OUT)
    (tmp_path / f"{corpus.HELD_OUT[1]}.txt").rename(tmp_path / "five-children-and-it-pg778.txt")
    with pytest.raises(SystemExit, match=f"lacks books that are held out.*: {corpus.HELD_OUT[1]}$"):
        corpus.split(tmp_path)
