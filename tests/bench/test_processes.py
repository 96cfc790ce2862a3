import sys
from pathlib import Path

import pytest
from versus.processes import said_by


def test_what_is_installed_runs_not_what_lies_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, said in (("engine", "a checkout"), ("installed/engine", "installed")):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "__main__.py").write_text(f"print({said!r})")
    monkeypatch.chdir(tmp_path)
    environ = {"PYTHONPATH": str(tmp_path / "installed")}
    assert said_by([sys.executable, "-m", "engine"], environ, tmp_path / "log") == "installed\n"
