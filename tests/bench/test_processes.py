import sys
from pathlib import Path

import pytest
from versus import worker
from versus.processes import BENCH, said_by, with_bench
from versus.worker import Task, Worker

READY = "import json, os, sys, time; print(json.dumps({'version': '1'}), flush=True)"


def test_what_is_installed_runs_not_what_lies_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, said in (("engine", "a checkout"), ("installed/engine", "installed")):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "__main__.py").write_text(f"print({said!r})")
    monkeypatch.chdir(tmp_path)
    environ = {"PYTHONPATH": str(tmp_path / "installed")}
    assert said_by([sys.executable, "-m", "engine"], environ, tmp_path / "log") == "installed\n"


def test_a_program_of_the_bench_finds_what_this_interpreter_was_told_to_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = said_by([sys.executable, "-c", "import askers, elsewhere; print(elsewhere.__file__)"], with_bench(), tmp_path / "log")
    assert said == f"{tmp_path / 'elsewhere.py'}\n"
    monkeypatch.delenv("PYTHONPATH")
    assert with_bench() == {"PYTHONPATH": str(BENCH)}


def test_a_program_that_takes_too_long_is_said_to(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="python.* took longer than 0.2 s; see .*log"):
        said_by([sys.executable, "-c", "import time; time.sleep(60)"], {}, tmp_path / "log", limit_s=0.2)
    with pytest.raises(RuntimeError, match="ended with status 3"):
        said_by([sys.executable, "-c", "raise SystemExit(3)"], {}, tmp_path / "log")


def started(script: str, folder: Path) -> Worker:
    return Worker([sys.executable, "-c", script], Task("m", "int8", "", 1, 8, 8, 8, False), {}, folder / "log")


@pytest.mark.parametrize(("told", "why"), [("", "the worker has ended; see .*log"), ('{"failed": "no memory"}', "no memory; see .*log")])
def test_a_worker_that_died_says_why(tmp_path: Path, told: str, why: str) -> None:
    """Nobody reads what it is asked."""
    one = started(f"import os; os.close(0); {READY}; print({told!r}, end='')", tmp_path)
    try:
        with pytest.raises(RuntimeError, match=why):
            one.run([])
    finally:
        one.end()


def test_a_worker_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = started(f"{READY}; time.sleep(60)", tmp_path)
    monkeypatch.setattr(worker, "LIMIT_S", 0.1)
    try:
        with pytest.raises(RuntimeError, match="did not answer within 0.1 s; see .*log"):
            one.run([])
    finally:
        one.end()
