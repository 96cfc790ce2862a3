"""Files, functions and signatures stay small enough to be read at once."""
import ast

from tests.architecture.source import ROOT, Function, code, report, sources

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 6


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in code()}
    found = [f"{path}:{lines}" for path, lines in lengths.items() if lines > MAX_FILE_LINES]
    assert not found, report(f"files have at most {MAX_FILE_LINES} lines; split by what they do:", found)


def test_functions_are_shorter_than_60_lines() -> None:
    found = []
    for source in sources():
        for node in source.functions():
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            if lines >= MAX_FUNCTION_LINES:
                found.append(f"{source.at(node.lineno)} {node.name} has {lines} lines")
    assert not found, report(f"functions are shorter than {MAX_FUNCTION_LINES} lines:", found)


def parameters(node: Function) -> list[str]:
    """What a caller gives: without self and cls."""
    names = [a.arg for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def test_functions_have_at_most_six_parameters() -> None:
    # A dataclass has no __init__ of its own to count, and commands of the CLI take dataclasses. Those of tests are fixtures and drawn
    # values, which nobody passes by hand: they are not counted.
    found = [
        f"{source.at(node.lineno)} {node.name} has {len(parameters(node))}"
        for source in sources("penstock", "recipes", "bench", "scripts") for node in source.functions()
        if len(parameters(node)) > MAX_PARAMETERS
    ]
    assert not found, report(f"functions have at most {MAX_PARAMETERS} parameters; group what belongs together in a dataclass:", found)


def test_parameters_are_counted_without_self() -> None:
    method = ast.parse("def f(self, a, /, b, *, c): pass").body[0]
    assert isinstance(method, ast.FunctionDef) and parameters(method) == ["a", "b", "c"]
