import sys
from pathlib import Path

import pytest
from versus.processes import BENCH, said_by, with_bench


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
