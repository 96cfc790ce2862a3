"""Imports go down only, and heavy libraries are imported only where they are needed."""
import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import Source, report, sources, tables

# floor -> the floors that it may import. `study` is imported by nothing but the command line.
MAY_IMPORT = {
    "core": ("core",),
    "decide": ("core", "decide"),
    "compute": ("core", "compute"),
    "serve": ("core", "decide", "compute", "serve"),
    "study": ("core", "decide", "compute", "serve", "study"),
    "cli": ("core", "decide", "compute", "serve", "study", "cli"),
}
ARRAYS = ("numpy", "torch", "array_api_compat", "ml_dtypes", "scipy", "jax")
# Folders without an array library. Reading checkpoints is the exception in compute/models: a loader turns bytes into numpy arrays.
NO_ARRAYS = ("penstock/core/", "penstock/decide/", "penstock/compute/models/")
LOADERS = "penstock/compute/models/load/"
MAY_USE_TORCH = ("penstock/compute/backends/", "penstock/study/compress/", "recipes/", "bench/", "tests/")
MAY_READ_TABLES = ("penstock/serve/engine/build.py", "penstock/cli/", "tests/")
# Where modules are imported by computed names, which no other rule sees: what tables, commands and exports name, the native module.
MAY_IMPORT_BY_NAME = {
    "penstock/__init__.py", "penstock/core/registry.py", "penstock/compute/native.py", "penstock/cli/app.py", "penstock/cli/options.py",
    "penstock/cli/plugins.py", "penstock/cli/reference.py",
}
BY_NAME = {"import_module", "__import__"}
# What `import penstock.cli` may cost: the rest waits for the command that needs it.
CLI_IMPORTS = ("typer", "penstock.core", "penstock.cli")
NOT_AT_START = ("numpy", "torch", "fastapi", "uvicorn", "jinja2", "huggingface_hub", "tokenizers", "rich.progress")


def floor_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "penstock" and len(parts) > 1 and parts[1] in MAY_IMPORT else None


@pytest.mark.parametrize("floor", MAY_IMPORT)
def test_imports_go_down_only(floor: str) -> None:
    found = [
        f"{source.at(each.line)} imports {each.module}"
        for source in sources(f"penstock/{floor}") for each in source.imports
        if (target := floor_of(each.module)) and target not in MAY_IMPORT[floor]
    ]
    assert not found, report(f"{floor} imports only {', '.join(MAY_IMPORT[floor])}:", found)


def test_every_module_is_on_a_floor() -> None:
    assert {Path(source.path).parts[1] for source in sources("penstock")} == {*MAY_IMPORT, "__init__.py", "__main__.py"}


def test_a_name_of_the_package_itself_counts_as_where_it_comes_from() -> None:
    source = Source("penstock/core/x.py", "from penstock import LLM, __version__\nfrom penstock.core import types")
    assert [each.module for each in source.imports] == ["penstock.serve.llm", "penstock", "penstock.core.types"]


def by_name(source: Source) -> list[str]:
    """Where it imports a module by a computed name."""
    return [
        f"{source.at(node.lineno)} uses {name}" for node in source.nodes if isinstance(node, ast.Attribute | ast.Name)
        if (name := node.attr if isinstance(node, ast.Attribute) else node.id) in BY_NAME
    ]


def test_modules_are_imported_by_name_only_where_that_is_known() -> None:
    found = {source.path: by_name(source) for source in sources("penstock")}
    assert {path for path, each in found.items() if each} == MAY_IMPORT_BY_NAME, report(
        f"a module is imported by a computed name in {', '.join(sorted(MAY_IMPORT_BY_NAME))}, and only there:",
        [line for path, each in found.items() if path not in MAY_IMPORT_BY_NAME for line in each])
    assert by_name(Source("x.py", "import importlib\nimportlib.import_module(name)")) == ["x.py:2 uses import_module"]


@pytest.mark.parametrize("floor", ["core", "decide"])
def test_the_lower_floors_need_only_the_standard_library(floor: str) -> None:
    known = sys.stdlib_module_names | {"penstock"}
    found = [
        f"{source.at(each.line)} imports {each.module}"
        for source in sources(f"penstock/{floor}") for each in source.imports if each.module.split(".")[0] not in known
    ]
    assert not found, report(f"{floor} imports the standard library only:", found)


def test_no_array_library_where_there_are_no_arrays() -> None:
    found = [
        f"{source.at(each.line)} imports {each.module}"
        for source in sources("penstock") for each in source.imports
        if source.path.startswith(NO_ARRAYS) and each.module.split(".")[0] in ARRAYS
        and not (source.path.startswith(LOADERS) and each.module.split(".")[0] in ("numpy", "ml_dtypes"))
    ]
    assert not found, report("core, decide and compute/models import no array library (numpy and ml_dtypes in compute/models/load):", found)


def test_torch_is_imported_only_where_it_computes() -> None:
    found = [
        f"{source.at(each.line)} imports {each.module}"
        for source in sources() for each in source.imports
        if each.within("torch") and not source.path.startswith(MAY_USE_TORCH)
    ]
    assert not found, report(f"torch is imported only in {', '.join(MAY_USE_TORCH)}:", found)


def test_commands_import_lazily() -> None:
    found = [
        f"{source.at(each.line)} imports {each.module}"
        for source in sources("penstock/cli") for each in source.imports
        if not each.lazy and each.module.split(".")[0] not in sys.stdlib_module_names and not any(each.within(name) for name in CLI_IMPORTS)
    ]
    assert not found, report(f"at module level cli imports only the standard library, {', '.join(CLI_IMPORTS)}:", found)


def test_tables_are_read_only_where_the_engine_is_wired() -> None:
    found = []
    for source in sources():
        if source.path.startswith(MAY_READ_TABLES):
            continue
        found += [f"{source.at(each.line)} imports the table of {each.module}" for each in source.imports
                  if "TABLE" in each.names and each.module in tables()]
        found += [f"{source.at(node.lineno)} reads {ast.unparse(node)}" for node in source.nodes
                  if isinstance(node, ast.Attribute) and node.attr == "TABLE"]
    assert not found, report(f"tables are read only in {', '.join(MAY_READ_TABLES)}:", found)


def loaded_by(modules: list[str]) -> set[str]:
    """What is in sys.modules of a fresh interpreter after these imports."""
    script = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, *modules], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def uses_torch(source: Source) -> bool:
    """Whether it says so itself, at module level."""
    return any(each.within("torch") and not each.lazy for each in source.imports)


def test_importing_penstock_never_imports_torch() -> None:
    free = [source.module for source in sources("penstock") if not uses_torch(source) and source.stem != "__main__"]
    assert "torch" not in loaded_by(free), "a module that does not import torch itself drags it in"


def test_the_command_line_starts_light() -> None:
    loaded = loaded_by([source.module for source in sources("penstock/cli")])
    found = sorted(loaded & set(NOT_AT_START))
    assert not found, f"importing penstock.cli imports {', '.join(found)}; import them inside the function that needs them"
