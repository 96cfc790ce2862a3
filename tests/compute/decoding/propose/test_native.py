import sys
from types import SimpleNamespace

import pytest

import penstock
from penstock.compute.decoding.propose.native import native_or


class Plain:
    pass


class Fast:
    pass


@pytest.mark.parametrize(("module", "taken"), [(SimpleNamespace(Form=Fast), Fast), (SimpleNamespace(Other=Fast), Plain), (None, Plain)])
def test_the_native_form_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch, module: object, taken: type) -> None:
    monkeypatch.setattr(penstock, "_native", module, raising=False)
    monkeypatch.setitem(sys.modules, "penstock._native", module)
    assert native_or(Plain, "Form") is taken
