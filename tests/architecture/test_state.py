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


# Objects that live as long as their module and are no constants.
LIVING = {"penstock/compute/decoding/grammar/stack.py _starting": "a lock: how large the stacks of new threads are is the process's own"}
# Containers of a class, which all its objects share.
SHARED = {"penstock/serve/text/sandbox.py tags": "where Jinja looks for an extension's words"}
# Classes of other libraries whose objects never change.
UNCHANGING = {"JSONDecoder", "JSONEncoder", "Option", "ParamSpec", "Path", "Struct", "TypeVar"}
# Constants with plug-ins' names in them that are compared with something.
SAY_ANOTHER = {
    "penstock/serve/api/slo.py FIELD": "a field of requests",
    "penstock/cli/bench.py SECRET": "options of the command",
    "penstock/cli/tune.py UNSAID": "options of the command",
    "penstock/compute/quant/codes.py MULTIPLES": "how scales are stored",
    "penstock/compute/quant/contract.py ACTIVATIONS": "types of activations",
    "penstock/serve/api/keys.py FIELDS": "fields of a key",
    "penstock/serve/api/structure.py NOT_ASKED": "a field of requests",
    "penstock/study/plan/model.py DEVICES": "kinds of devices",
}
# Those that ask a plug-in its name all the same, each by what would be right instead. Nothing may be added.
ASK_A_NAME = {
    "penstock/cli/bench.py REPLAYED": "an arrival process declares that it takes a trace",
    "penstock/study/explain/levers/batching.py CONTINUOUS": "a batching mode declares that it admits at every step",
    "penstock/study/explain/traffic.py CLOSED": "an arrival process declares that it waits for answers",
    "penstock/study/plan/rehearsal.py IN_TURN": "a routing policy declares that it looks at nothing of a request",
}


def constants(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """(name, value) of what a module or a class assigns."""
    for node in body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name):
                yield target.id, node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from ((ast.unparse(name), value) for name, value in zip(target.elts, node.value.elts, strict=True))


def containers(body: list[ast.stmt]) -> set[str]:
    """Names of the lists, dicts and sets that live as long as the module or the class."""
    return {
        name for name, value in constants(body)
        if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)
        or (isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in CONTAINERS)
    }


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
        living = containers(source.tree.body)
        for function in source.functions():
            own = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            own |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
            found += [f"{source.at(line)} changes {name}" for name, line in changes(function) if name in living - own]
    assert not found, report("a module-level list, dict or set is never changed:", found)


def test_classes_hold_no_containers() -> None:
    found = {f"{source.path} {name}" for source in sources("penstock") for node in source.classes() for name in containers(node.body)}
    assert found == set(SHARED), report("a list, dict or set of a class would be shared by all its objects:", sorted(found - set(SHARED)))


def is_frozen(made: ast.ClassDef) -> bool:
    """A frozen dataclass, a message, which is one where tests run, or a table."""
    decorators = [ast.unparse(each) for each in made.decorator_list]
    return "message" in decorators or any("frozen=True" in each for each in decorators) or made.name == "Table"


def may_change(source: Source, own: dict[tuple[str, str], ast.ClassDef]) -> Iterator[str]:
    """Module-level names of objects that are not known to stay as they are. `own`: the classes, by module and name."""
    comes_from = {name: each.module for each in source.imports for name in each.names}
    for name, value in constants(source.tree.body):
        for call in ast.walk(value):
            made = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
            known = own.get((comes_from.get(made, source.module), made))
            last = made.rpartition(".")[2]
            if not is_frozen(known) if known else last[:1].isupper() and last not in UNCHANGING:
                yield name


def test_module_level_objects_are_constants() -> None:
    own = {(source.module, node.name): node for source in sources("penstock") for node in source.classes()}
    found = {f"{source.path} {name}" for source in sources("penstock") for name in may_change(source, own)}
    assert found == set(LIVING), report("a module-level object is frozen:", sorted(found - set(LIVING)))


def test_state_is_recognized() -> None:
    source = Source("penstock/x.py", """
class Held:
    seen: dict[str, int] = {}
class Fixed(Protocol): ...
HELD, LOCK, WORD = Held(), threading.Lock(), re.compile("x")
""")
    own = {(source.module, node.name): node for node in source.classes()}
    assert [*may_change(source, own)] == ["HELD", "LOCK"] and [containers(node.body) for node in source.classes()] == [{"seen"}, set()]


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


def compared(source: Source) -> Iterator[tuple[str, int]]:
    """(name, line) of what is compared with something, alone or in a tuple."""
    for node in source.nodes:
        if isinstance(node, ast.Compare):
            for side in [node.left, *node.comparators]:
                parts = side.elts if isinstance(side, ast.Tuple) else [side]
                yield from ((part.id, node.lineno) for part in parts if isinstance(part, ast.Name))


def test_nothing_branches_on_a_plugins_name_through_a_constant() -> None:
    names = plugin_names()
    named = {
        (source.module, name): source.path for source in sources("penstock") if source.module not in tables()
        for name, value in constants(source.tree.body) if names & set(strings(value))
    }
    found: dict[str, str] = {}
    for source in sources("penstock"):
        comes_from = {name: each.module for each in source.imports for name in each.names}
        for name, line in compared(source):
            if path := named.get((comes_from.get(name, source.module), name)):
                found[f"{path} {name}"] = source.at(line)
    known = {*SAY_ANOTHER, *ASK_A_NAME}
    assert found.keys() == known, report(
        "nothing asks a plug-in its name: declare the difference in needs and caps:",
        [f"{where} compares {said}" for said, where in found.items() if said not in known] or [f"gone: {sorted(known - found.keys())}"])


def test_nothing_branches_on_a_plugins_class() -> None:
    classes = {target.partition(":")[2] for table in tables().values() for target in table.values()}
    found = [
        f"{source.at(node.lineno)} {ast.unparse(node)}"
        for source in sources("penstock") for node in source.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance" and len(node.args) == 2
        and {ast.unparse(kind).rpartition(".")[2] for kind in ast.walk(node.args[1]) if isinstance(kind, ast.expr)} & classes
    ]
    assert not found, report("nothing asks a plug-in its class:", found)
