"""Where things are and what they are called: no drawers for odds and ends, no stutter, plug-in folders that all look alike."""
import ast
from pathlib import Path

from tests.architecture.source import ROOT, report, sources, tables

DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc"}
# The design itself gives a folder's main file the folder's name; lm_head is what every checkpoint calls it.
STUTTERS = {
    "penstock/decide/scheduler/scheduler.py", "penstock/compute/runner/runner.py", "penstock/serve/engine/engine.py",
    "penstock/compute/models/heads/lm_head.py",
}


def test_there_are_no_drawers() -> None:
    found = [source.path for source in sources() if DRAWERS & {part.removesuffix(".py") for part in Path(source.path).parts}]
    assert not found, report(f"no module is called {', '.join(sorted(DRAWERS))}: a helper lives beside its user:", found)


def test_files_do_not_repeat_their_folder() -> None:
    found = [
        source.path for source in sources("penstock")
        if source.path not in STUTTERS and source.stem != "__init__"
        and {(folder := Path(source.path).parent.name), folder.removesuffix("s")} & {source.stem, *source.stem.split("_")}
    ]
    assert not found, report("a file never repeats its folder's name:", found)


def test_no_mixins() -> None:
    found = [f"{source.at(node.lineno)} {node.name}" for source in sources() for node in source.classes() if node.name.endswith("Mixin")]
    assert not found, report("no mixins: pass an object instead of inheriting its methods:", found)


def test_plugin_folders_hold_a_docstring_and_one_table() -> None:
    found = []
    for source in sources("penstock"):
        if source.module not in tables():
            continue
        docstring, *rest = source.tree.body
        odd = [node for node in rest if not isinstance(node, ast.Import | ast.ImportFrom)]
        names = [ast.unparse(target) for node in odd if isinstance(node, ast.Assign) for target in node.targets]
        if source.stem == "__init__" and (not isinstance(docstring, ast.Expr) or len(odd) != 1 or names != ["TABLE"]):
            found.append(source.at(odd[-1].lineno))
        elif source.stem != "__init__":
            found.append(source.at(1))
    assert not found, report("a table stands alone in the __init__.py of its folder, after a docstring and imports, as TABLE:", found)


def test_tables_point_to_what_exists() -> None:
    here = {source.module: source for source in sources("penstock")}
    found = []
    for folder, table in tables().items():
        for name, target in table.items():
            module, _, attribute = target.partition(":")
            defined = {
                getattr(node, "name", None) or ast.unparse(getattr(node, "targets", [getattr(node, "target", node)])[0])
                for node in (here[module].tree.body if module in here else [])
            }
            if attribute not in defined:
                found.append(f"{folder} {name!r} -> {target}")
            elif not module.startswith(folder.rpartition(".")[0]):
                found.append(f"{folder} {name!r} -> {target} is not beside its table")
    assert not found, report("a table's entries are module:attribute of its own neighbourhood:", found)


def test_shapes_of_tiles_are_not_left_to_the_compiler() -> None:
    """GCC before 13.3 leaves out stores to what `_tile_loadconfig` reads, which only a processor with tiles would notice."""
    found = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "csrc").rglob("*.[ch]*")) if "_tile_loadconfig(" in path.read_text()]
    assert not found, report("shapes of tiles are loaded by load_tile_shapes:", found)
