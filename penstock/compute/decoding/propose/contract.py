"""What a proposer is shown, and what it offers. Whatever it offers, the tokens that come out are those of plain decoding."""
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.compute.arrays import Array
from penstock.compute.backends.contract import Backend, KVLayout, Loaded
from penstock.compute.decoding.sampler import Sampler
from penstock.compute.decoding.state import RowState
from penstock.compute.models.names import TensorNames
from penstock.compute.program import Program
from penstock.core.errors import ModelError
from penstock.core.message import message
from penstock.core.modelspec import ModelSpec
from penstock.core.needs import Needs

MOST = 4096  # drafts of one sequence in a step, and tokens of a run that a proposer looks for


@message
class Drafts:
    """Guesses for what follows a sequence's last token. `parents`: for each draft the index of the one that it follows, which comes
    before it, or -1 for the last token; None: a chain."""

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None


@message
class Checked:
    """What became of a sequence's drafts in the step before: `path`, those that were accepted, in order (indices into the drafts);
    `choices`, what the model chose after the last token and then after each draft, accepted or not: [1 + drafts]; empty where a choice
    depends on those before it (penalties, grammars)."""

    drafts: Drafts
    path: tuple[int, ...]
    choices: tuple[int, ...]


@message
class Draftable:
    """A sequence that the next step will go on with.

    `tokens`: prompt and output, the token just chosen included; `num_prompt` of them are the prompt's. Never changed by a proposer.
    `room`: drafts at most. `salt`: what one sequence writes may be offered to those of the same salt alone.
    `states`: where the proposer needs the buffer "hidden": [n, width] float32, the model's hidden states at the n tokens before the
    newest, as far as they were computed since the sequence was shown last (a prefix from the cache was not). `checked`: its drafts of
    the step just made; None where it had none. `state`: by which its tokens are chosen; a guess of the numbers that these choices
    are made of is `Sampler.guess`.
    """

    seq_id: int
    tokens: Sequence[int]
    num_prompt: int
    room: int
    salt: str = ""
    states: Array | None = None
    checked: Checked | None = None
    state: RowState | None = None


class LackingError(ModelError):
    """A file of heads has not all that is asked for. `held`: the names of the tensors in it."""

    def __init__(self, message: str, held: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.held = held


class Side(Protocol):
    """A program beside the model's, loaded on the same backend with a KV cache of its own."""

    @property
    def spec(self) -> ModelSpec: ...
    @property
    def backend(self) -> Backend: ...
    @property
    def loaded(self) -> Loaded: ...
    @property
    def layout(self) -> KVLayout: ...


class Host(Protocol):
    """What a proposer may ask of the engine that it is made for, while it is made."""

    spec: ModelSpec  # of the target
    max_num_seqs: int
    max_model_len: int
    kv_tokens: int  # that the target's cache holds
    sampler: Sampler

    def model(self, name: str, kv_tokens: int) -> Side:
        """Another model with the target's tokens. Raises UsageError for one whose tokenizer is another, ModelError as for the target."""
        ...

    def heads(self, path: str | None, kind: str, build: Callable[[ModelSpec, TensorNames], Program], kv_tokens: int) -> Side:
        """Heads on the target's hidden states: `build` says how they are computed; their weights, and the target's where the program
        names them, come from `<kind>.safetensors` in the folder or the file `path` (None: the target's own folder). Raises ModelError
        when there is none, LackingError when there is one with less in it."""
        ...


class Proposer(Protocol):
    """One for an engine, made with (options, host); told of every token by the rows that it is asked about. A sequence may be left out
    of some steps."""

    needs: Needs

    def lookahead(self) -> int:
        """Drafts that it offers for one sequence at most, whatever the room: no more than `MOST`."""
        ...

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        """For each row, in their order; nothing where it has no guess."""
        ...

    def forget(self, seq_id: int) -> None:
        """The sequence has ended, or will come back as if it were new. Unknown ids are ignored."""
        ...
