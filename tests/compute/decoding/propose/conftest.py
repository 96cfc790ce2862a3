"""Proposers with the native module, and without it."""
import sys

import pytest

import penstock


@pytest.fixture(params=["native", "python"])
def form(request, monkeypatch):
    """In which form what proposers know is held."""
    if request.param == "native":
        pytest.importorskip("penstock._native")
    else:
        monkeypatch.setitem(sys.modules, "penstock._native", None)
        monkeypatch.delattr(penstock, "_native", raising=False)
    return request.param
