"""Runs that follow one another on one server, and ask what is in a file."""
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.study.measure.datasets import TABLE
from penstock.study.measure.datasets.jsonl import Jsonl, JsonlOptions
from penstock.study.measure.onward import Onward, reads
from penstock.study.measure.writers import IdWriter


def onward(path: Path, count: int) -> Onward:
    path.write_text("".join(json.dumps({"prompt": [number]}) + "\n" for number in range(1, count + 1)))
    return Onward(Jsonl(JsonlOptions(str(path)), IdWriter(), "s"))


def given(dataset: Onward, most: int) -> list[Any]:
    return [session.turns[0].prompt[0] for _, session in zip(range(most), dataset.sessions(), strict=False)]


def test_a_run_goes_on_where_the_one_before_stopped(tmp_path: Path) -> None:
    found = onward(tmp_path / "a.jsonl", 7)
    assert [given(found, 3), given(found, 2)] == [[1, 2, 3], [4, 5]] and not found.repeated()
    assert given(found, 4) == [6, 7, 1, 2] and "start the server without its prefix cache" in found.repeated()[0]
    assert given(found, 9) == [3, 4, 5, 6, 7, 1, 2], "each once at most"


def test_a_run_that_takes_all_repeats_nothing(tmp_path: Path) -> None:
    found = onward(tmp_path / "a.jsonl", 3)
    assert given(found, 9) == [1, 2, 3] and not found.repeated()
    assert given(found, 9) == [1, 2, 3] and found.repeated()


@pytest.mark.parametrize(("name", "text", "found"), [
    ("jsonl", '{"prompt": "a"}', True),
    ("sharegpt", '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}', True),
    ("mooncake", '{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [1]}', False), ("synthetic", "", False)])
def test_prompts_that_a_seed_makes_are_new_anyhow(tmp_path: Path, name: str, text: str, found: bool) -> None:
    (tmp_path / "file").write_text(text)
    dataset, options = TABLE.parse(f"{name}:path={tmp_path / 'file'}" if text else name)
    assert reads(lambda writer, seed: dataset(options, writer, seed), "s") is found
