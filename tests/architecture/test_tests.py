"""Tests test something: every file has tests, every test can fail."""
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import Function, Source, report, sources

CHECKING = re.compile(r"^_?(assert|check|expect|compare|verify)(_|$)")
RAISING = {"raises", "warns", "fail"}


def calls(node: ast.AST) -> set[str]:
    """Last names of everything that is called: `pytest.raises(...)` -> raises."""
    return {ast.unparse(call.func).rpartition(".")[2] for call in ast.walk(node) if isinstance(call, ast.Call)}


def runs(node: ast.AST) -> Iterator[ast.AST]:
    """What is in it, without the bodies of loops over nothing, and of nested definitions: a raise in those is a fake's."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.For) and isinstance(inner.iter, ast.List | ast.Tuple) and not inner.iter.elts:
            continue
        yield inner
        if not isinstance(inner, Function | ast.ClassDef):
            yield from runs(inner)


def fails_itself(node: ast.AST) -> bool:
    """It asserts, raises or expects an exception; what it defines asserts."""
    own = [*runs(node)]
    nested = [inner for each in own if isinstance(each, Function | ast.ClassDef) for inner in ast.walk(each)]
    return (
        any(isinstance(inner, ast.Assert) for inner in own + nested) or any(isinstance(inner, ast.Raise) for inner in own)
        or bool(calls(node) & RAISING))


def can_fail(test: Function, helpers: dict[str, list[Function]]) -> bool:
    """It asserts, expects an exception, or calls something that does: a helper of the file, or one whose name says so."""
    seen: set[str] = set()
    waiting: list[ast.AST] = [test]
    while waiting:
        node = waiting.pop()
        if fails_itself(node):
            return True
        fresh = calls(node) - seen
        if any(CHECKING.match(name) and name not in helpers for name in fresh):
            return True
        seen |= fresh
        waiting += [helper for name in fresh for helper in helpers.get(name, [])]
    return False


def cases_of(source: Source) -> list[Function]:
    return [node for node in source.functions() if node.name.startswith("test")]


def helpers_of(source: Source) -> dict[str, list[Function]]:
    """All its functions by name, nested ones too."""
    found: dict[str, list[Function]] = {}
    for node in source.functions():
        found.setdefault(node.name, []).append(node)
    return found


def test_every_test_can_fail() -> None:
    found = []
    for source in sources("tests"):
        helpers = helpers_of(source)
        found += [f"{source.at(test.lineno)} {test.name}" for test in cases_of(source) if not can_fail(test, helpers)]
    assert not found, report("a test asserts something, or expects an exception:", found)


@pytest.mark.parametrize(("body", "can"), [
    ("assert made()", True), ("for x in made(): assert x", True), ("for x in []: assert x", False),
    ("def fake(): raise OSError\n    patch(fake)", False), ("def inner(): raise OSError\n    inner()", True),
    ("def seen(x): assert x\n    call(seen)", True), ("checkpoint(3)", False), ("check(3)", True), ("check_all(3)", False),
    ("with pytest.raises(OSError): made()", True), ("made()", False),
])
def test_tests_that_cannot_fail_are_recognized(body: str, can: bool) -> None:
    source = Source("tests/test_x.py", f"def test_x():\n    {body}\ndef check_all(x): pass")
    assert can_fail(cases_of(source)[0], helpers_of(source)) == can


def test_every_test_file_has_a_test() -> None:
    found = [
        source.path for source in sources("tests")
        if Path(source.path).name.startswith("test_") and not cases_of(source)
        and not any("StateMachine" in ast.unparse(base) for node in source.classes() for base in node.bases)
    ]
    assert not found, report("a file called test_*.py has tests:", found)


def test_tests_that_need_torch_skip_without_it() -> None:
    found = [source.at(each.line) for source in sources("tests") for each in source.imports if each.within("torch")]
    assert not found, report('torch is an extra, which a test takes by pytest.importorskip("torch", reason=...):', found)


def test_tests_mirror_the_package() -> None:
    own = {"architecture", "contract", "golden", "recipes", "bench"}
    folders = {Path(source.path).parent.relative_to("penstock").as_posix() for source in sources("penstock")}
    found = sorted(
        {Path(source.path).parent.as_posix() for source in sources("tests")
         if (inside := Path(source.path).parent.relative_to("tests").as_posix()).split("/")[0] not in own and inside not in folders}
    )
    assert not found, report(f"folders of tests/ are those of penstock/, or {', '.join(sorted(own))}:", found)
