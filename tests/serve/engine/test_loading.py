"""What is told while a model loads."""
from pathlib import Path

import pytest

from penstock.compute.backends.packed import PackedCache
from penstock.compute.models.load import hub
from penstock.core.config import EngineConfig
from penstock.serve.engine import build as build_module
from penstock.serve.engine.build import Progress, build
from tests.tiny import write_model


def progress_of(config: EngineConfig) -> list[tuple[int, int]]:
    told: list[tuple[int, int]] = []
    build(config, progress=lambda *each: told.append(each))
    return told


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_progress_ends_whether_weights_are_read_or_stand_packed_in_the_cache(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    if backend == "cpu":
        pytest.importorskip("penstock._native")
    cache = PackedCache(tmp_path / "cache", "k", min_bytes=0)
    monkeypatch.setattr(build_module, "packed_cache", lambda *given: cache)
    config = EngineConfig(str(write_model(tmp_path / "model")), backend=backend, quant="int8")
    for packed in (False, backend == "cpu"):
        told = progress_of(config)
        assert told[-1] == (1, 1) and (len(told) == 1) == packed


def test_progress_ends_where_an_index_promised_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(source: hub.Source, progress: Progress) -> Path:
        progress(5, 10**12)
        return source.path

    monkeypatch.setattr(hub, "fetch_weights", fetch)
    told = progress_of(EngineConfig(str(write_model(tmp_path)), backend="reference"))
    assert told[0] == (5, 10**12) and told[-1] == (1, 1)
