"""What a checkpoint says of its tokenizer beside the vocabulary, wherever it was read from."""
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """`special_tokens` by role (bos_token, eos_token, pad_token, ...), `chat_templates` as jinja sources by name; a lone one is "default".

    `eos_token_ids` end a generation, beside the token whose role is eos_token.
    """

    special_tokens: Mapping[str, str] = field(default_factory=dict)
    eos_token_ids: tuple[int, ...] = ()
    chat_templates: Mapping[str, str] = field(default_factory=dict)
