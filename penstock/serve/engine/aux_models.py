"""The models that proposers need beside the target: draft models and heads, loaded on the same backend."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.compute.backends.contract import Backend, KVLayout
from penstock.compute.decoding.propose.contract import MissingHeadsError
from penstock.compute.decoding.sampler import Sampler
from penstock.compute.models.decoder import build as build_program
from penstock.compute.models.heads import stamp
from penstock.compute.models.load import hub
from penstock.compute.models.load.checkpoint import open_checkpoint
from penstock.compute.models.load.joined import JoinedCheckpoint
from penstock.compute.models.load.tensorfile import TensorFile
from penstock.compute.models.load.weights import load_weights
from penstock.compute.models.names import TensorNames
from penstock.compute.program import Program
from penstock.compute.quant.contract import QuantScheme
from penstock.core.config import EngineConfig
from penstock.core.errors import UsageError
from penstock.core.modelspec import ModelSpec
from penstock.serve.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Own:
    """The engine's own model, as it was loaded."""

    path: Path  # a folder or a GGUF file
    backend: Backend
    loaded: Any
    dtype: str
    scheme: QuantScheme
    tokenizer: Tokenizer


@dataclass(frozen=True, slots=True)
class LoadedAuxModel:
    """A propose.contract.AuxModel."""

    spec: ModelSpec
    backend: Backend
    loaded: Any
    layout: KVLayout


class EngineHost:
    """A propose.contract.Host."""

    def __init__(self, config: EngineConfig, find: Callable[[EngineConfig], Any], found: Any, own: Own, sampler: Sampler) -> None:
        """`config`: resolved. `find` reads a model's config; `found` is the one of the engine's own model."""
        self.own = own
        self.sampler = sampler
        self.spec: ModelSpec = found.spec
        self.max_num_seqs = config.max_num_seqs
        self.max_num_batched_tokens = config.max_num_batched_tokens
        self.kv_tokens = config.kv_tokens or 0
        self._config = config
        self._find = find
        self._names: TensorNames = found.family.names

    def model(self, name: str, kv_tokens: int) -> LoadedAuxModel:
        """Raises UsageError for a model with another tokenizer, ModelError for one that cannot be loaded."""
        found = self._find(replace(self._config, model=name, revision=None))
        path = hub.fetch_weights(found.source)
        if (token := differing(Tokenizer.load(path), self.own.tokenizer)) is not None:
            raise UsageError(f"{name} cannot draft for {self._config.model}: their tokenizers differ, for example in {token!r}")
        program = build_program(found.spec, found.family.names)
        weights = load_weights(program, open_checkpoint(path), self.own.dtype, self.own.scheme)
        return self._load(found.spec, program, weights, kv_tokens)

    def head_tensors(self, path: str | None, kind: str) -> Sequence[str]:
        return head_tensors(heads_file(path, kind, self.own.path, self._config.model))

    def heads(self, path: str | None, kind: str, build: Callable[[ModelSpec, TensorNames], Program], kv_tokens: int) -> LoadedAuxModel:
        """Raises UsageError if there is no file of heads or it was trained for a model of another shape, MissingHeadsError if the file
        lacks a tensor."""
        file = heads_file(path, kind, self.own.path, self._config.model)
        joined = JoinedCheckpoint(open_checkpoint(self.own.path), file)
        stamp.check(joined.metadata, file, kind, self.spec, self._config.model)
        program = build(self.spec, self._names)
        own = {name for weight in program.weights.values() for name in weight.tensors if name.startswith(f"{kind}.")}
        if lacking := sorted(own.difference(joined.names())):
            raise MissingHeadsError(f"--propose {self._config.propose}: {file} has no {lacking[0]}", tuple(joined.names()))
        weights = load_weights(program, joined, self.own.dtype, self.own.scheme, whole=False)
        return self._load(self.spec, program, weights, kv_tokens)

    def _load(self, spec: ModelSpec, program: Program, weights: Any, kv_tokens: int) -> LoadedAuxModel:
        size, backend = self._config.block_size, self.own.backend
        layout = KVLayout(-(-kv_tokens // size), size, backend.dtype)
        return LoadedAuxModel(spec, backend, backend.load(program, weights, layout, self._config.threads), layout)


def heads_file(path: str | None, kind: str, own: Path, model: str) -> Path:
    """The file of a model's heads: `path` or in the folder `path`, else in the model's folder `own`. Raises UsageError if there is none."""
    file = Path(path) if path is not None else own.parent if own.is_file() else own
    if not file.is_file():
        file = file / f"{kind}.safetensors"
    if not file.is_file():
        raise UsageError(f"{file} is missing: `penstock train-heads {model} --kind {kind} --text TEXTS --out FOLDER` makes it")
    return file


def head_tensors(file: Path) -> Sequence[str]:
    """The names of the tensors of heads. Raises ModelError for a file that cannot be read."""
    return tuple(TensorFile(file).names())


def differing(one: Tokenizer, other: Tokenizer) -> str | None:
    """A token that two vocabularies do not have under the same id."""
    ours, theirs = (set(each.backend.get_vocab(with_added_tokens=True).items()) for each in (one, other))
    return min((token for token, _ in ours ^ theirs), default=None)
