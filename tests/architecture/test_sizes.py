"""Files, functions and signatures stay small enough to be read at once."""
import ast
import re
from collections.abc import Iterator

from tests.architecture.source import ROOT, Function, code, report, sources

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 6
MAX_COLUMNS = 140  # of a line; ruff counts those of Python


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


# A definition that begins a line, as csrc writes them: template, what it returns, name, parameters, body. Lambdas are not looked at.
NATIVE = re.compile(r"^[ \t]*(?:template *<[^\n]*> *\n?)?(?:[\w:<>,*& \[\]]+?[ *&])([\w:~]+)\(([^(){};]*(?:\([^()]*\)[^(){};]*)*)\)"
                    r"\s*(?:const)?\s*\{([^\n]*\}$)?", re.MULTILINE)
CONTROL = {"if", "for", "while", "switch", "catch"}


def native_functions(text: str) -> Iterator[tuple[int, str, list[str], int]]:
    """(line, name, parameters, lines) of the functions that C++ text defines. What Python calls an object's methods begin with the object,
    which is no parameter."""
    text = re.sub(r"//.*", "", text)
    lines = text.split("\n")
    for found in NATIVE.finditer(text):
        name, inner = found[1], re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>|\([^()]*\)", "", found[2]))
        if name in CONTROL:
            continue
        given = [each.strip() for each in inner.split(",") if each.strip()]
        if given and re.match(r"(const )?(Model|Sampler)& ", given[0]):
            given = given[1:]
        first = text.count("\n", 0, found.start())
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        last = first if found[3] else next((at for at in range(first + 1, len(lines)) if lines[at].startswith(f"{indent}}}")), first)
        yield first + 1, name, given, last - first + 1


def native_sources() -> list[tuple[str, str]]:
    paths = [path for path in code() if path.suffix in (".cpp", ".h") and path.relative_to(ROOT).parts[0] == "csrc"]
    return [(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


def test_native_functions_are_small_too() -> None:
    found, seen = [], 0
    for path, text in native_sources():
        for line, name, given, length in native_functions(text):
            seen += 1
            if len(given) > MAX_PARAMETERS:
                found.append(f"{path}:{line} {name} has {len(given)} parameters")
            if length >= MAX_FUNCTION_LINES:
                found.append(f"{path}:{line} {name} has {length} lines")
    assert seen > 300, f"only {seen} functions were found in csrc: it is written in another way than this test reads"
    assert not found, report(f"functions have at most {MAX_PARAMETERS} parameters and fewer than {MAX_FUNCTION_LINES} lines:", found)


def test_native_lines_are_at_most_140_columns() -> None:
    found = [f"{path}:{at}" for path, text in native_sources() for at, line in enumerate(text.splitlines(), 1) if len(line) > MAX_COLUMNS]
    assert not found, report(f"lines of csrc have at most {MAX_COLUMNS} columns:", found)


def test_native_functions_are_read_as_they_are_written() -> None:
    text = """
template <class T, int N> void plain(const T* from, std::array<int, 2> pair, int (*each)(int, int)) {
  if (from) {
  }
}
  int Holder::method(Model& model, int a) const { return a; }
static std::size_t wide(int a,
                        int b) {
}
"""
    assert [(line, name, len(given), lines) for line, name, given, lines in native_functions(text)] == [
        (2, "plain", 3, 4), (6, "Holder::method", 1, 1), (7, "wide", 2, 3)]
