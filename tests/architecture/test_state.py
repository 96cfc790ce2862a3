"""No global state, no ambient context, no branch on a plug-in's name or class."""
import ast
from collections.abc import Iterator

from tests.architecture.source import Source, report, sources, tables

MUTATING = {
    "append", "add", "extend", "insert", "update", "setdefault", "pop", "popitem", "popleft", "appendleft", "clear", "remove", "discard",
}
AMBIENT = {"ContextVar", "contextvars.ContextVar", "threading.local", "local"}
CONTAINERS = {"list", "dict", "set", "deque", "defaultdict", "Counter", "OrderedDict"}
# Words of other vocabularies that are plug-in names as well: OpenAI's and Hugging Face's files say "none", "auto", "default".
EVERYDAY = {"none", "auto", "default"}
# Attributes that hold such words: a rope is scaled in ways of which one is called as a batching mode is.
OTHER_WORDS = {"scaling", "rope_type"}


def module_containers(source: Source) -> set[str]:
    """Names of the lists, dicts and sets that live as long as the module."""
    names = set()
    for node in source.tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        value = node.value
        made = isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in CONTAINERS
        if made or isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def changes(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(name, line) of each container that is changed by a method or through a subscript."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING:
            if isinstance(node.func.value, ast.Name):
                yield node.func.value.id, node.lineno
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del) and isinstance(node.value, ast.Name):
            yield node.value.id, node.lineno


def test_no_global_statement() -> None:
    found = [source.at(node.lineno) for source in sources("penstock") for node in source.nodes if isinstance(node, ast.Global)]
    assert not found, report("no global state: pass it, or keep it in an object:", found)


def test_module_level_containers_are_constants() -> None:
    found = []
    for source in sources("penstock"):
        containers = module_containers(source)
        for function in source.functions():
            own = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            own |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
            found += [f"{source.at(line)} changes {name}" for name, line in changes(function) if name in containers - own]
    assert not found, report("a module-level list, dict or set is never changed:", found)


def test_no_ambient_context() -> None:
    found = [
        f"{source.at(node.lineno)} {ast.unparse(node.func)}"
        for source in sources("penstock") for node in source.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) in AMBIENT
    ]
    assert not found, report("no ambient context: what a function needs is an argument:", found)


def test_only_the_command_line_sets_the_environment() -> None:
    found = [
        source.at(node.lineno)
        for source in sources("penstock") if not source.path.startswith("penstock/cli/")
        for node in source.nodes
        if (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del) and ast.unparse(node.value) == "os.environ")
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in {f"os.environ.{name}" for name in MUTATING} | {"os.putenv"})
    ]
    assert not found, report("environment variables are set in penstock/cli only:", found)


def plugin_names() -> set[str]:
    return {name for table in tables().values() for name in table} - EVERYDAY


def strings(node: ast.expr) -> list[str]:
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def test_nothing_branches_on_a_plugins_name() -> None:
    names = plugin_names()
    found = []
    for source in sources("penstock"):
        for node in source.nodes:
            said: list[str] = []
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                if not OTHER_WORDS & {ast.unparse(side).rpartition(".")[2] for side in sides}:
                    said = [text for side in sides for text in strings(side)]
            elif isinstance(node, ast.MatchValue):
                said = strings(node.value)
            found += [f"{source.at(node.lineno)} asks for {text!r}" for text in said if text in names]
    assert not found, report("nothing asks a plug-in its name: declare the difference in needs and caps:", found)


def test_nothing_branches_on_a_plugins_class() -> None:
    classes = {target.partition(":")[2] for table in tables().values() for target in table.values()}
    found = [
        f"{source.at(node.lineno)} {ast.unparse(node)}"
        for source in sources("penstock") for node in source.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance" and len(node.args) == 2
        and {ast.unparse(kind).rpartition(".")[2] for kind in ast.walk(node.args[1]) if isinstance(kind, ast.expr)} & classes
    ]
    assert not found, report("nothing asks a plug-in its class:", found)
