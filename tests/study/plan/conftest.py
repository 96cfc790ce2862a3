"""Asking the planner, as tests do."""
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from penstock.study.plan import rehearsal, request
from penstock.study.plan.configuration import Configuration
from penstock.study.plan.request import Request, plan


def rows_of(model: str, hardware: str, **options: Any) -> list[Configuration]:
    return list(plan(Request(model=model, hardware=hardware, **options)).configurations)


@pytest.fixture
def ask() -> Callable[..., list[Configuration]]:
    """(model, hardware, options of the command) -> configurations."""
    return rows_of


@pytest.fixture
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more are played than the least that ever are: for tests that ask what is played, not how close it comes."""
    monkeypatch.setattr(rehearsal, "REQUESTS", rehearsal.LEAST_REQUESTS)


model_once = cache(request.model_of)


@pytest.fixture
def models_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is read and its program written once for many plans."""
    monkeypatch.setattr(request, "model_of", model_once)
