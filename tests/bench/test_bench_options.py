import pytest
from versus import ours
from versus.options import options, parser

from penstock.core.errors import UsageError


def chosen(*words):
    return options(parser("").parse_args(words))


def test_ours_alone_runs_without_rivals():
    found = chosen()
    assert found.rivals is None and found.model == ("brook",) and found.formats == tuple(ours.FORMATS)


def test_models_are_beside_the_rivals_unless_said(tmp_path):
    (tmp_path / "models" / "qwen3-0.6b").mkdir(parents=True)
    found = chosen("--rivals", str(tmp_path), "--ours", "max_num_batched_tokens=1024,prefix_cache=false")
    assert found.models == tmp_path / "models" and found.model == ("qwen3-0.6b", "brook")
    assert found.ours == (("max_num_batched_tokens", 1024), ("prefix_cache", False))


WRONG = [("--formats", "int3"), ("--engines", "nobody"), ("--rounds", "0"), ("--ours", "speed=11"), ("--formats", ",")]


@pytest.mark.parametrize("words", WRONG)
def test_unknown_words_are_errors(words):
    with pytest.raises(UsageError):
        chosen(*words)
