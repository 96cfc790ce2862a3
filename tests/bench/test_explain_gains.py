"""The benchmark of levers keeps what it measured in one way together, and apart from all else."""
import json
import sys
from pathlib import Path

import explain_gains
import pytest


def test_cases_of_one_model_come_together_and_those_of_another_go_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_gains, "check_engine", lambda config: None)
    monkeypatch.setattr(explain_gains, "judge", lambda bench, name, plant, args, kept: [{"case": name, "error": 0.1}])
    monkeypatch.setattr(explain_gains, "RESULTS", tmp_path)
    for case, *words in (["alone"], ["decode"], ["alone", "--model", "a/brook"], ["alone", "--rounds", "1"]):
        monkeypatch.setattr(sys, "argv", ["explain_gains.py", "--record", "--case", case, *words])
        explain_gains.main()
    told = {path.name.partition("-explain_gains-")[2]: json.loads(path.read_text())["of"] for path in tmp_path.iterdir()}
    assert told == {"brook.json": 2, "brook-model-a-brook.json": 1, "brook-rounds-1.json": 1}
