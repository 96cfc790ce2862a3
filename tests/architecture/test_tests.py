"""Tests test something: every file has tests, every test can fail."""
import ast
import re
from pathlib import Path

from tests.architecture.source import Function, Source, report, sources

CHECKING = re.compile(r"^_?(assert|check|expect|compare|verify)")
RAISING = {"raises", "warns", "fail"}


def calls(node: ast.AST) -> set[str]:
    """Last names of everything that is called: `pytest.raises(...)` -> raises."""
    return {ast.unparse(call.func).rpartition(".")[2] for call in ast.walk(node) if isinstance(call, ast.Call)}


def fails_itself(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Assert | ast.Raise) for inner in ast.walk(node)) or bool(calls(node) & RAISING)


def can_fail(test: Function, helpers: dict[str, list[Function]]) -> bool:
    """It asserts, expects an exception, or calls something that does: a helper of the file, or one whose name says so."""
    seen: set[str] = set()
    waiting: list[ast.AST] = [test]
    while waiting:
        node = waiting.pop()
        if fails_itself(node):
            return True
        fresh = calls(node) - seen
        if any(CHECKING.match(name) for name in fresh):
            return True
        seen |= fresh
        waiting += [helper for name in fresh for helper in helpers.get(name, [])]
    return False


def cases_of(source: Source) -> list[Function]:
    return [node for node in source.functions() if node.name.startswith("test")]


def test_every_test_can_fail() -> None:
    found = []
    for source in sources("tests"):
        helpers: dict[str, list[Function]] = {}
        for node in source.functions():
            helpers.setdefault(node.name, []).append(node)
        found += [f"{source.at(test.lineno)} {test.name}" for test in cases_of(source) if not can_fail(test, helpers)]
    assert not found, report("a test asserts something, or expects an exception:", found)


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
