"""`penstock train-heads` reads its text, passes on what it was told and prints what was reached."""
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

TEXT = "\n\n".join(f"the {word} fox went over the river" for word in "old young red grey sly shy tall small quick slow".split())


class Trainer:
    """Stands in for what needs torch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs: list[Any] = []
        self.made: list[Any] = []
        for name, content in {
            "run": {"Job": self.Job, "run": self.run},
            "train_heads": {"Length": lambda minutes, steps: (minutes, steps)},
            "heads.eagle": {"Eagle": self.Eagle},
        }.items():
            module = ModuleType(f"penstock.study.compress.{name}")
            module.__dict__.update(content)
            monkeypatch.setitem(sys.modules, module.__name__, module)

    def Job(self, *given: Any, begin: Path | None, measured_on: str) -> Any:
        return SimpleNamespace(given=(*given, begin, measured_on), kind=given[1])

    def Eagle(self, options: Any, target: Any, seed: int) -> None:
        self.made.append((options, target, seed))

    def run(self, job: Any, make: Any, say: Any) -> Any:
        self.jobs.append(job.given)
        make("target", 7)
        say("half done")
        return SimpleNamespace(path=Path("there/eagle.safetensors"), num_parameters=1234, as_json=lambda: {"steps": 3})


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    return Trainer(monkeypatch)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text(TEXT)
    return tmp_path


def test_heads_that_there_are_none_of_are_refused(penstock: Any, trainer: Trainer, text: Path) -> None:
    status, _, err = penstock(["train-heads", "--kind", "none", "--text", str(text), "--out", "there"])
    assert status == 2 and "unknown kind of heads 'none'; known: " in err and not trainer.jobs


def test_what_was_told_is_passed_on(penstock: Any, trainer: Trainer, text: Path) -> None:
    args = ["--kind", "eagle", "--text", str(text), "--out", "there", "--steps", "9", "--seed", "3", "--begin", "before"]
    status, out, err = penstock(["train-heads", "rill", *args])
    assert (status, err) == (0, "half done\n") and "1,234 parameters" in out and "--propose eagle:path=there" in out
    ((model, kind, train, held_out, folder, length, seed, threads, begin, measured_on),) = trainer.jobs
    assert (model, kind, folder, length, seed, threads, begin) == ("rill", "eagle", Path("there"), (None, 9), 3, None, Path("before"))
    assert train[0] + "\n\n" + held_out[0] == TEXT and measured_on.endswith(" (the last 5 to 10 % of --text; --held-out names other)")
    assert trainer.made == [(None, "target", 7)]


def test_text_to_measure_on_may_be_given(penstock: Any, trainer: Trainer, text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "something else"}')
    args = ["train-heads", "--kind", "eagle", "--text", str(text / "a.txt"), "--held-out", str(other), "--out", "there", "--json"]
    status, out, _ = penstock(args)
    assert status == 0 and json.loads(out) == {"steps": 3}
    assert trainer.jobs[0][2:4] == ([TEXT], ["something else"]) and trainer.jobs[0][-1] == "text to measure on"


@pytest.mark.parametrize(("more", "said"), [
    ([], "--kind (what to train), --text (on"),
    (["--kind", "eagle", "--out", "x"], "--kind (what to train), --text (on"),
    (["--kind", "eagle", "--out", "x", "--text", "x", "--minutes", "0"], "--minutes must be a finite number above 0, not 0.0\n"),
    (["--kind", "eagle", "--out", "x", "--text", "x", "--minutes", "nan"], "--minutes must be a finite number above 0, not nan"),
    (["--kind", "eagle", "--out", "x", "--text", "x", "--seed", "-1"], "--seed must be from 0 to 9223372036854775807, not -1"),
    (["--kind", "eagle", "--out", "x", "--text", "x", "--steps", "0"], "error: --steps must be at least 1, not 0\n"),
    (["--kind", "beagle", "--out", "x", "--text", "x"], "known: eagle, medusa"),
    (["--kind", "eagle:depth=4", "--out", "x", "--text", "x"], "takes no options"),
    (["--kind", "eagle", "--out", "x", "--text", "nowhere"], "cannot read nowhere"),
])
def test_what_cannot_be_obeyed_is_refused(penstock: Any, trainer: Trainer, more: list[str], said: str) -> None:
    status, out, err = penstock(["train-heads", *more])
    assert status == 2 and not out and said in err and not trainer.jobs


@pytest.mark.parametrize(("more", "length"), [
    ([], (30.0, None)), (["--minutes", "2"], (2.0, None)), (["--steps", "9"], (None, 9)), (["--minutes", "2", "--steps", "9"], (2.0, 9))])
def test_thirty_minutes_unless_told_otherwise(penstock: Any, trainer: Trainer, text: Path, more: list[str], length: Any) -> None:
    penstock(["train-heads", "--kind", "eagle", "--text", str(text), "--out", "there", *more])
    assert trainer.jobs[0][5] == length


def test_without_torch_it_says_what_to_install(penstock: Any, monkeypatch: pytest.MonkeyPatch, text: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("penstock.study.compress.")]:
        monkeypatch.delitem(sys.modules, name)
    status, _, err = penstock(["train-heads", "--kind", "eagle", "--text", str(text), "--out", "x"])
    assert status == 2 and err == "error: train-heads needs torch: pip install 'torch>=2.8'\n"
