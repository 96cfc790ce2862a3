"""The memory that drafting takes besides the model, known before any weight is read: the proposer is constructed for a host that only adds
it up."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.compute.backends.contract import Backend, KVLayout
from penstock.compute.decoding.propose.contract import MAX_DRAFTS, Host
from penstock.compute.decoding.sampler import Sampler
from penstock.compute.models.decoder import build as build_program
from penstock.compute.models.load.weights import Forming
from penstock.compute.models.names import TensorNames
from penstock.compute.program import Program
from penstock.compute.quant.contract import QuantScheme
from penstock.compute.runner.drafter import STATE_BYTES
from penstock.core.config import EngineConfig
from penstock.core.errors import UsageError
from penstock.core.modelspec import ModelSpec
from penstock.serve.engine.aux_models import LoadedAuxModel, head_tensors, heads_file
from penstock.serve.engine.holding import holding

SAMPLE_BLOCKS = 64


@dataclass(frozen=True, slots=True)
class DraftMemory:
    """Fixed bytes, and bytes per token in the target's KV cache. `drafts`: of a sequence at once, at most."""

    fixed: int = 0
    per_token: int = 0
    drafts: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """The model that is drafted for: its config as it was read, and the form in which its weights will be held."""

    found: Any  # build.Found
    backend: Backend
    dtype: str
    scheme: QuantScheme


class CountingHost:
    """A propose.contract.Host that loads nothing: `num_bytes` adds up what would be loaded."""

    def __init__(self, config: EngineConfig, find: Callable[[str], Any], target: Target, kv_tokens: int) -> None:
        """`find` reads the config of another model. `kv_tokens`: the assumed size of the target's cache."""
        self.spec: ModelSpec = target.found.spec
        self.max_num_seqs = config.max_num_seqs
        self.max_num_batched_tokens = config.max_num_batched_tokens
        self.kv_tokens = kv_tokens
        self.sampler = Sampler(())
        self.num_bytes = 0
        self._find = find
        self._block_size = config.block_size
        self._model = config.model
        self._target = target

    def model(self, name: str, kv_tokens: int) -> LoadedAuxModel:
        """Raises ModelError if there is no such model."""
        found = self._find(name)
        program = build_program(found.spec, found.family.names)
        held = holding(program, found.source, self._target.backend, Forming(self._target.dtype, self._target.scheme)).held
        return self._count(found.spec, program, held.weight_bytes, kv_tokens)

    def head_tensors(self, path: str | None, kind: str) -> Sequence[str]:
        return head_tensors(heads_file(path, kind, self._target.found.source.path, self._model))

    def heads(self, path: str | None, kind: str, build: Callable[[ModelSpec, TensorNames], Program], kv_tokens: int) -> LoadedAuxModel:
        """Raises UsageError if there are no such heads."""
        heads_file(path, kind, self._target.found.source.path, self._model)
        program, target = build(self.spec, self._target.found.family.names), self._target
        forms = Forming(target.dtype, target.scheme).forms(program)
        weights = sum(target.backend.held_bytes(program, forms).values())
        return self._count(self.spec, program, weights, kv_tokens)

    def _count(self, spec: ModelSpec, program: Program, weight_bytes: int, kv_tokens: int) -> LoadedAuxModel:
        backend = self._target.backend
        layout = KVLayout(-(-kv_tokens // self._block_size), self._block_size, backend.dtype)
        slots = layout.num_blocks * layout.block_size
        self.num_bytes += weight_bytes + slots * backend.kv_token_bytes(program.kv)
        return LoadedAuxModel(spec, backend, None, layout)


def draft_memory(make: Callable[[Host], Any], host: Callable[[int], CountingHost], block_size: int) -> DraftMemory:
    """The memory of the proposer that `make` constructs for a host; `host` makes a host for a cache of so many tokens. Raises whatever
    `make` raises, and UsageError for a proposer that drafts more than MAX_DRAFTS."""
    sample = SAMPLE_BLOCKS * block_size
    empty, filled = host(0), host(sample)
    for each in (empty, filled):
        proposer = make(each)
    most = proposer.lookahead()
    if most > MAX_DRAFTS:
        raise UsageError(f"the proposer would draft up to {most:,} tokens of a sequence at once; at most {MAX_DRAFTS:,} can be")
    states = 4 * empty.spec.hidden_size * proposer.needs.num_states * empty.max_num_seqs if proposer.needs.buffers else 0
    return DraftMemory(empty.num_bytes + min(states, STATE_BYTES), -(-(filled.num_bytes - empty.num_bytes) // sample), most)
