"""The interface of proposers: what a proposer sees of a sequence, and the drafts that it returns.

The target model verifies all drafts (accept.py), so a wrong draft costs time and never changes the output. A proposer is one file in this
folder and one line in its table: a class with `Options` (a dataclass of its command-line options) that implements `Proposer`.
"""
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.compute.arrays import Array
from penstock.compute.backends.contract import Backend, KVLayout, Loaded
from penstock.compute.decoding.sampler import Sampler
from penstock.compute.decoding.state import RowState
from penstock.compute.models.names import TensorNames
from penstock.compute.program import Program
from penstock.core.errors import UsageError
from penstock.core.message import message
from penstock.core.modelspec import ModelSpec
from penstock.core.needs import Needs

MAX_DRAFTS = 4096  # of one sequence in a step; also the upper limit of a proposer's options that are sizes


@message
class Drafts:
    """Drafted tokens that follow a sequence's last token: a chain, or a tree.

    `parents`: for each draft the index of the draft that it follows, lower than its own, or -1 if it follows the last token. None: a
    chain, in which draft i follows draft i - 1. `is_reading`: there are none yet, since the sequence has more tokens that the proposer
    has not seen than it reads at once; it reads on when it is asked again, and is shown the same hidden states and later ones then.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None
    is_reading: bool = False


@message
class Verification:
    """The outcome of verifying a sequence's drafts.

    `path`: indices of the accepted drafts, in order. `choices` [1 + drafts]: the tokens that the target chose after the last token and
    after each draft, accepted or not; empty where a choice depends on the ones before it (penalties, grammars).
    """

    drafts: Drafts
    path: tuple[int, ...]
    choices: tuple[int, ...]


@message
class Draftable:
    """A sequence that the next step continues, as a proposer sees it.

    tokens: prompt (`num_prompt` tokens) and output, including the token just chosen. A proposer must not change the list.
    room: the maximum number of drafts. 0: the sequence has ended, and is shown once more, to a proposer that needs whole outputs.
    salt: the request's `cache_salt`. Tokens of one sequence may be proposed only to sequences of the same salt.
    states: if the proposer needs the buffer "hidden", the target's hidden states [n, width] (float32) of the n tokens before the newest
        one, as far as steps have output them without a gap since the last proposal for this sequence that was not `is_reading`. Steps
        output none for a cached prefix, nor while nothing is to be asked for long.
    verification: if the proposer needs it, the outcome of its drafts in the step just made; None if it had none.
    state: the sampling state of the sequence, for `Sampler.guess`.
    sure: only drafts that are nearly always accepted are wanted, as far as the proposer can tell which ones are.
    """

    seq_id: int
    tokens: Sequence[int]
    num_prompt: int
    room: int
    salt: str = ""
    states: Array | None = None
    verification: Verification | None = None
    state: RowState | None = None
    sure: bool = False


class MissingHeadsError(UsageError):
    """A file of heads lacks some of the tensors that were requested. `present`: the names of the tensors in it."""

    def __init__(self, message: str, present: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.present = present


class AuxModel(Protocol):
    """An auxiliary model (a draft model or trained heads), loaded on the target's backend with a KV cache of its own."""

    @property
    def spec(self) -> ModelSpec: ...
    @property
    def backend(self) -> Backend: ...
    @property
    def loaded(self) -> Loaded: ...
    @property
    def layout(self) -> KVLayout: ...


class Host(Protocol):
    """The engine, as a proposer sees it while it is constructed."""

    spec: ModelSpec  # of the target
    max_num_seqs: int
    max_num_batched_tokens: int  # of a step of the target; what one has missed is read in steps no longer, since everybody waits for them
    kv_tokens: int  # capacity of the target's KV cache
    sampler: Sampler

    def model(self, name: str, kv_tokens: int) -> AuxModel:
        """Loads another model with a KV cache of `kv_tokens` tokens. Raises UsageError if its tokenizer differs from the target's,
        ModelError if it cannot be loaded."""
        ...

    def head_tensors(self, path: str | None, kind: str) -> Sequence[str]:
        """The names of the tensors in the file that `heads` would read. Raises UsageError if there is no such file, ModelError for one that
        cannot be read."""
        ...

    def heads(self, path: str | None, kind: str, build: Callable[[ModelSpec, TensorNames], Program], kv_tokens: int) -> AuxModel:
        """Loads heads that take the target's hidden states as input, with a KV cache of `kv_tokens` tokens.

        `build` returns their program. Their weights are read from the file `path`, or from `<kind>.safetensors` in the folder `path` (None:
        the target's folder); weights of the target that the program names, such as the embeddings, are shared. Raises UsageError if there
        is no such file or it was trained for another model, MissingHeadsError if it lacks a tensor of the program.
        """
        ...


class Proposer(Protocol):
    """One per engine, constructed with (options, host). It sees a sequence only in the rows passed to `propose`, which may omit it in any
    number of steps."""

    needs: Needs

    def lookahead(self) -> int:
        """The maximum number of drafts that it returns for one sequence, whatever the room; at most MAX_DRAFTS."""
        ...

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        """The drafts for each row, in the order of `rows`; empty `Drafts` where it has none. Called once per step, for all sequences that
        may have drafts in the next one."""
        ...

    def forget(self, seq_id: int) -> None:
        """Drops the state of a sequence that has ended, or that will be passed again as a new one. Unknown ids are ignored."""
        ...
