"""Text to token ids and back, over a `tokenizers.Tokenizer` and a few facts about it, wherever both came from."""
from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import tokenizers

from penstock.core.errors import RequestError
from penstock.serve.text.detokenize import Detokenizer, last_shown
from penstock.serve.text.facts import TokenizerFacts
from penstock.serve.text.fewest import Fewest, fewest
from penstock.serve.text.folder import read_folder
from penstock.serve.text.gguf import read_gguf
from penstock.serve.text.pieces import Pieces

DECODE_CHUNK = 1024  # tokens
LONG = 4096  # characters, from which on other threads are to go on while a text is encoded


class Tokenizer:
    """Encodes as the `tokenizers` package does: special tokens written in the text become special tokens. Nothing is ever cut or padded.

    Takes `backend` over: its truncation and padding are switched off. Raises ModelError when its decoder cannot be streamed.
    """

    def __init__(self, backend: tokenizers.Tokenizer, facts: TokenizerFacts | None = None) -> None:
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.facts = facts or TokenizerFacts()
        self.pieces = Pieces(backend)
        self.special_ids = frozenset(token_id for token_id, token in backend.get_added_tokens_decoder().items() if token.special)
        self.bos_token_id = self._id_of_role("bos_token")
        own_eos = self._id_of_role("eos_token")
        known = self.facts.eos_token_ids
        self.eos_token_ids = known if own_eos is None or own_eos in known else (own_eos, *known)

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Reads a folder in Hugging Face layout, or a GGUF file. Raises ModelError when there is no tokenizer, or a file is broken."""
        return cls(*(read_gguf(path) if path.is_file() else read_folder(path)))

    def __len__(self) -> int:
        """The number of tokens, added ones included."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    @cached_property
    def vocab_size(self) -> int:
        """One more than the highest token id."""
        return 1 + max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1)

    @cached_property
    def fewest(self) -> Fewest | None:
        """How few tokens a text can be; None where that cannot be told from its bytes."""
        return fewest(self.backend)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of the text. Raises RequestError when it holds half of a surrogate pair, which is no character."""
        backend = self.backend
        try:
            if len(text) < LONG:
                encoded = backend.encode(text, add_special_tokens=add_special_tokens)
            else:  # `encode` would hold the interpreter's lock
                (encoded,) = backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
            ids: list[int] = encoded.ids
            return ids
        except TypeError:
            at = lone_surrogate(text)
            raise RequestError(f"the text holds the lone surrogate U+{ord(text[at]):04X} at character {at}: no character") from None

    def detokenizer(self, skip_special_tokens: bool = True, prompt_ids: Sequence[int] = ()) -> Detokenizer:
        """For the tokens of one text, bit by bit, behind those of its prompt."""
        return Detokenizer(self.pieces, self.special_ids if skip_special_tokens else frozenset(), prompt_ids)

    def shown_end(self, prompt_ids: Sequence[int], skip_special_tokens: bool = True) -> tuple[int, ...]:
        """The last few tokens of a prompt that show: of these alone, `detokenizer` makes what it makes of all. Where a prompt has many
        answers and tokens that do not show, they are found once."""
        return last_shown(self.pieces, self.special_ids if skip_special_tokens else frozenset(), prompt_ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of the tokens; ids without a token add nothing, bytes that are no character show as U+FFFD."""
        stream = self.detokenizer(skip_special_tokens)
        texts = [stream.push(ids[at : at + DECODE_CHUNK]) for at in range(0, len(ids), DECODE_CHUNK)]
        return "".join(texts) + stream.finish()

    def token_bytes(self, token_id: int) -> bytes:
        """What the token adds to a text that it does not begin; b"" when no token has this id."""
        return self.pieces.piece(token_id) or b""

    def token_text(self, token_id: int) -> str:
        """`token_bytes` as text, with U+FFFD for parts of characters."""
        return self.token_bytes(token_id).decode(errors="replace")

    def id_of(self, token: str) -> int | None:
        """The id of the token that is spelled exactly so."""
        found: int | None = self.backend.token_to_id(token)
        return found

    def _id_of_role(self, role: str) -> int | None:
        token = self.facts.special_tokens.get(role)
        return None if token is None else self.id_of(token)


def lone_surrogate(text: str) -> int:
    """Where the text cannot be written as UTF-8. Raises ValueError when it can."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    raise ValueError("the text has no lone surrogate")
