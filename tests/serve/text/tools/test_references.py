"""References in a function's parameters lead into the parameters as they are written, in every format; jsonschema is the judge."""
import json
import random
from typing import Any

import jsonschema
import pytest

from penstock.core.errors import RequestError
from penstock.core.types import Rules, StructuredOutputsParams
from penstock.serve.text.tools import TABLE
from penstock.serve.text.tools.deepseek_v3 import BEGIN, CALL, CALL_END, END, SEPARATOR
from penstock.serve.text.tools.rules import Function, Wanted, rules_of
from tests.compute.decoding.grammar.tokens import TOKENS, compiler, matcher_of, write
from tests.serve.text.tools.reading import numbered, read

COMPILER = compiler()
SPELLED = {  # a call of f with arguments, which are JSON
    "hermes": '<tool_call>\n{{"name": "f", "arguments": {}}}\n</tool_call>', "llama3_json": '{{"name": "f", "parameters": {}}}',
    "harmony": '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}',
    "deepseek_v3": f"{BEGIN}{CALL}function{SEPARATOR}f\n```json\n{{}}\n```{CALL_END}{END}",
    "deepseek_v31": f"{BEGIN}{CALL}f{SEPARATOR}{{}}{CALL_END}{END}",
    "glm45": "<tool_call>f\n{}</tool_call>", "qwen3_coder": "<tool_call>\n<function=f>\n{}</function>\n</tool_call>",
    "seed_oss": "<seed:tool_call>\n<function=f>\n{}</function>\n</seed:tool_call>",
    "mistral": '[TOOL_CALLS] [{{"name": "f", "arguments": {}}}]', "pythonic": "[f({})]",
    "granite": '<tool_call>[{{"name": "f", "arguments": {}}}]', "phi4_mini": 'functools[{{"name": "f", "arguments": {}}}]',
    "longcat": '<longcat_tool_call>\n{{"name": "f", "arguments": {}}}\n</longcat_tool_call>',
    "internlm2": '<|action_start|><|plugin|>\n{{"name": "f", "parameters": {}}}\n<|action_end|>',
    "lfm2": "<|tool_call_start|>[f({})]<|tool_call_end|>", "olmo3": "<function_calls>\nf({})\n</function_calls>",
    "xlam": '[{{"name": "f", "arguments": {}}}]',
    "nemotron": '<TOOLCALL>[{{"name": "f", "arguments": {}}}]</TOOLCALL>',
    "hunyuan_a13b": '<tool_calls>[{{"name": "f", "arguments": {}}}]</tool_calls>',
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
               "<|tool_calls_section_end|>",
    "minimax_m2": '<minimax:tool_call>\n<invoke name="f">\n{}</invoke>\n</minimax:tool_call>',
    **{version: f'<｜DSML｜{tag}>\n<｜DSML｜invoke name="f">\n{{}}</｜DSML｜invoke>\n</｜DSML｜{tag}>'
       for version, tag in (("deepseek_v32", "function_calls"), ("deepseek_v4", "tool_calls"))},
}
ARGUMENT = {  # where each is written by its name
    **dict.fromkeys(("pythonic", "lfm2", "olmo3"), "{}={}"), "glm45": "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n",
    "qwen3_coder": "<parameter={}>\n{}\n</parameter>\n",
    "seed_oss": "<parameter={}>{}</parameter>\n", "minimax_m2": '<parameter name="{}">{}</parameter>\n',
    **dict.fromkeys(("deepseek_v32", "deepseek_v4"), '<｜DSML｜parameter name="{}" string="false">{}</｜DSML｜parameter>\n')}
ALIKE = {"deepseek_v4", "granite", "hunyuan_a13b", "internlm2", "kimi_k2", "lfm2", "longcat", "nemotron", "olmo3", "phi4_mini",
         "xlam"}  # arguments by the rules of another
FORMATS = [name for name in TABLE if name not in ALIKE]
INTEGER = {"type": "integer"}
TREES = [
    {"v": 1}, {"v": 1, "kid": {"v": 2}}, {"v": 1, "kid": {"v": 2, "kid": {"v": 3}}}, {"v": 1, "kid": {"v": 2, "kid": None}},
    {"v": 1, "kid": None}, {"kid": {"v": 1}}, {"v": 1, "kid": {"kid": {"v": 1}}}, {"v": 1, "kid": 2},
    {"v": 1, "kid": {"v": 2, "kid": {"v": "x"}}}]


def tree(kid: Any, kind: Any = ("object", "null"), **beside: Any) -> dict[str, Any]:
    kind = list(kind) if isinstance(kind, tuple) else kind
    return {**beside, "type": kind, "properties": {"v": INTEGER, "kid": kid}, "required": ["v"], "additionalProperties": False}


DRAFTS = {number: {"$schema": f"http://json-schema.org/draft-0{number}/schema#"} for number in (3, 4, 6, 7)}
DRAFTS[2019] = {"$schema": "https://json-schema.org/draft/2019-09/schema"}
ROOT = {"$ref": "#/$defs/tree"}
PARAMETERS: dict[str, dict[str, Any]] = {
    "the root, which may be null": tree({"$ref": "#"}),
    "the root, which is an object": tree({"$ref": "#"}, "object"),
    "the root, of any type": {name: value for name, value in tree({"$ref": "#"}).items() if name != "type"},
    "the root with keywords beside it": tree({"$ref": "#", "type": "object"}),
    "the root by its address": tree({"$ref": "tool.json"}, **{"$id": "http://a.example/tool.json"}),
    "the root by a pointer at its address": tree({"$ref": "/tool.json#"}, **{"$id": "http://a.example/tool.json"}),
    "the root by a name": tree({"$ref": "tag:a.example,2024:tree"}, **{"$id": "tag:a.example,2024:tree"}),
    "the root by its anchor": tree({"$ref": "#tree"}, **{"$anchor": "tree"}),
    "the root dynamically": tree({"$dynamicRef": "#tree"}, **{"$dynamicAnchor": "tree"}),
    "the root recursively": tree({"$recursiveRef": "#"}, **DRAFTS[2019], **{"$recursiveAnchor": True}),
    "the root of draft 4": tree({"$ref": "#"}, **DRAFTS[4], id="http://a.example/tool"),
    "the root of draft 7, whatever stands beside the reference": tree({"$ref": "#", "type": "null"}, **DRAFTS[7]),
    "another property": tree({"anyOf": [{"type": "null"}, {"$ref": "#/properties/v"}]}),
    "itself": tree({"anyOf": [INTEGER, {"type": "object", "properties": {"v": {}, "kid": {"$ref": "#/properties/kid"}}}]}),
    "a definition": {**tree({"$ref": "#/$defs/tree"}), "$defs": {"tree": tree({"$ref": "#/$defs/tree"})}},
    "a definition that refers to the root": {**tree({"$ref": "#/$defs/root"}), "$defs": {"root": {"$ref": "#"}}},
    "a definition that is a document": {
        **tree({"$ref": "inner"}), "$defs": {"inner": tree({"$ref": "#"}, "object", **{"$id": "inner"})}},
    "the root is a reference": {**ROOT, "$defs": {"tree": tree(ROOT)}},
    "the root is a reference, and meant by one": {**ROOT, "$defs": {"tree": tree({"$ref": "#"})}},
    "the root is a reference to a reference": {**ROOT, "$defs": {"tree": {"$ref": "#tree"}, "other": tree(ROOT, **{"$anchor": "tree"})}},
    "the root is a reference, with words beside it": {
        "$ref": "#/definitions/tree", "title": "T", "$id": "http://a.example/t", "definitions": {"tree": tree({"$ref": "t"})}},
    "the root is a reference, with a type beside it": {**ROOT, "type": "object", "$defs": {"tree": tree({"$ref": "#/$defs/tree"})}},
    "the root is a reference, and its types are narrower": {
        **ROOT, "type": "object", "$defs": {"tree": tree({"$ref": "#"}, ["null", "object", "array"])}},
    "the root is a reference to one, with types beside both": {
        **ROOT, "type": ["object", "null"], "$defs": {"tree": {"$ref": "#/$defs/other", "type": ["object"]}, "other": tree(ROOT)}},
    "the root is a reference in draft 7": {
        **DRAFTS[7], "$ref": "#/definitions/tree", "type": "string", "definitions": {"tree": tree({"$ref": "#"})}},
    "names with signs in them": {"$ref": "#/$defs/a%25~1b~0c%20", "$defs": {"a%/b~c ": tree({"$ref": "#/$defs/a%25~1b~0c%20"})}},
}


def calls_of(name: str, parameters: Any) -> Rules:
    functions = [Function("f", parameters)]
    return rules_of("start: calls\n" + TABLE.load(name).rules(Wanted(functions, False, lambda text: None)), functions)


def spelled(name: str, arguments: dict[str, Any]) -> str:
    if name not in ARGUMENT:
        return SPELLED[name].format(json.dumps(arguments))
    items = [ARGUMENT[name].format(key, json.dumps(value)) for key, value in arguments.items()]
    return SPELLED[name].format((", " if ARGUMENT[name].endswith("={}") else "").join(items))


def accepts(name: str, parameters: Any, arguments: dict[str, Any]) -> bool:
    matcher = matcher_of(COMPILER, StructuredOutputsParams(grammar=calls_of(name, parameters)))
    text = spelled(name, arguments)
    ids = TOKENS.encode(text)
    found = json.loads(read(TABLE.load(name)(numbered(), functions=[Function("f", parameters)]), text).tool_calls[0].arguments)
    assert found in (arguments, {key: json.dumps(value) if key == "kid" else value for key, value in arguments.items()})
    return matcher.take(ids) == len(ids) and matcher.ended == "stop"


def valid(parameters: Any, value: Any) -> bool:
    found: bool = jsonschema.validators.validator_for(parameters, jsonschema.Draft202012Validator)(parameters).is_valid(value)
    return found


@pytest.mark.parametrize("what", PARAMETERS)
@pytest.mark.parametrize("name", FORMATS)
def test_what_a_reference_means_is_what_the_parameters_say(name: str, what: str) -> None:
    parameters = PARAMETERS[what]
    judged = [valid(parameters, arguments) for arguments in TREES]
    assert True in judged and False in judged
    assert [accepts(name, parameters, arguments) for arguments in TREES] == judged
    wanted = StructuredOutputsParams(grammar=calls_of(name, parameters))
    for seed in range(3):
        text = write(matcher_of(COMPILER, wanted), random.Random(seed))
        calls = () if text is None else read(TABLE.load(name)(numbered(), functions=[Function("f", parameters)]), text).tool_calls
        assert text is None or calls and all(valid(parameters, json.loads(call.arguments)) for call in calls)


CHOICES = {
    "one may be null": {"anyOf": [tree({"$ref": "#"}, "object"), {"type": "null"}]},
    "parts": {"allOf": [tree({"$ref": "#"}), {"minProperties": 2}]},
    "a part of a part": {"anyOf": [tree({"$ref": "#/anyOf/0"}, "object"), {"type": "null"}]},
}


@pytest.mark.parametrize("what", CHOICES)
@pytest.mark.parametrize("name", FORMATS)
def test_so_it_is_of_choices_where_they_can_be_written(name: str, what: str) -> None:
    parameters = CHOICES[what]
    if name in ARGUMENT:
        with pytest.raises(RequestError, match=f"have '{next(iter(parameters))}' among their keywords"):
            calls_of(name, parameters)
    else:
        assert [accepts(name, parameters, arguments) for arguments in TREES] == [valid(parameters, arguments) for arguments in TREES]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("parameters", "place"), [
    (tree({"type": "strange"}), "#/properties/kid"),
    (tree({"items": {"$ref": "#/$defs/a"}}) | {"$defs": {"a": {"type": "strange"}}}, "#/$defs/a"),
    (tree({"items": {"$ref": "#/nowhere"}}), "#/properties/kid/items"),
    ({**ROOT, "$defs": {"tree": tree({"type": "strange"})}}, "#/$defs/tree/properties/kid"),
])
def test_places_are_those_of_the_parameters(name: str, parameters: Any, place: str) -> None:
    with pytest.raises(RequestError) as refusal:
        COMPILER.compile(StructuredOutputsParams(grammar=calls_of(name, parameters)))
    assert str(refusal.value).endswith(f"(at {place})")
