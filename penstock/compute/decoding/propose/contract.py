"""The interface of proposers: what they see of a sequence, and the drafts that they return. Drafts change the speed, never the output."""
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

MAX_DRAFTS = 4096  # of one sequence in a step; also the limit of sizes in a proposer's options


@message
class Drafts:
    """Drafted tokens behind a sequence's last token. `parents`: for each draft the index of the draft that it follows, which is lower than
    its own, or -1 if it follows the last token; None: the drafts are a chain."""

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None


@message
class Checked:
    """The outcome of verifying a sequence's drafts. `path`: indices of the accepted drafts, in order. `choices` [1 + drafts]: what the
    model chose after the last token and after each draft, accepted or not; empty where choices depend on earlier ones (penalties,
    grammars)."""

    drafts: Drafts
    path: tuple[int, ...]
    choices: tuple[int, ...]


@message
class Draftable:
    """A sequence that the next step continues.

    `tokens`: prompt (`num_prompt` tokens) and output, including the token just chosen. A proposer must not change the list.
    `room`: the number of drafts at most. `salt`: output of one sequence may be proposed to sequences of the same salt only.
    `states`: if the proposer needs the buffer "hidden", the model's hidden states [n, width] (float32) of the n tokens before the newest
    one, as far as they were computed since the last proposal for this sequence; those of a prefix found in the cache never are.
    `checked`: the outcome of its drafts in the step just made; None if it had none. `state`: the state that its tokens are sampled with,
    for `Sampler.guess`.
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
    """A program beside the target's, loaded on the same backend, with a KV cache of its own."""

    @property
    def spec(self) -> ModelSpec: ...
    @property
    def backend(self) -> Backend: ...
    @property
    def loaded(self) -> Loaded: ...
    @property
    def layout(self) -> KVLayout: ...


class Host(Protocol):
    """What a proposer may request from its engine while it is constructed."""

    spec: ModelSpec  # of the target
    max_num_seqs: int
    max_model_len: int
    kv_tokens: int  # capacity of the target's cache
    sampler: Sampler

    def model(self, name: str, kv_tokens: int) -> Side:
        """Loads another model. Raises UsageError if its tokenizer is not the target's, ModelError as for the target."""
        ...

    def heads(self, path: str | None, kind: str, build: Callable[[ModelSpec, TensorNames], Program], kv_tokens: int) -> Side:
        """Loads heads on the target's hidden states. `build` makes their program. Their weights come from the file `path`, or from
        `<kind>.safetensors` in the folder `path` (None: the target's folder); weights of the target that the program names are shared.
        Raises ModelError if there is no such file, LackingError if it has less in it."""
        ...


class Proposer(Protocol):
    """One per engine, constructed with (options, host). It sees a sequence's tokens only in the rows passed to `propose`, which may leave
    the sequence out in any number of steps."""

    needs: Needs

    def lookahead(self) -> int:
        """The most drafts that it returns for one sequence, whatever the room; at most MAX_DRAFTS."""
        ...

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        """Drafts for each row, in their order; empty `Drafts` where it has none."""
        ...

    def forget(self, seq_id: int) -> None:
        """The sequence has ended, or will be shown again as a new one. Unknown ids are ignored."""
        ...
