"""Calibrations that tests make up."""
from collections.abc import Callable

import pytest

from penstock.core.config import EngineConfig
from penstock.study.plan import checked, request
from penstock.study.plan.calibrate import Calibration


def calibrated(monkeypatch: pytest.MonkeyPatch, kept: Callable[[EngineConfig], Calibration | None]) -> None:
    """As if this had been learned here; no step is timed beside it."""
    monkeypatch.setattr(request, "kept", kept)
    monkeypatch.setattr(checked, "kept", kept)
    monkeypatch.setattr(checked, "timed_now", lambda config, progress: [])
