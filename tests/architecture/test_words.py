"""What is written beside the code: docstrings that state the contract, and nothing of anybody's own machine."""
import ast
import re
import subprocess

from tests.architecture.source import ROOT, Source, report, sources

DOCUMENTED = ("penstock/core", "penstock/decide", "penstock/compute")
# What is longer than this says what it takes and gives. Below it, the name and the types do.
MAX_SILENT_FUNCTION_LINES = 8
MAX_SILENT_METHOD_LINES = 20  # a plug-in's short method is documented once, in the protocol that it fulfils
MAX_SILENT_CLASS_LINES = 12
# A folder of somebody's own: an absolute path that names a home, a mount or a working area.
PRIVATE_PATH = re.compile(r"(?<![\w.:/\-])/(home|root|Users|mnt|media|scratch|work)/\w")
TEXT = (".py", ".md", ".toml", ".yaml", ".yml", ".json", ".cpp", ".h", ".txt", ".cfg", ".jinja", ".js", ".html")


def test_every_module_has_a_docstring() -> None:
    # A test file is excepted: its tests say what they hold.
    found = [source.at(1) for source in sources() if not source.stem.startswith("test_") and not ast.get_docstring(source.tree)]
    assert not found, report("every module's docstring states its contract:", found)


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def public(body: list[ast.stmt]) -> list[Definition]:
    return [node for node in body if isinstance(node, Definition) and not node.name.startswith("_")]


def says(node: Definition) -> bool:
    """A docstring of its own, or its constructor's."""
    makers = [member for member in node.body if isinstance(member, ast.FunctionDef) and member.name == "__init__"]
    return any(ast.get_docstring(each) for each in [node, *makers])


def lines_of(node: Definition) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def silent(source: Source) -> list[str]:
    """Public definitions of some length that say nothing of themselves. A module's docstring speaks for its only public one."""
    top = public(source.tree.body)
    found = [
        node for node in top
        if len(top) > 1 and not says(node) and lines_of(node) > (
            MAX_SILENT_CLASS_LINES if isinstance(node, ast.ClassDef) else MAX_SILENT_FUNCTION_LINES)
    ]
    for owner in top:
        if isinstance(owner, ast.ClassDef):
            found += [node for node in public(owner.body) if not says(node) and lines_of(node) > MAX_SILENT_METHOD_LINES]
    return [f"{source.at(node.lineno)} {node.name}" for node in found]


def test_public_names_have_docstrings() -> None:
    found = [each for source in sources(*DOCUMENTED) for each in silent(source)]
    rule = (
        f"a public class of more than {MAX_SILENT_CLASS_LINES} lines, function of more than {MAX_SILENT_FUNCTION_LINES} or method of"
        f" more than {MAX_SILENT_METHOD_LINES} has a docstring (shapes, units, errors raised, source), or is all its module holds:"
    )
    assert not found, report(rule, found)


def tracked_text() -> list[str]:
    """Tracked text files; in a tree without git, every text file of the source folders."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    paths = listed.stdout.split("\0") if listed.returncode == 0 else [source.path for source in sources()]
    return [path for path in paths if (path.endswith(TEXT) or path in ("Makefile", ".ci/run", "scripts/check")) and (ROOT / path).is_file()]


def test_no_private_paths() -> None:
    found = [
        f"{path}:{number}"
        for path in tracked_text()
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if PRIVATE_PATH.search(line)
    ]
    assert not found, report("no path of somebody's own machine:", found)


def test_private_paths_are_recognized() -> None:
    home, work = "home", "work"
    own, shared = f"see /{home}/ada/models", f"POST /v1/files, docs/{work}/notes.md, https://example.org/{home}/page"
    assert PRIVATE_PATH.search(own) and not PRIVATE_PATH.search(shared)
