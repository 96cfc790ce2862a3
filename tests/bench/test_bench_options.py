import pytest
from versus import ours
from versus.options import check, options, parser
from versus.worker import Task

from penstock.core.errors import PenstockError, UsageError


def chosen(*words):
    return options(parser("").parse_args(words))


def test_ours_alone_runs_without_rivals():
    found = chosen()
    assert found.rivals is None and found.model == ("brook",) and found.formats == tuple(ours.FORMATS)


def test_models_are_beside_the_rivals_unless_said(tmp_path):
    (tmp_path / "models" / "qwen3-0.6b").mkdir(parents=True)
    (tmp_path / "models" / "qwen3-0.6b.llamacpp-Q8_0").touch()
    found = chosen("--rivals", str(tmp_path), "--ours", "max_num_batched_tokens=1024,prefix_cache=false")
    assert found.models == tmp_path / "models" and found.model == ("qwen3-0.6b", "brook")
    assert found.formats == (*ours.FORMATS, "Q8_0")
    assert found.ours == (("max_num_batched_tokens", 1024), ("prefix_cache", False))


@pytest.mark.parametrize("words", [("--formats", "int3"), ("--engines", "nobody"), ("--rounds", "0"), ("--formats", ",")])
def test_unknown_words_are_errors(words):
    with pytest.raises(SystemExit, match="2"):
        chosen(*words)


@pytest.mark.parametrize("given", ["speed=11", "quant=int8", "model=rill", "block_size=x"])
def test_fields_that_are_not_for_ours_are_errors(given):
    with pytest.raises(UsageError):
        chosen("--ours", given)


@pytest.mark.parametrize("words", [("--model", "nobody"), ("--ours", "order=nobody"), ("--ours", "propose=ngram:speed=1")])
def test_what_no_engine_can_be_made_of_is_an_error(words):
    with pytest.raises(PenstockError):
        check(chosen(*words))


@pytest.mark.parametrize(("given", "flag"), [
    ("prefix_cache=false", "--no-prefix-cache"), ("weight_cache=true", "--weight-cache"), ("kv_tokens=none", None),
    ("order=shortest", "--order=shortest")])
def test_the_server_is_asked_for_the_same(given, flag):
    task = Task("brook", "int8", "", 2, 256, 4096, 64, False, dict(chosen("--ours", given).ours))
    words = ours.command(task)
    name = given.partition("=")[0].replace("_", "-")
    assert [word for word in words if word.startswith((f"--{name}", f"--no-{name}"))] == ([flag] if flag else [])
