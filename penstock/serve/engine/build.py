"""The only wiring: a config becomes an engine. Tables are read here, and pairs that cannot work are refused here."""
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.compute import backends, quant
from penstock.compute.backends.contract import KVLayout
from penstock.compute.backends.packed import FOLDER as PACKED
from penstock.compute.decoding import acceptance, filters, grammar, propose, search
from penstock.compute.decoding.control import controllers
from penstock.compute.decoding.grammar.compiler import Compiler
from penstock.compute.decoding.grammar.contract import Tokens
from penstock.compute.decoding.grammar.vocabulary import Vocabulary
from penstock.compute.decoding.sampler import Sampler
from penstock.compute.decoding.sampling import Sampling
from penstock.compute.fitted import windows_of
from penstock.compute.models import families, hf
from penstock.compute.models.decoder import build as build_program
from penstock.compute.models.family import Family
from penstock.compute.models.load import hub
from penstock.compute.models.load.checkpoint import open_checkpoint
from penstock.compute.models.load.weights import Forming, load_weights
from penstock.compute.models.quantized import refuse_quantized
from penstock.compute.ops import check_served
from penstock.compute.program import Program
from penstock.compute.quant.contract import QuantScheme
from penstock.compute.quant.native import best_rounding
from penstock.compute.runner import drift
from penstock.compute.runner.constrain import Constraints
from penstock.compute.runner.decoding import Decoding
from penstock.compute.runner.drafter import Drafter
from penstock.compute.runner.runner import Runner
from penstock.compute.timing import measure, sweep, touch
from penstock.core.clock import Clock, MonotonicClock
from penstock.core.config import EngineConfig, Resolved, ServerConfig
from penstock.core.errors import UsageError
from penstock.core.hardware import Hardware, cache_folder, home_folder
from penstock.core.modelspec import ModelSpec
from penstock.core.needs import Caps, unmet
from penstock.core.registry import Table
from penstock.core.work import StepTimer
from penstock.decide import routing
from penstock.decide.kv import evict
from penstock.decide.kv.manager import KVManager
from penstock.decide.routing.contract import Engines, Router
from penstock.decide.scheduler import admission, batching, chunking, order
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.limits import Limits
from penstock.decide.scheduler.pacing import Pacing
from penstock.decide.scheduler.scheduler import Scheduler
from penstock.serve import scorers
from penstock.serve.engine.aux_models import EngineHost, Own
from penstock.serve.engine.desk import Desk
from penstock.serve.engine.draft_memory import CountingHost, DraftMemory, Target, draft_memory
from penstock.serve.engine.engine import Engine, Facts, Listener
from penstock.serve.engine.holding import Holding, check_effects, holding, packed_cache
from penstock.serve.engine.machine import has_native, look, measured_limits, num_cpus, without_native
from penstock.serve.engine.recommended import recommended
from penstock.serve.engine.resolve import AUTO, choose_dtype, resolve, warn_of_shared
from penstock.serve.engine.selection import Selections
from penstock.serve.scorers.allowed import allowed
from penstock.serve.text import reasoning, tools
from penstock.serve.text.chat import ChatTemplate
from penstock.serve.text.tokenizer import Tokenizer
from penstock.serve.text.tools.detect import Detect, detected, suiting

Progress = Callable[[int, int], None]
NO_CAPS = Caps(devices=(), dtypes=())  # what a scheduler has of a backend


@dataclass(frozen=True, slots=True)
class Found:
    """A model whose config.json was read; no weights yet."""

    source: Any  # hub.Source
    config: Mapping[str, Any]
    architecture: str
    family: Family
    spec: ModelSpec


@dataclass(frozen=True, slots=True)
class Built:
    found: Found
    engine: Engine
    tokenizer: Tokenizer
    chat_template: ChatTemplate
    sampling_defaults: dict[str, Any]
    spec: ModelSpec
    program: Program
    resolved: Resolved
    weight_bytes: int
    kv_bytes_per_token: int
    fingerprint: str
    hardware: Hardware | None  # measured limits of the device; None where `penstock limits` was not run
    grammars: Compiler


def find(config: EngineConfig) -> Found:
    """Reads the config of a model to run, downloading nothing else. Raises ModelError as `look_up` does, and for a model that can only be
    planned for."""
    found = look_up(config)
    check_served(build_program(found.spec, found.family.names))
    refuse_quantized(found.config)
    return found


def look_up(config: EngineConfig) -> Found:
    """A model to describe or to plan for. Raises ModelError when it does not exist or is not understood."""
    return understand(hub.fetch_config(config.model, config.revision))


def understand(source: hub.Source) -> Found:
    """The model of a config that was already read; its weights need not exist. Raises ModelError when it is not understood."""
    name = hf.architecture(source.config, families.TABLE)
    family: Family = families.TABLE.load(name)
    with source.refusals():
        return Found(source, source.config, name, family, family.spec(source.config))


def parse_quant(text: str) -> QuantScheme:
    """A weight format, for planning. Raises UsageError for an unknown one."""
    scheme_class, options = quant.TABLE.parse(text)
    scheme: QuantScheme = scheme_class(options)
    return scheme


def choose_backend(config: EngineConfig) -> tuple[EngineConfig, str]:
    """(the config with the backend's name filled in, the reason for the choice)."""
    if config.backend != "auto":
        return config, "as asked"
    if config.device is not None and not config.device.startswith("cpu"):
        return replace(config, backend="reference"), f"the native kernels do not compute on {config.device}"
    if has_native():
        return replace(config, backend="cpu"), "the native kernels"
    return replace(config, backend="reference"), without_native()


def parse_backend(config: EngineConfig) -> tuple[Any, Any]:
    """The backend's class and its options, --device among them. Raises UsageError for a device that the backend does not have."""
    backend_class, options = backends.TABLE.parse(config.backend)
    return backend_class, options if config.device is None else replace(options, device=config.device)


def caps_of(config: EngineConfig) -> Caps:
    """The capabilities of the backend that a config asks for."""
    backend_class, options = parse_backend(choose_backend(config)[0])
    caps: Caps = backend_class(options).caps
    return caps


@dataclass(frozen=True, slots=True)
class Chosen:
    """A backend, and the form in which it gets the weights."""

    config: EngineConfig  # with the backend's name
    backend: Any
    scheme: QuantScheme
    dtype: str  # that weights which are not quantized are rounded to
    holding: Holding
    reasons: Mapping[str, str]


def choose(config: EngineConfig, found: Found) -> Chosen:
    """Everything that a config asks for, wired but not loaded. Raises UsageError for options that do not go together."""
    config, why = choose_backend(config)
    backend_class, options = parse_backend(config)
    scheme_class, scheme_options = quant.TABLE.parse(config.quant)
    scheme: QuantScheme = scheme_class(scheme_options, best_rounding(config.threads or num_cpus()))
    dtype, why_dtype = choose_dtype(config, found.spec, backend_class(options, dtype="float32").caps.dtypes)
    backend = backend_class(options, dtype=dtype, activations=scheme.activations)
    held = holding(build_program(found.spec, found.family.names), found.source, backend, Forming(dtype, scheme))
    check_effects(config.quant, scheme, backend, held)
    return Chosen(config, backend, scheme, dtype, held, {"backend": why, "dtype": why_dtype, "quant": held.told()})


def settle(found: Found, chosen: Chosen) -> Resolved:
    """A config without gaps, as an engine runs here now. Raises as `check_proposer`, `resolve` and `drafting_takes` do."""
    check_proposer(chosen.config, chosen.backend)
    resolved = resolve(chosen.config, found.spec, chosen.holding.held, look(), drafting_takes(chosen.config, found, chosen))
    resolved.reasons.update(chosen.reasons)
    if (proposer := resolved.engine.propose) is None:
        return resolved
    return replace(resolved, engine=replace(resolved.engine, propose=propose.TABLE.meant(proposer)))


def build(config: EngineConfig, listener: Listener | None = None, progress: Progress | None = None,
          say: Callable[[str], None] | None = None) -> Built:
    """Loads a model and wires an engine around it. `progress` is called with (bytes loaded, bytes in all), `say` with what a
    name of the hub turned out to be and whether it fits, before its weights are downloaded.

    Raises UsageError for options that do not go together, ModelError for a checkpoint that cannot be read, CapacityError for one
    that does not fit: before any weight is downloaded.
    """
    found = find(config)
    chosen = choose(config, found)
    backend = chosen.backend
    resolved = settle(found, chosen)
    if say is not None:
        for line in told(found, chosen, resolved):
            say(line)
    engine_config = resolved.engine
    warn_of_shared(engine_config.threads, num_cpus())
    layout = KVLayout((engine_config.kv_tokens or 0) // engine_config.block_size, engine_config.block_size, backend.dtype)
    clock = MonotonicClock()
    check_scheduler(engine_config)
    path = hub.fetch_weights(found.source, progress)
    program = build_program(found.spec, found.family.names, config.max_model_len)  # as asked: free memory must change no answer
    weights = load_weights(program, open_checkpoint(path), chosen.dtype, chosen.scheme, progress)
    tokenizer = Tokenizer.load(path)
    cache = packed_cache(config.quant, weights, cache_folder(os.environ, home_folder()) / PACKED) if config.weight_cache else None
    loaded = backend.load(program, weights, layout, engine_config.threads, cache)
    if progress is not None:
        progress(1, 1)  # also where nothing was left to read, or an index had promised more
    touch(backend, loaded)
    if say is not None and chosen.scheme.activations:
        say(drift.rounding_drift(backend, loaded, drift_tokens(tokenizer, found.spec, layout)).told(config.quant))
    sampler = make_sampler(loaded.sampling)
    host = EngineHost(engine_config, find, found, Own(path, backend, loaded, chosen.dtype, chosen.scheme, tokenizer), sampler)
    rule = _plugin(acceptance.TABLE.parse(engine_config.accept))
    grammars = make_compiler(tokenizer, found.spec, engine_config.max_model_len or 0)
    decoding = Decoding(sampler, make_drafter(engine_config, host, loaded, clock), rule, Constraints(grammars))
    runner = Runner(backend, loaded, decoding, chosen.holding.price, clock)
    if say is not None and engine_config.propose is not None and not rule.lossless:
        say(f"--accept {engine_config.accept} is lossy: sampled answers differ from plain decoding and are likelier")
    facts = Facts(config.model, engine_config.max_model_len or 0, found.spec.vocab_size, config.seed, loaded.compute_type)
    scheduler = make_scheduler(engine_config, layout.num_blocks, clock, make_timer(engine_config, found, backend, loaded, clock))
    desk = Desk(scheduler, tokenizer, search.TABLE.load("beam"))
    engine = Engine(facts, desk, runner, clock, listener)
    return Built(
        found, engine, tokenizer, ChatTemplate.of(tokenizer), recommended(path), found.spec, program, resolved,
        loaded.weight_bytes, loaded.kv_bytes_per_token,
        fingerprint(engine_config, backend), measured_limits(backend.caps.devices[0], engine_config.threads), grammars)


def fingerprint(config: EngineConfig, backend: Any) -> str:
    """What answers depend on besides the weights: backend, types and weight format."""
    return f"{config.backend} {backend.dtype} {config.dtype} {config.quant}"


def told(found: Found, chosen: Chosen, resolved: Resolved) -> Iterator[str]:
    """Notes for the user: what a hub name resolved to and how much memory it takes; what a weight format does to the matrices."""
    held, config = chosen.holding.held, resolved.engine
    if found.source.repo is not None:
        kv = (config.kv_tokens or 0) * held.kv_token_bytes
        yield f"{config.model} is {found.source.resolved}"
        yield (f"it fits: {held.weight_bytes / 2**30:.2f} GiB of weights and {kv / 2**30:.2f} GiB for {config.kv_tokens:,} tokens of "
               f"keys and values, of {look().memory_bytes / 2**30:.2f} GiB free")
    if chosen.scheme.bits_per_weight() is not None:
        yield f"--quant {config.quant}: {chosen.holding.told()}"


def make_sampler(fused: Sampling | None) -> Sampler:
    """Uses the backend's fused form of the arithmetic if it covers all existing filters, in their order."""
    names = tuple(filters.TABLE)
    return Sampler([filters.TABLE.load(name)() for name in names], fused if fused is not None and fused.filters == names else None)


def make_compiler(tokens: Tokens, spec: ModelSpec, max_len: int) -> Compiler:
    """What compiles grammars for this model's tokens, when there are any."""
    return Compiler({name: grammar.TABLE.load(name)() for name in grammar.TABLE}, Vocabulary(tokens, spec.vocab_size), max_len)


def check_proposer(config: EngineConfig, backend: Any) -> None:
    """Raises UsageError for "auto" with options, and for a proposer that the backend does not have what it needs for."""
    text = config.propose
    if text is None or text == AUTO:
        return
    if text.partition(":")[0] == AUTO:
        raise UsageError(f"--propose {text}: {AUTO} takes no options; name a proposer")
    plugin, _ = propose.TABLE.parse(text)
    if lacks := unmet(plugin.needs, backend.caps):
        takes = [name for name in propose.TABLE if not unmet(propose.TABLE.load(name).needs, backend.caps)]
        raise UsageError(f"--propose {text} needs {' and '.join(lacks)}, which --backend {config.backend} does not have; there it can be "
                         f"{', '.join([*propose.TABLE.also, *takes])}")


def drafting_takes(config: EngineConfig, found: Found, chosen: Chosen) -> DraftMemory:
    """The memory that drafting takes. Raises UsageError for invalid options, ModelError if the draft model does not exist."""
    if config.propose is None:
        return DraftMemory()
    plugin, options = propose.TABLE.parse(propose.TABLE.meant(config.propose))
    target = Target(found, chosen.backend, chosen.dtype, chosen.scheme)

    def host(kv_tokens: int) -> CountingHost:
        return CountingHost(config, lambda name: find(replace(config, model=name, revision=None)), target, kv_tokens)

    return draft_memory(lambda given: plugin(options, given), host, config.block_size)


def make_drafter(config: EngineConfig, host: EngineHost, loaded: Any, clock: Clock) -> Drafter | None:
    """The drafter and its controller; None: no drafting."""
    if config.propose is None:
        return None
    plugin, options = propose.TABLE.parse(config.propose)
    proposer = plugin(options, host)
    most = proposer.lookahead()
    rows = config.max_num_seqs * (1 + most) + config.max_num_batched_tokens
    controller = controllers.make(config.draft_control, most, lambda: measure(host.own.backend, loaded, rows, clock).costs(rows))
    return Drafter(proposer, controller, clock, host.spec.vocab_size)


def drift_tokens(tokenizer: Tokenizer, spec: ModelSpec, layout: KVLayout) -> list[int]:
    """The beginning of a built-in text, short enough to be computed in well under a second."""
    return tokenizer.encode(drift.TEXT)[: drift.num_tokens(spec, layout.num_blocks * layout.block_size)]


def make_scheduler(config: EngineConfig, num_blocks: int, clock: Clock, timer: StepTimer | None = None) -> Scheduler:
    """The scheduler and its KV accounting. The twin calls this too, with a clock of its own. `timer`: asked where `times_steps(config)`."""
    evict_policy = _plugin(evict.TABLE.parse(config.evict))
    kv = KVManager(num_blocks, config.block_size, config.prefix_cache, evict_policy, clock)
    limits = Limits(config.max_num_seqs, config.max_num_batched_tokens)
    costs = StepCosts(timer, config.max_num_batched_tokens, config.max_num_seqs) if timer is not None and times_steps(config) else None
    ordering, admits, chunks = (_timed(parsed, costs) for parsed in timed_plugins(config))
    scheduler = Scheduler(limits, kv, ordering, _plugin(batching.TABLE.parse(config.batching)), clock, Pacing(admits, chunks, costs))
    scheduler.ended.with_outputs = config.propose not in (None, AUTO) and propose.TABLE.parse(config.propose)[0].needs.whole_outputs
    return scheduler


def make_router(text: str, engines: Engines) -> Router:
    """The router that spreads requests over several engines. Raises UsageError for an unknown policy."""
    plugin, options = routing.TABLE.parse(text)
    router: Router = plugin(engines) if options is None else plugin(engines, options)
    return router


def check_scheduler(config: EngineConfig) -> None:
    """Raises UsageError for unknown options of the scheduler, before anything is loaded."""
    timed_plugins(config)
    for table, text in ((batching.TABLE, config.batching), (evict.TABLE, config.evict)):
        table.parse(text)
    Limits(config.max_num_seqs, config.max_num_batched_tokens)


def timed_plugins(config: EngineConfig) -> list[tuple[Any, Any]]:
    """Classes and options of order, admission and chunking; "auto" means the deadline-aware plug-in with a deadline order, and the plain
    one otherwise. Raises UsageError for an unknown name."""
    parsed = order.TABLE.parse(config.order)
    serves = parsed[0].needs.step_timer
    chosen = config.admission if config.admission != AUTO else "deadline" if serves else "none"
    chunks = config.chunking if config.chunking != AUTO else "slo" if serves else "fixed"
    return [parsed, admission.TABLE.parse(chosen), chunking.TABLE.parse(chunks)]


def times_steps(config: EngineConfig) -> bool:
    """Whether any plug-in asks how long steps take, so that steps have to be timed first."""
    return any(plugin.needs.step_timer for plugin, _ in timed_plugins(config))


def make_timer(config: EngineConfig, found: Found, backend: Any, loaded: Any, clock: Clock) -> StepTimer | None:
    """The timer that the scheduler's plug-ins ask how long steps take; None if none of them asks. Making it takes some time, and uses the
    first blocks of the cache."""
    if not times_steps(config):
        return None
    return sweep(backend, loaded, (config.max_num_seqs, config.max_num_batched_tokens), windows_of(found.spec), clock)


def _plugin(parsed: tuple[Any, Any]) -> Any:
    plugin, options = parsed
    return plugin() if options is None else plugin(options)


def _timed(parsed: tuple[Any, Any], costs: StepCosts | None) -> Any:
    """Makes a plug-in with what it needs. Raises UsageError if that includes step times and steps were not timed."""
    plugin, options = parsed
    if lacks := unmet(plugin.needs, NO_CAPS, costs is not None):
        raise UsageError(f"{plugin.__name__} of the scheduler needs {' and '.join(lacks)}")
    given = [costs] if plugin.needs.step_timer else []
    return plugin(*given) if options is None else plugin(*given, options)


def make_selections(tokenizer: Tokenizer, prefixes: Sequence[str] | None) -> Selections:
    """How the best of several answers are chosen. `prefixes`: URLs below which requests may have a scorer asked; None: any URL.

    Raises UsageError as `allowed` does.
    """
    return Selections(scorers.TABLE, tokenizer.decode, allowed(prefixes))


def parsers(server: ServerConfig, template: ChatTemplate | None = None) -> tuple[type[Any] | None, type[Any] | None]:
    """The classes of the tool-call and reasoning parsers: those asked for, else those that suit the chat template.

    Raises UsageError for an unknown name.
    """
    return _parser(tools.TABLE, server.tool_parser, template, detected), reasoning_parser(server, template)


def reasoning_parser(server: ServerConfig, template: ChatTemplate | None) -> type[Any] | None:
    """The parser of reasoning alone, which needs no call to be written. Raises UsageError for an unknown name."""
    return _parser(reasoning.TABLE, server.reasoning_parser, template, suiting)


def _parser(table: Table, name: str | None, template: ChatTemplate | None, find: Detect) -> type[Any] | None:
    if name is not None:
        asked: type[Any] = table.load(name)
        return asked
    return find(template, [*map(table.load, table)]) if template is not None and template.sources else None
