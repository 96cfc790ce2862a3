"""Whether a prompt fits into the context, and its answer behind it: nothing is ever cut to fit."""
from dataclasses import dataclass

from penstock.core.errors import RequestError
from penstock.core.types import SamplingParams
from penstock.serve.api.parts import Desk
from penstock.serve.api.work import LARGE


@dataclass(frozen=True, slots=True)
class Room:
    """`answered`: an answer follows, which needs a token at least."""

    limit: int
    answered: bool

    @property
    def most(self) -> int:
        return self.limit - self.answered

    def exceeded(self, name: str, what: str) -> RequestError:
        why = f"the context is {self.limit} tokens" + (", one of which the answer needs" if self.answered else "")
        return RequestError(f"{name} has {what}; at most {self.most} fit: {why}", name, code="context_length_exceeded")


def check_bytes(desk: Desk, text: str, name: str, answered: bool) -> None:
    """Raises RequestError when a large text has too many bytes for whatever tokens it is made of: to tokenize it takes memory, some 100
    bytes for each. Of others the number of tokens is told."""
    fewest = desk.parts.tokenizer.fewest if len(text) >= LARGE else None
    if fewest is None:
        return
    room, least = Room(desk.parts.engine.max_model_len, answered), fewest.of(text)
    if least > room.most:
        size = len(text.encode(errors="surrogatepass"))
        raise room.exceeded(name, f"{size} bytes, at least {least} tokens, each of {fewest.longest} bytes at most")


def check_room(desk: Desk, num_tokens: int, params: SamplingParams | None, prompt_name: str, max_name: str = "max_tokens") -> None:
    """Raises RequestError when the prompt leaves too little room for the answer; nothing is ever cut to fit. `params` None: no answer."""
    limit = desk.parts.engine.max_model_len
    if num_tokens == 0:
        raise RequestError(f"{prompt_name} has no tokens; at least 1 is needed", param=prompt_name)
    room = Room(limit, params is not None)
    if num_tokens > room.most:
        raise room.exceeded(prompt_name, f"{num_tokens} tokens")
    if params is None:
        return
    for name, wanted in ((max_name, params.max_tokens or 0), ("min_tokens", params.min_tokens)):
        if num_tokens + wanted > limit:
            message = (f"{name} = {wanted} does not fit after the {num_tokens} tokens of {prompt_name}: {limit - num_tokens} do, "
                       f"because the context is {limit} tokens")
            raise RequestError(message, param=name, code="context_length_exceeded")
