import json
import sys
from collections.abc import Callable

import pytest

from penstock.study.doctor.check import Check, Host, Status
from penstock.study.doctor.examine import CHECKS, as_json, examine, this_host
from penstock.study.doctor.software import native_module


def fine(host: Host) -> Check:
    return Check("fine", Status.PASS, "as it should be", details={"a": 1})


def slow(host: Host) -> Check:
    return Check("slow", Status.WARN, "could be better", "do this")


def breaks_down(host: Host) -> Check:
    raise KeyError("gone")


def test_a_check_that_fails_ends_no_other(make: Callable[..., Host]) -> None:
    found = examine(make(), (breaks_down, fine))
    assert [check.status for check in found] == [Status.ERROR, Status.PASS]
    assert found[0].name == "breaks down" and "KeyError: 'gone'" in found[0].found


def test_warnings_are_no_errors(make: Callable[..., Host]) -> None:
    assert as_json(examine(make(), (fine, slow)))["ok"] and not as_json(examine(make(), (fine, breaks_down)))["ok"]
    told = as_json(examine(make(), (fine, slow)))
    assert told["counts"] == {"PASS": 1, "WARN": 1, "ERROR": 0}
    assert told["checks"][0] == {"name": "fine", "status": "PASS", "found": "as it should be", "hint": "", "details": {"a": 1}}


def test_whatever_is_not_right_comes_with_a_hint() -> None:
    """Here and now, whatever the machine."""
    found = examine(this_host())
    assert len(found) == len(CHECKS) and len({check.name for check in found}) == len(found)
    for check in found:
        assert check.found and (check.status is Status.PASS or check.hint), check
        assert "could not be checked" not in check.found, check
    assert json.loads(json.dumps(as_json(found)))["counts"]


def test_a_native_module_that_was_not_built_is_no_broken_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nowhere:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            if name == "penstock._native":
                raise ModuleNotFoundError("No module named 'penstock._native'", name=name)

    monkeypatch.delitem(sys.modules, "penstock._native", raising=False)
    monkeypatch.delattr("penstock._native", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Nowhere, *sys.meta_path])
    found = native_module(this_host())
    assert found.status is Status.WARN and "not built" in found.found
