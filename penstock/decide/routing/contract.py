"""What is asked when a request arrives and several engines could serve it, and what is known of them then.

A router stands in front of the engines: it sees what they tell of themselves and remembers what it sent where, not their prefix trees.
"""
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.core.message import message
from penstock.core.types import Seq


@dataclass(frozen=True, slots=True)
class Engines:
    """The replicas, which are alike. `num_blocks` of `block_size` tokens are the KV cache of each."""

    count: int
    block_size: int
    num_blocks: int


@message
class Load:
    """What one replica has before it. An answer counts as long as it may become: how long it will be is not known before its end."""

    num_running: int = 0
    num_waiting: int = 0
    prompt_tokens: int = 0  # that are there and whose keys and values are not
    answer_tokens: int = 0  # that are still to be made, at most

    @property
    def outstanding(self) -> int:
        """Tokens."""
        return self.prompt_tokens + self.answer_tokens


@dataclass(frozen=True, slots=True)
class Prompt:
    """`salt` keeps its prefixes apart from those of other salts, as `Seq.salt` does in the engine."""

    tokens: Sequence[int]
    salt: str = ""


class Router(Protocol):
    """Made with the `Engines`, and its options where it has any."""

    def pick(self, prompt: Prompt, loads: Sequence[Load]) -> int:
        """The number of the replica that the request is sent to. `loads`: of all of them at this moment, by number.

        Depends on the calls so far and nothing else: no clock, no chance.
        """
        ...


def load_of(seqs: Iterable[Seq], num_running: int) -> Load:
    """Of a scheduler's sequences, as they are before the step in flight is committed."""
    num_seqs = prompts = answers = 0
    for seq in seqs:
        present = len(seq.tokens)
        num_seqs += 1
        prompts += present - seq.num_computed
        answers += seq.max_len - present
    return Load(num_running, num_seqs - num_running, prompts, answers)
