"""What `prompt` and `input` may be: a string, a list of strings, token ids, or a list of token ids. Nothing is ever cut."""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import RequestError
from penstock.serve.api.parts import Desk
from penstock.serve.api.room import check_bytes
from penstock.serve.api.values import check_token_ids, show


@dataclass(frozen=True, slots=True)
class Prompt:
    """`text` is None when the prompt came as token ids."""

    token_ids: tuple[int, ...]
    text: str | None = None


def read_prompts(
        desk: Desk, body: Mapping[str, Any], name: str, add_special_tokens: bool, most: int | None = None, answered: bool = True
) -> list[Prompt]:
    """The prompts in the field `name`, in order: at most `most`, or as many as may wait. Raises RequestError naming the field, and the
    entry where there are several. `answered`: the model answers them, for which there must be room."""
    encode = desk.parts.tokenizer.encode
    value = body.get(name)
    if value is None:
        raise RequestError(f"{name} is missing; it must be a string, a list of strings, token ids, or a list of token ids", param=name)
    if isinstance(value, str):
        check_bytes(desk, value, name, answered)
        return [Prompt(tuple(encode(value, add_special_tokens)), value)]
    if not isinstance(value, list) or not value:
        raise RequestError(f"{name} must be a string, token ids, or a list of either with at least 1 entry, not {show(value)}", param=name)
    if all(type(entry) is int for entry in value):
        return [_from_ids(desk, value, name)]
    limit, option = (desk.parts.config.max_queue, " (--max-queue)") if most is None else (most, "")
    if len(value) > limit:
        raise RequestError(f"{name} has {len(value)} entries; at most {limit} are taken in one request{option}", param=name)
    if all(isinstance(entry, str) for entry in value):
        for at, entry in enumerate(value):
            check_bytes(desk, entry, name if len(value) == 1 else f"{name}[{at}]", answered)
        return [Prompt(tuple(encode(entry, add_special_tokens)), entry) for entry in value]
    if all(isinstance(entry, list) for entry in value):
        return [_from_ids(desk, entry, f"{name}[{at}]") for at, entry in enumerate(value)]
    wanted = type(value[0]) if type(value[0]) in (int, str, list) else str
    wrong = next(at for at, entry in enumerate(value) if type(entry) is not wanted)
    message = f"{name}[{wrong}] is {show(value[wrong])}; all entries must be strings, all token ids, or all lists of token ids"
    raise RequestError(message, param=name)


def _from_ids(desk: Desk, ids: list[Any], name: str) -> Prompt:
    check_token_ids(ids, name, desk.vocab_size)
    return Prompt(tuple(ids))
