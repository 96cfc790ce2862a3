"""What a schema's grammar lets through and writes, and what the jsonschema package says of it."""
import json
import random
from typing import Any

import jsonschema

from penstock.core.types import StructuredOutputsParams
from tests.compute.decoding.grammar.tokens import TOKENS, compiler, matcher_of, write

COMPILER = compiler()
DRAFT_3 = {"$schema": "http://json-schema.org/draft-03/schema#"}
DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
DRAFT_2019 = {"$schema": "https://json-schema.org/draft/2019-09/schema"}


def accepts(schema: Any, value: Any) -> bool:
    """Whether the grammar lets the value through, written as Python writes it."""
    matcher = matcher_of(COMPILER, StructuredOutputsParams(json=schema))
    ids = TOKENS.encode(json.dumps(value, ensure_ascii=False))
    return matcher.take([*ids, TOKENS.eos_token_ids[0]]) >= len(ids) and matcher.ended == "stop"


def valid(schema: Any, value: Any) -> bool:
    found: bool = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema).is_valid(value)
    return found


def written(schema: Any, seed: int) -> Any:
    """A value that the grammar lets through; None where none came to its end."""
    return made(StructuredOutputsParams(json=schema), random.Random(seed))


def made(wanted: StructuredOutputsParams, rng: random.Random) -> Any:
    """The same, which fails where a value has begun that cannot be ended."""
    matcher = matcher_of(COMPILER, wanted)
    text = write(matcher, rng, 120)
    assert matcher.ended != "abort"
    return None if text is None else [json.loads(text)]
