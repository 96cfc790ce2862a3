"""What `penstock info` tells is what `penstock serve` would do."""
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.compute.backends.reference.backend import Reference
from penstock.core.config import EngineConfig, ServerConfig
from penstock.core.errors import ModelError, UsageError
from penstock.core.hardware import FORMAT, cache_folder, limits_file
from penstock.core.work import StepWork
from penstock.serve.api.metrics import Metrics
from penstock.serve.engine import build as build_module
from penstock.serve.engine import describe as describe_module
from penstock.serve.engine.build import build, choose, find
from penstock.serve.engine.describe import describe
from penstock.serve.engine.machine import Machine, look, processor
from penstock.serve.engine.resolve import activation_bytes, resolve
from penstock.serve.run import options
from tests.tiny import write_model


def test_the_cache_that_is_told_is_the_one_that_would_be_made() -> None:
    for config in (EngineConfig("rill", max_num_seqs=3), EngineConfig("rill", kv_tokens=100)):
        chosen = choose(config, find(config))
        made = resolve(chosen.config, find(config).spec, chosen.holding.held, look())
        found = describe(config)
        assert (found.served_tokens, found.served_told) == (made.engine.kv_tokens, made.reasons["kv_tokens"])
    assert describe(EngineConfig("rill", max_num_seqs=3)).served_tokens == 3 * found.max_model_len


@pytest.mark.parametrize("propose", ["auto", "draft_model:model=rill"])
def test_a_cache_that_shares_memory_with_drafting_is_the_one_that_would_be_made(monkeypatch: pytest.MonkeyPatch, propose: str) -> None:
    config = EngineConfig("brook", propose=propose, max_num_batched_tokens=512)
    model, held = find(config), choose(config, find(config)).holding.held
    memory = held.weight_bytes + activation_bytes(config, model.spec, held) + (32 << 20)
    for module in (build_module, describe_module):
        monkeypatch.setattr(module, "look", lambda: Machine(memory, 2))
    found, plain = describe(config), describe(replace(config, propose=None))
    assert found.served_tokens == build(config).resolved.engine.kv_tokens < plain.served_tokens


def test_a_proposer_that_would_not_be_served_is_not_described() -> None:
    with pytest.raises(UsageError, match="--propose auto:k=3: auto takes no options"):
        describe(EngineConfig("rill", propose="auto:k=3"))
    with pytest.raises(UsageError, match="unknown proposer 'oracle'"):
        describe(EngineConfig("rill", propose="oracle"))


def test_a_cache_that_does_not_fit_is_told_and_the_rest_as_well() -> None:
    found = describe(EngineConfig("rill", kv_tokens=10**12))
    assert found.served_tokens == 0 and "GiB are free" in found.served_told and found.parameters > 0


@pytest.mark.parametrize(("cpus", "threads", "rate"), [(1, None, 1e9), (2, None, 3e9), (2, 1, 1e9), (1, 2, 3e9)])
def test_an_engine_is_held_against_the_limits_of_its_own_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpus: int, threads: int | None, rate: float
) -> None:
    """Which are as many as there are processors, unless others are asked for."""
    for module in (build_module, describe_module):
        monkeypatch.setattr(module, "look", lambda: Machine(8 << 30, cpus))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = limits_file(cache_folder({"XDG_CACHE_HOME": str(tmp_path)}, tmp_path), processor())
    file.parent.mkdir(parents=True)
    one, both = ({"read_bytes_per_s": {"1024": rate}, "ops_per_s": {"fp32": rate, "bf16": rate}} for rate in (1e9, 3e9))
    file.write_text(json.dumps({"format": FORMAT, "machine": "box", "threads": 2, **both, "one_thread": one}))
    config = EngineConfig("rill", threads=threads, kv_tokens=512)
    built, told = build(config, Metrics()), describe(config)
    assert built.hardware is not None and built.hardware.read_bytes_per_s == {1024: rate} and built.hardware.ops_per_s["bf16"] == rate
    assert told.threads == (threads or cpus) and told.ceilings is not None
    assert told.ceilings.decode_tokens_per_s == pytest.approx(rate / told.weight_bytes, rel=0.05)


def test_memory_is_touched_before_anybody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first answer does not pay for pages that the system gives when they are written to: a step of one row has had them."""
    touched: list[Any] = []
    step = Reference.step

    def counted(self: Reference, loaded: Any, batch: Any) -> Any:
        touched.append((loaded.layout.num_blocks, len(batch.tokens)))
        return step(self, loaded, batch)

    monkeypatch.setattr(Reference, "step", counted)
    build(EngineConfig("rill", backend="reference", kv_tokens=512), Metrics())
    assert touched == [(32, 1)]


def test_options_are_told_from_defaults_and_secrets_are_not_told() -> None:
    assert list(options(EngineConfig("rill"))) == list(options(ServerConfig())) == []
    assert list(options(EngineConfig(max_num_seqs=8, prefix_cache=False))) == ["--max-num-seqs 8", "--no-prefix-cache"]
    assert list(options(ServerConfig(api_key="s3cret", no_auth=True, otlp_endpoint="http://u:p@h"))) == [
        "--api-key", "--no-auth", "--otlp-endpoint"]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_keys_and_values_are_told_as_the_model_has_them_and_as_the_backend_keeps_them(backend: str, dtype: str) -> None:
    if backend == "cpu":
        pytest.importorskip("penstock._native")
    config = EngineConfig("rill", backend=backend, dtype=dtype)
    held, told = choose(config, find(config)).holding.held, describe(config)
    assert (told.held_kv_dtype, told.held_kv_bytes_per_token) == (held.dtype, held.kv_token_bytes)
    whole = {"float32": 4, "float16": 2}
    assert told.kv_dtype == dtype and told.kv_bytes_per_token * whole[held.dtype] == held.kv_token_bytes * whole[dtype]
    assert f"keys and values in {held.dtype};" in told.reasons["fits"]


@pytest.mark.parametrize("kv_dtype", ["nonsense", "float16"])
def test_keys_and_values_are_refused_in_a_format_that_they_would_not_be_kept_in(kv_dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not there is anything else for which the model would not be served."""
    config = EngineConfig("rill", backend="reference", dtype="float32", kv_dtype=kv_dtype)
    said = f"^--kv-dtype {kv_dtype}: with --dtype float32, the reference backend keeps keys and values in float32$"
    with pytest.raises(UsageError, match=said):
        describe(config)

    def refuse(program: Any) -> None:
        raise ModelError("nothing serves this")

    monkeypatch.setattr(describe_module, "check_served", refuse)
    with pytest.raises(UsageError, match=said):
        describe(config)


def test_heads_that_are_padded_are_counted_so(tmp_path: Path) -> None:
    """Heads of 24 take what 32 do, in the cache and whenever they are read: 2 layers, 2 heads of keys and of values, 4 bytes."""
    pytest.importorskip("penstock._native")
    config = EngineConfig(str(write_model(tmp_path, head_dim=24)), backend="cpu", kv_tokens=64)
    chosen, padded = choose(config, find(config)), 2 * 2 * 2 * 32 * 4
    assert describe(config).kv_bytes_per_token == build(config).kv_bytes_per_token == chosen.holding.held.kv_token_bytes == padded
    assert chosen.holding.price.count(StepWork(((1, 7),), 1)).kv_bytes == (1 + 7) * padded  # written, read
    plain = replace(config, backend="reference")
    assert describe(plain).kv_bytes_per_token == build(plain).kv_bytes_per_token == padded * 24 // 32
