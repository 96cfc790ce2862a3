"""The source tree as the architecture tests see it: every Python file parsed once, its imports, its plug-in tables."""
import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("penstock", "csrc", "recipes", "bench", "scripts", "tests")
CODE = (".py", ".cpp", ".h", ".hpp", ".cu", ".cuh", ".js")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Import:
    """One imported module: `from a import b` counts as a.b where that is a module, as the module that a name of `penstock` itself comes
    from, else as a."""

    module: str
    line: int
    lazy: bool  # inside a function
    names: tuple[str, ...] = ()

    def within(self, package: str) -> bool:
        return self.module == package or self.module.startswith(package + ".")


@dataclass(frozen=True)
class Source:
    path: str  # from the root, with slashes
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the tree."""
        return tuple(ast.walk(self.tree))

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def module(self) -> str:
        """Its dotted name: penstock/core/types.py -> penstock.core.types."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def stem(self) -> str:
        return Path(self.path).stem

    def at(self, line: int) -> str:
        return f"{self.path}:{line}"

    def functions(self) -> Iterator[Function]:
        return (node for node in self.nodes if isinstance(node, Function))

    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in self.nodes if isinstance(node, ast.ClassDef))

    @cached_property
    def imports(self) -> list[Import]:
        bodies = [range(node.lineno, (node.end_lineno or 0) + 1) for node in self.functions()]
        found = []
        for node in self.nodes:
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            lazy = any(node.lineno in body for body in bodies)
            if isinstance(node, ast.Import):
                found += [Import(alias.name, node.lineno, lazy) for alias in node.names]
            else:
                base = self._base(node)
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    module = inner if is_module(inner) else exports().get(inner, base)
                    found.append(Import(module, node.lineno, lazy, (alias.name,)))
        return found

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.module.split(".")
        package = package[: len(package) - node.level + self.path.endswith("/__init__.py")]
        return ".".join([*package, node.module] if node.module else package)


@cache
def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return name.startswith("penstock.") and (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file())


@cache
def exports() -> dict[str, str]:
    """What `penstock` gives out lazily, read without importing it: "penstock.NAME" -> the module that it comes from."""
    tree = ast.parse((ROOT / "penstock/__init__.py").read_text(encoding="utf-8"))
    (found,) = (node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_EXPORTS")
    return {f"penstock.{name}": module for name, module in ast.literal_eval(found).items()}


@cache
def code() -> tuple[Path, ...]:
    """Every source file of the project, whatever its language."""
    return tuple(sorted(
        path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in CODE and "__pycache__" not in path.parts
    ))


@cache
def source(path: Path) -> Source:
    """The same object to everybody who asks, so that it is parsed once."""
    return Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Every Python file below these folders (all of the project when none is given), of which there are some: else no rule would hold."""
    inside = tuple(f"{folder}/" for folder in folders or FOLDERS)
    paths = (path for path in code() if path.suffix == ".py" and path.relative_to(ROOT).as_posix().startswith(inside))
    found = tuple(source(path) for path in paths)
    assert found, f"no Python file is below {', '.join(folders)}"
    return found


def forget() -> None:
    """Lets go of all that was read."""
    for remembered in (source, sources):
        remembered.cache_clear()


@cache
def tables() -> dict[str, dict[str, str]]:
    """The plug-in tables, read without importing them: module of the folder -> {name: "module:Class"}."""
    found = {}
    for source in sources("penstock"):
        for node in source.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "Table":
                found[source.module] = dict(ast.literal_eval(node.value.args[1]))
    assert found, "no plug-in table was found: they are written in another way than is read here"
    return found


def report(rule: str, found: list[str]) -> str:
    """The message of a failed rule: what it says, then each place that breaks it."""
    return "\n".join([rule, *found])
