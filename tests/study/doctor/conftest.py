"""A host made of files."""
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.study.doctor.check import Host

FEATURES = {"avx2": True, "fma": True, "avx512f": True, "avx512_vnni": True, "avx512_bf16": False, "amx_tile": False, "neon": False}
NATIVE: Any = SimpleNamespace(
    compiler="GCC 99.1", cpu_features=lambda: FEATURES, kernel_names=lambda: ["avx512_vnni", "avx512", "avx2", "generic"],
    rows_for_codes=lambda name, fields, dequantize: "bf16" if fields["group"] == fields["k"] else "int16")


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Host]:
    """make({path: text}, environment variables) -> a Host with these files below its root, with a native module unless told."""

    def build(files: dict[str, str] | None = None, environ: dict[str, str] | None = None, **changes: Any) -> Host:
        for name, text in (files or {}).items():
            path = tmp_path / "root" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "home").mkdir(exist_ok=True)
        return Host(tmp_path / "root", tmp_path / "home", environ or {}, **{"native": NATIVE, **changes})

    return build
