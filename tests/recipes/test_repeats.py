"""Documents from which brook learned to copy, and the windows that hold them."""
import json
from pathlib import Path

import data
import numpy as np
from repeats import Repeats
from tokenizers import Tokenizer

import penstock

TOKENIZER = Tokenizer.from_file(str(Path(penstock.__file__).parent / "bundled/brook/tokenizer.json"))
PASSAGES = [" ".join(f"Number {7 * i + 1} came before {i * i + 3}, as {(i * 7919 + 5) % 9973} knew." for i in range(start, start + 20))
            for start in range(0, 1200, 20)]  # no sentence twice


def test_lists_stand_there_three_to_six_times():
    repeats = Repeats(PASSAGES, longest=300, seed=0)
    for _ in range(50):
        words = repeats.listed().split(" ")
        assert any(len(words) % times == 0 and words == words[: len(words) // times] * times for times in range(3, 7))


def test_documents_end_with_what_has_stood_there_before():
    """Unless the end is what a corrected text is corrected in."""
    repeats = Repeats(PASSAGES, longest=300, seed=0)
    documents = [repeats.document() for _ in range(100)]
    assert not any(passage.count(passage[-20:]) > 1 for passage in PASSAGES)
    assert sum(document.count(document[-20:]) > 1 for document in documents) >= 85


def test_json_is_json():
    repeats = Repeats(PASSAGES, longest=300, seed=0)
    for _ in range(20):
        first, again = repeats._as_json()
        assert first == again and json.loads(first)


def test_the_same_seed_makes_the_same_windows_and_the_mix_says_how_many_are_repeats():
    stream = data.Stream(PASSAGES, TOKENIZER)
    books, mixed, again = (stream.epoch(data.Mix(64, repeats, lists=0.5), seed=1) for repeats in (0.0, 0.5, 0.5))
    assert np.array_equal(mixed, again) and mixed.shape == books.shape and (mixed[:, 0] == data.BEGIN).all()
    assert 0.3 < (mixed != books).any(axis=1).mean() < 0.7
