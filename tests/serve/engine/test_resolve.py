"""Gaps in a config are filled with reasons; what does not go together or does not fit is refused with the number that would."""
import re
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import penstock
from penstock.compute.decoding.propose import TABLE as propose_table
from penstock.compute.models.decoder import build as build_program
from penstock.compute.runner.drafter import STATE_BYTES
from penstock.core.config import EngineConfig
from penstock.core.errors import CapacityError, PenstockError, UsageError
from penstock.core.modelspec import LayerSpec, ModelSpec, RopeSpec
from penstock.core.size import size
from penstock.serve.engine.build import build, choose, drafting_takes, find
from penstock.serve.engine.draft_memory import DraftMemory
from penstock.serve.engine.holding import Held
from penstock.serve.engine.machine import Machine, look
from penstock.serve.engine.resolve import activation_bytes, resolve

SPEC = ModelSpec(1000, 64, 4, 2, 16, 128, (LayerSpec(rope=RopeSpec(dim=16)),) * 2, max_position=512, dtype="bfloat16")
KV_BYTES = 2 * 2 * 2 * 16 * 4  # a token's keys and values in float32
HELD = Held(("float32", "bfloat16", "float16"), "float32", weight_bytes=SPEC.num_parameters() * 4, least_share=1 << 18,
            kv_token_bytes=KV_BYTES)
ROOMY = Machine(memory_bytes=8 << 30, num_cpus=2)


def test_gaps_are_filled_and_explained() -> None:
    found = resolve(EngineConfig(), SPEC, HELD, ROOMY)
    engine = found.engine
    assert (engine.dtype, engine.kv_dtype, engine.threads) == ("bfloat16", "float32", 1)
    assert (engine.max_model_len, engine.kv_tokens) == (512, 64 * 512)
    assert set(found.reasons) == {"dtype", "kv_dtype", "max_model_len", "kv_tokens", "threads"}
    assert resolve(EngineConfig(), SPEC, HELD, ROOMY) == found


@pytest.mark.parametrize("fields", [{}, {"propose": "auto"}, {"propose": "ngram", "accept": "typical"}, {"order": "deadline"}])
def test_what_is_resolved_resolves_to_itself(fields: dict[str, str]) -> None:
    engine = resolve(EngineConfig(**fields), SPEC, HELD, ROOMY).engine
    assert resolve(engine, SPEC, HELD, ROOMY).engine == engine


@pytest.mark.parametrize(("vocab", "cpus", "threads"), [
    (4096, 64, 1), (8192, 64, 2), (8192, 2, 2), (8192, 1, 1), (12_000, 64, 2), (152_000, 64, 37), (400_000, 64, 64)])
def test_each_thread_has_its_share_of_the_largest_matrix(vocab: int, cpus: int, threads: int) -> None:
    """64 values a row of the vocabulary, 2**18 values a thread."""
    found = resolve(EngineConfig(), replace(SPEC, vocab_size=vocab), HELD, Machine(8 << 30, cpus))
    assert found.engine.threads == threads
    assert found.reasons["threads"] == ("one for each processor" if threads == cpus else
                                        f"this model's products are too small for more of the {cpus} processors")


def test_threads_have_a_bound_that_chosen_ones_keep() -> None:
    found = resolve(EngineConfig(), replace(SPEC, vocab_size=10**7), HELD, Machine(32 << 30, 1536))
    assert found.engine.threads == 1024 and found.reasons["threads"] == "as many as there may be, for 1,536 processors"
    assert resolve(EngineConfig(threads=1024), SPEC, HELD, ROOMY).engine.threads == 1024


@pytest.mark.parametrize("threads", [1025, 1 << 31])
def test_too_many_threads_are_refused_before_any_is_made(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr("penstock.serve.engine.build.load_weights", None)
    with pytest.raises(UsageError, match=f"--threads must be from 1 to 1024, not {threads}"):
        build(EngineConfig(model="rill", quant="int8", threads=threads))


def test_threads_that_share_processors_are_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("penstock.serve.engine.build.num_cpus", lambda: 1)
    build(EngineConfig(model="rill", threads=1, kv_tokens=64))
    assert not caplog.messages
    build(EngineConfig(model="rill", threads=2, kv_tokens=64))
    assert caplog.messages == [
        "--threads 2 is more than the 1 processor here: threads that share one wait for each other, which is slow"]


def test_logits_are_counted_of_the_rows_that_a_step_samples_or_scores() -> None:
    few, many = EngineConfig(max_num_seqs=8), EngineConfig(max_num_seqs=8, max_num_batched_tokens=16)
    large = replace(SPEC, vocab_size=150_000)
    kept = 2 * 256  # of two steps before
    assert activation_bytes(few, large, HELD) - activation_bytes(many, large, HELD) == (8 + 256 + kept - 2 * 16) * 150_000 * 4
    assert activation_bytes(few, large, HELD, 8) - activation_bytes(few, large, HELD) == 8 * 8 * 150_000 * 4


def test_rows_are_counted_beyond_a_floor() -> None:
    wide, most = replace(HELD, row_bytes=131_072), 8192
    few, many = (activation_bytes(EngineConfig(max_num_batched_tokens=rows), SPEC, wide) for rows in (512, most))
    assert few == activation_bytes(EngineConfig(), SPEC, HELD) and many - few == most * 131_072 - (64 << 20)


def test_the_cache_takes_what_memory_leaves() -> None:
    free = 10 << 20
    config = EngineConfig(max_num_seqs=4096)
    small = Machine(SPEC.num_parameters() * 4 + activation_bytes(config, SPEC, HELD) + free, 2)
    found = resolve(config, SPEC, HELD, small).engine
    assert found.kv_tokens == int(free * 0.6) // KV_BYTES // 16 * 16


def test_a_small_cache_shortens_the_context_unless_it_was_asked_for() -> None:
    found = resolve(EngineConfig(kv_tokens=100), SPEC, HELD, ROOMY)
    assert found.engine.kv_tokens == found.engine.max_model_len == 96 and "96" in found.reasons["max_model_len"]
    assert resolve(EngineConfig(kv_tokens=100, max_model_len=300), SPEC, HELD, ROOMY).engine.max_model_len == 300


def test_dynamic_rope_may_be_stretched() -> None:
    stretched = replace(SPEC, layers=(LayerSpec(rope=RopeSpec(dim=16, scaling="dynamic", factor=2.0, original_max_position=512)),))
    assert resolve(EngineConfig(max_model_len=900), stretched, HELD, ROOMY).engine.max_model_len == 900


@pytest.mark.parametrize(("config", "says"), [
    (EngineConfig(max_model_len=513), "513.*512"),
    (EngineConfig(kv_tokens=15), "15 is less than one block of 16"),
    (EngineConfig(dtype="float8"), "float8.*float32, bfloat16, float16"),
    (EngineConfig(quant="int4"), "int4"),
    (EngineConfig(kv_dtype="int8"), "int8.*float32"),
    (EngineConfig(dtype="float16", kv_dtype="float16"), "--kv-dtype float16: with --dtype float16, .* keeps keys and values in float32"),
    (EngineConfig(block_size=0), "--block-size must be at least 1, not 0"),
    (EngineConfig(threads=-1), "--threads must be from 1 to 1024, not -1"),
    (EngineConfig(threads=1025), "--threads must be from 1 to 1024, not 1025"),
])
def test_contradictions_are_refused(config: EngineConfig, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        resolve(config, SPEC, HELD, ROOMY)


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    activations = activation_bytes(EngineConfig(), SPEC, HELD)
    needs = f"brook needs 789.2 KiB for its weights with --dtype bfloat16 --quant none and {size(activations)} for activations"
    with pytest.raises(CapacityError, match=f"^{needs}, but 1 MiB of memory are free"):
        resolve(EngineConfig(), SPEC, HELD, Machine(1 << 20, 2))
    with pytest.raises(CapacityError, match="^1 KiB of memory are left for the KV cache, not enough for one block of 16 tokens"):
        resolve(EngineConfig(), SPEC, HELD, Machine(SPEC.num_parameters() * 4 + activations + 1024, 2))
    fits = ((1 << 30) - SPEC.num_parameters() * 4 - activations) // KV_BYTES // 16 * 16
    with pytest.raises(CapacityError, match=f"{fits:,} tokens would fit"):
        resolve(EngineConfig(kv_tokens=10**8), SPEC, HELD, Machine(1 << 30, 2))


@pytest.mark.parametrize(("config", "says"), [
    (EngineConfig(backend="nowhere"), "unknown backend 'nowhere'; known: auto, cpu, reference"),
    (EngineConfig(backend="reference:colour=red"), "no option 'colour'"),
    (EngineConfig(device="cuda"), "no kernels of Penstock compute on .cuda. yet, and numpy does not: --backend reference:arrays=torch may"),
    (EngineConfig(batching="sometimes"), "unknown batching mode"),
    (EngineConfig(order="random"), "unknown order"),
    (EngineConfig(evict="fifo"), "unknown eviction policy"),
    (EngineConfig(propose="guess"), "unknown proposer 'guess'; known: auto, "),
    (EngineConfig(backend="reference", propose="eagle"),
     "needs tree masks in attention, which --backend reference does not have; there it can be auto, .*ngram, suffix"),
    (EngineConfig(propose="auto:k=3"), "auto takes no options; name a proposer"),
])
def test_unknown_plugins_are_refused_with_the_known_ones(config: EngineConfig, says: str) -> None:
    with pytest.raises(PenstockError, match=says):
        build(config)


def test_holding_says_what_the_backend_computes_in() -> None:
    def held(**options: str) -> Held:
        config = EngineConfig(**options)
        return choose(config, find(config)).holding.held

    assert held(dtype="bfloat16", backend="reference").dtype == "float32"
    pytest.importorskip("torch")
    assert held(backend="reference:arrays=torch", dtype="bfloat16").dtype == "bfloat16"


def test_the_machine_has_memory_and_processors() -> None:
    assert look().memory_bytes > 1 << 20 and look().num_cpus >= 1


@pytest.mark.parametrize("propose", ["auto", "ngram:n=3"])
def test_drafts_are_made_where_they_pay_unless_always_is_asked_for(propose: str) -> None:
    def found(**given: str) -> str:
        return resolve(EngineConfig(propose=propose, **given), SPEC, HELD, ROOMY).engine.draft_control

    assert found() == "patient"
    assert found(draft_control="always") == "always"
    with pytest.raises(UsageError, match="--draft-control never: choose one of patient, always"):
        found(draft_control="never")


def test_what_drafts_is_counted_when_the_cache_is_sized() -> None:
    free = 10 << 20
    config = EngineConfig(max_num_seqs=4096, propose="draft_model:model=x")
    activations = activation_bytes(config, SPEC, HELD)
    machine = Machine(SPEC.num_parameters() * 4 + activations + free, 2)
    found = resolve(config, SPEC, HELD, machine, DraftMemory(4 << 20, KV_BYTES))
    assert found.engine.kv_tokens == int((6 << 20) * 0.6) // (2 * KV_BYTES) // 16 * 16
    assert f"{KV_BYTES} of {2 * KV_BYTES:,} bytes a token for drafting" in found.reasons["kv_tokens"]
    says = f", 10 MiB for --propose draft_model:model=x and {size(activations)} for activations, but {size(machine.memory_bytes)} of"
    with pytest.raises(CapacityError, match=says):
        resolve(config, SPEC, HELD, machine, DraftMemory(free, 0))
    fits = (6 << 20) // (2 * KV_BYTES) // 16 * 16
    with pytest.raises(CapacityError, match=f"{KV_BYTES} of {2 * KV_BYTES:,} bytes a token for drafting.*: {fits:,} tokens would fit"):
        resolve(replace(config, kv_tokens=fits + 16), SPEC, HELD, machine, DraftMemory(4 << 20, KV_BYTES))


@pytest.mark.parametrize("propose", ["draft_model:model=rill", "draft_model:model=rill,kv_tokens=100", "eagle", "eagle:width=2,depth=3",
                                     "medusa", "medusa:heads=2", "ngram", "suffix", "lookahead"])
@pytest.mark.parametrize("quant", ["none", "int8"])
def test_what_drafts_is_as_large_as_it_was_told_to_be(propose: str, quant: str) -> None:
    config = EngineConfig(propose=propose, quant=quant, kv_tokens=320, max_num_seqs=5, weight_cache=False)
    found = find(config)
    told = drafting_takes(config, found, choose(config, found))
    built = build(config)
    aux = getattr(built.engine._runner._drafter._proposer._proposer, "_aux", None)  # type: ignore[attr-defined]
    needs = propose_table.load(propose.partition(":")[0]).needs
    taken = 5 * needs.num_states * found.spec.hidden_size * 4 if needs.buffers else 0
    if aux is not None:
        taken += aux.loaded.weight_bytes + aux.loaded.kv_bytes_per_token * aux.layout.num_blocks * aux.layout.block_size
    assert told.fixed + 320 * told.per_token == taken


@pytest.mark.parametrize(("propose", "drafts"), [("auto", 8), ("ngram:n=3,k=5", 5), ("eagle:width=2,depth=3", None), (None, 0)])
def test_rows_of_drafts_are_told(propose: str | None, drafts: int | None) -> None:
    config = EngineConfig(model="brook", propose=propose)
    found = find(config)
    told = drafting_takes(config, found, choose(config, found)).drafts
    assert told == drafts if drafts is not None else told > 3


def test_hidden_states_of_many_sequences_take_no_more_than_they_may() -> None:
    config = EngineConfig(propose="eagle", max_num_seqs=5000)
    found = find(config)
    fixed = drafting_takes(config, found, choose(config, found)).fixed
    assert STATE_BYTES < fixed < 2 * STATE_BYTES  # all of them would take 20 GB


def test_a_draft_model_is_held_in_its_target_s_form() -> None:
    held = []
    for quant in ("none", "int8", "int4:group=64"):
        config = EngineConfig(propose="draft_model:model=rill", quant=quant, kv_tokens=320, weight_cache=False)
        held.append(build(config).engine._runner._drafter._proposer._proposer._aux.loaded.weight_bytes)  # type: ignore[attr-defined]
    assert held[1] < 0.6 * held[0] and held[2] < 0.8 * held[1]


def test_a_drafter_that_does_not_fit_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(CapacityError, match=r", [0-9.]+ GiB for --propose draft_model:model=rill,kv_tokens=1000000000 and "):
        build(EngineConfig(propose="draft_model:model=rill,kv_tokens=1000000000"))


def test_heads_that_are_missing_are_told_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.serve.engine.build.load_weights", None)
    made = "`penstock train-heads rill --kind eagle --text TEXTS --out FOLDER` makes it"
    with pytest.raises(UsageError, match=rf"eagle\.safetensors is missing: {made}"):
        build(EngineConfig(model="rill", propose="eagle"))


@pytest.mark.parametrize(("propose", "told"), [
    ("suffix:remembered=100000000000000000000", "suffix: remembered must be from 0 to 1,000,000,000, not"),
    ("ngram:k=300000", "ngram: k must be from 1 to 4,096, not 300,000"),
    ("lookahead:window=4000,n=4000", "the proposer would draft up to 16,011,996 tokens of a sequence at once; at most 4,096 can be"),
    ("eagle:kv_tokens=100000000000", "eagle: kv_tokens must be from 0 to 1,000,000,000, not"),
    ("medusa:path=", "proposer medusa: path is given no value"),
])
def test_options_of_a_size_that_cannot_be_are_refused_before_anything_is_loaded(
        monkeypatch: pytest.MonkeyPatch, propose: str, told: str) -> None:
    monkeypatch.setattr("penstock.serve.engine.build.load_weights", None)
    with pytest.raises(UsageError, match=re.escape(told)):
        build(EngineConfig(model="brook", propose=propose))


def test_a_cache_of_drafts_that_does_not_fit_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.serve.engine.build.load_weights", None)
    with pytest.raises(CapacityError, match=r", [0-9.]+ GiB for --propose draft_model:kv_tokens=1000000000 and .* of memory are free"):
        build(EngineConfig(model="brook", propose="draft_model:kv_tokens=1000000000"))


def test_more_heads_than_were_trained_are_refused() -> None:
    with pytest.raises(UsageError, match=r"medusa:heads=9: .*has no medusa\.4\.\S+: it holds 4 heads, 9 are asked for \(heads=4 "):
        build(EngineConfig(model="brook", propose="medusa:heads=9"))


def test_a_file_of_heads_is_taken_as_it_was_trained(tmp_path: Path) -> None:
    """All of its heads, whatever their number, and what they take is known before."""
    with safe_open(Path(penstock.__file__).parent / "bundled/brook/medusa.safetensors", "np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys() if not name.startswith(("medusa.2.", "medusa.3."))}  # noqa: SIM118
        save_file(tensors, tmp_path / "medusa.safetensors", file.metadata())
    config = EngineConfig(model="brook", propose=f"medusa:path={tmp_path}", kv_tokens=320)
    found = find(config)
    aux = build(config).engine._runner._drafter._proposer._proposer._aux  # type: ignore[attr-defined]
    states = config.max_num_seqs * found.spec.hidden_size * 4
    assert drafting_takes(config, found, choose(config, found)).fixed == aux.loaded.weight_bytes + states
    assert {name for name in aux.loaded.program.weights if name.endswith(".norm")} == {"0.norm", "1.norm"}
    with pytest.raises(UsageError, match=r"it holds 2 heads, 3 are asked for \(heads=2 takes those\)"):
        build(replace(config, propose=f"{config.propose},heads=3"))


@pytest.mark.parametrize("fields", [{"accept": "typical:epsilon=0.2"}, {"draft_control": "always"}])
def test_what_says_nothing_without_a_proposer_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(fields.values()))} has no effect without --propose"):
        build(EngineConfig(model="rill", **fields))


@pytest.mark.parametrize(("rope", "most"), [
    (RopeSpec(dim=16, scaling="linear", factor=4.0), 2048),
    (RopeSpec(dim=16, scaling="yarn", factor=4.0, original_max_position=256), 1024),
    (RopeSpec(dim=16, scaling="yarn", factor=4.0, original_max_position=64), 512),
    (RopeSpec(dim=16, scaling="longrope", factor=4.0, original_max_position=128), 512),
])
def test_a_context_may_be_as_long_as_its_scaling_allows(rope: RopeSpec, most: int) -> None:
    spec = replace(SPEC, layers=(LayerSpec(rope=rope), LayerSpec(rope=None)))
    assert resolve(EngineConfig(max_model_len=most), spec, HELD, ROOMY).engine.max_model_len == most
    with pytest.raises(UsageError, match=f"the model was made for {most} tokens, by max_position_embeddings and rope_scaling"):
        resolve(EngineConfig(max_model_len=most + 1), spec, HELD, ROOMY)
    found = resolve(EngineConfig(), spec, HELD, ROOMY)
    assert found.engine.max_model_len == 512
    assert ("--max-model-len 128 takes those of short ones" in found.reasons["max_model_len"]) == (rope.scaling == "longrope")


def test_free_memory_does_not_choose_rope_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of models with two sets of them: a cache that shortens the context must change no answer."""
    asked: list[int | None] = []

    def noted(spec: ModelSpec, names: object, max_len: int | None = None) -> object:
        asked.append(max_len)
        return build_program(spec, names, max_len)  # type: ignore[arg-type]

    monkeypatch.setattr("penstock.serve.engine.build.build_program", noted)
    assert build(EngineConfig(model="rill", kv_tokens=64)).resolved.engine.max_model_len == 64
    build(EngineConfig(model="rill", kv_tokens=64, max_model_len=128))
    assert asked[0] is None and asked[-1] == 128 and set(asked) == {None, 128}
