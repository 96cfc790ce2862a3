"""What a request says of its answer's structure: OpenAI's response_format, vLLM's structured_outputs and its older guided_* fields."""
import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request as HttpRequest

from penstock.compute.decoding.grammar.compiled import Compiled
from penstock.compute.decoding.grammar.compiler import Compiler
from penstock.core.errors import OverloadedError, RequestError
from penstock.core.types import SamplingParams, StructuredOutputsParams
from penstock.serve.api.limits import unless_gone
from penstock.serve.api.parts import Desk
from penstock.serve.api.values import Values, show
from penstock.serve.api.work import LongWork

COMPILE_S = 10.0  # the longest that a request waits for its grammar
PAUSE_S = 1e-4  # in which a thread that compiles lets others have Python's lock
GUIDED = {
    "guided_json": "json", "guided_json_object": "json_object", "guided_regex": "regex", "guided_choice": "choice",
    "guided_grammar": "grammar",
}
STRUCTURES = ("json", "json_object", "regex", "choice", "grammar")
SCHEMA_KEYS = ("name", "description", "schema", "strict")
WHITE_SPACE = "whitespace_pattern"
OPTIONS = ("disable_any_whitespace", "disable_additional_properties")
NOT_ASKED = ("json_object", False)
HARMLESS = ("disable_fallback",)  # there is nothing to fall back to


@dataclass(frozen=True, slots=True)
class Asked:
    """A structure, and the field that asks for it."""

    wanted: StructuredOutputsParams
    field: str


def read_structure(body: Mapping[str, Any], formatted: Asked | None = None) -> Asked | None:
    """None where the answer may be anything. `formatted`: what an endpoint's own field asks for. Raises RequestError for a field of a wrong
    type, and where more than one asks."""
    found = [asked for asked in (formatted, *from_structured(body), *from_guided(body)) if asked is not None]
    if len(found) > 1:
        raise RequestError(f"{found[0].field} and {found[1].field} are both given; give one of them", param=found[1].field)
    guided = f"guided_{WHITE_SPACE}"
    pattern = Values(body).text(guided, None)
    if pattern is None:
        return found[0] if found else None
    if not found or found[0].field not in GUIDED:
        raise RequestError(f"{guided} is of use only with guided_json, guided_json_object or a guided_grammar with %json", param=guided)
    return replace(found[0], wanted=replace(found[0].wanted, whitespace_pattern=pattern))


def from_format(body: Mapping[str, Any]) -> Asked | None:
    """OpenAI's response_format."""
    where = "response_format"
    given = Values(body).mapping(where)
    if given is None or given.get("type") != "json_schema":
        return None if given is None else of_format(given, where)
    check_keys(given, ("type", "json_schema"), where)
    inner = Values(given, f"{where}.").mapping("json_schema")
    if inner is None:
        raise RequestError(f"{where}.json_schema is missing; it must be an object with name and schema", param=f"{where}.json_schema")
    check_keys(inner, SCHEMA_KEYS, f"{where}.json_schema")
    return of_schema(inner, f"{where}.json_schema")


def of_format(given: Mapping[str, Any], where: str) -> Asked | None:
    """A format whose schema, if it has one, stands beside its type. `where`: the field that it is."""
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in FORMATS:
        raise RequestError(f"{where}.type must be one of {', '.join(FORMATS)}, not {show(kind)}", param=f"{where}.type")
    return FORMATS[kind](given, where)


def of_text(given: Mapping[str, Any], where: str) -> None:
    check_keys(given, ("type",), where)


def of_object(given: Mapping[str, Any], where: str) -> Asked:
    check_keys(given, ("type",), where)
    return Asked(StructuredOutputsParams(json_object=True), where)


def of_schema(inner: Mapping[str, Any], where: str) -> Asked:
    """`strict` asks for what is done anyway."""
    check_keys(inner, ("type", *SCHEMA_KEYS), where)
    values = Values(inner, f"{where}.")
    values.text("name", None)
    values.text("description", None)
    values.boolean("strict", False)
    if not isinstance(inner.get("schema"), dict | bool):
        message = f"{where}.schema must be a JSON schema, which is an object, not {show(inner.get('schema'))}"
        raise RequestError(message, param=f"{where}.schema")
    return Asked(StructuredOutputsParams(json=inner["schema"]), f"{where}.schema")


FORMATS: Mapping[str, Callable[[Mapping[str, Any], str], Asked | None]] = {
    "text": of_text, "json_object": of_object, "json_schema": of_schema,
}


def from_structured(body: Mapping[str, Any]) -> Iterator[Asked | None]:
    where = "structured_outputs"
    given = Values(body).mapping(where)
    if given is None:
        return
    check_keys(given, (*STRUCTURES, WHITE_SPACE, *OPTIONS, *HARMLESS), where)
    values = Values(given, f"{where}.")
    for name in HARMLESS:
        values.boolean(name, False)
    names = [name for name in STRUCTURES if values.given(name) and (name, given[name]) != NOT_ASKED]
    if len(names) != 1:
        raise RequestError(
            f"{where} must have one of {', '.join(STRUCTURES)}, not {' and '.join(names) or 'nothing'}", param=where)
    wanted = {names[0]: given[names[0]], WHITE_SPACE: values.text(WHITE_SPACE, None)}
    options: dict[str, Any] = {name: values.boolean(name, False) for name in OPTIONS}
    yield Asked(StructuredOutputsParams(**wanted, **options), f"{where}.{names[0]}")


def from_guided(body: Mapping[str, Any]) -> Iterator[Asked | None]:
    values = Values(body)
    for field, name in GUIDED.items():
        if values.given(field) and (name, body[field]) != NOT_ASKED:
            yield Asked(StructuredOutputsParams(**{name: body[field]}), field)


def check_keys(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    """Raises RequestError for the first key that is given and not known."""
    for name, value in given.items():
        if name not in known and value is not None:
            path = f"{where}.{name[:80]}"
            message = f"{path} is not supported; {where} has {', '.join(known)}"
            raise RequestError(message, param=path, code="unsupported_parameter")


def structured(params: SamplingParams, asked: Asked | None) -> SamplingParams:
    return params if asked is None else replace(params, structured_outputs=asked.wanted)


async def compile_structure(desk: Desk, params: SamplingParams, field: str, size: int) -> tuple[SamplingParams, Compiled | None]:
    """Compiles what the parameters ask for beside the event loop, unless that is done already. `size`: of the body, in bytes.

    Raises RequestError, naming `field` or an option beside it, for what cannot be obeyed, and for what takes longer than COMPILE_S;
    OverloadedError when it has not come to its turn by then.
    """
    wanted, compiler = params.structured_outputs, desk.parts.grammars
    if wanted is None:
        return params, None
    if compiler is None:
        raise RequestError(f"{field}: this server does not constrain its output", param=field)
    try:
        wanted = await desk.work.run(size, compiler.checked, wanted)
        compiled = compiler.known(wanted) or await in_time(desk.compiling, compiler, wanted)
    except OverloadedError:
        raise
    except RequestError as error:
        field = at_fault(error, field)
        raise RequestError(f"{field}: {error}", param=field, code=error.code) from None
    return replace(params, structured_outputs=compiled.wanted), compiled


def at_fault(error: RequestError, field: str) -> str:
    """The field of a request that an error is about: the one that asks for the structure, or an option beside it."""
    if error.param not in (WHITE_SPACE, *OPTIONS):
        return field
    return f"guided_{error.param}" if field in GUIDED else f"{field.rpartition('.')[0]}.{error.param}"


class Abandoned(Exception):
    """Nobody waits for a grammar any more."""


class Wait:
    """For one grammar: asked now and then by the thread that compiles it, which lets others work meanwhile and stops when it is over."""

    def __init__(self) -> None:
        self.began = False
        self._over = threading.Event()

    def leave(self) -> None:
        self._over.set()

    def __call__(self) -> None:
        self.began = True
        if self._over.is_set():
            raise Abandoned
        time.sleep(PAUSE_S)


async def in_time(work: LongWork, compiler: Compiler, wanted: StructuredOutputsParams) -> Compiled:
    """Raises RequestError when it takes too long, and OverloadedError when others take so long. Its thread stops then, as it does when the
    client is gone."""
    wait = Wait()

    def compile_it() -> Compiled:
        wait()
        return compiler.compile(wanted, wait)

    task = asyncio.ensure_future(work.run_long(compile_it))
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    try:
        done, _ = await asyncio.wait({task}, timeout=COMPILE_S)
    finally:
        wait.leave()
    if done:
        return task.result()
    if not wait.began:
        raise OverloadedError(f"other grammars have been compiled for {COMPILE_S:g} s; try again", retry_after_s=COMPILE_S)
    raise RequestError(f"the grammar takes longer than {COMPILE_S:g} s to compile; give a smaller one")


async def compile_all(
    desk: Desk, http: HttpRequest, params: SamplingParams, asked: Sequence[Asked], size: int
) -> tuple[SamplingParams, Compiled | None]:
    """Compiles one after the other what a request asks for, and returns what `compile_structure` does for the last, the parameters
    alone where nothing is asked for. Raises RequestError as it does, OverloadedError where those before one took longer than COMPILE_S,
    and ClientGone when the client hangs up meanwhile."""
    return await unless_gone(http.receive, one_by_one(desk, params, asked, size)) if asked else (params, None)


async def one_by_one(desk: Desk, params: SamplingParams, asked: Sequence[Asked], size: int) -> tuple[SamplingParams, Compiled | None]:
    found: tuple[SamplingParams, Compiled | None] = params, None
    until_s = desk.clock.now() + COMPILE_S
    for each in asked:
        if desk.clock.now() > until_s:
            raise OverloadedError(
                f"{each.field}: the grammars before it have taken longer than {COMPILE_S:g} s, with what they waited for others; they are "
                "ready now, so try again", retry_after_s=COMPILE_S)
        found = await compile_structure(desk, replace(params, structured_outputs=each.wanted), each.field, size)
    return found
