"""Starts a server: model, engine on its thread, HTTP until SIGTERM."""
import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from shlex import quote

import penstock
from penstock.core.config import EngineConfig, ServerConfig
from penstock.core.errors import ModelError
from penstock.serve.api.dashboard.feed import Feed, Subject
from penstock.serve.api.limits import check_texts
from penstock.serve.api.metrics import Metrics
from penstock.serve.api.parts import Parts
from penstock.serve.api.requestlog import base_url
from penstock.serve.api.server import bind, create_app, run
from penstock.serve.api.tracing import Propagating, Traced, open_tracing
from penstock.serve.engine.build import Built, build, make_selections, parsers, times_steps
from penstock.serve.engine.loop import Loop
from penstock.serve.engine.patience import patience_s
from penstock.serve.engine.requests import EngineClient
from penstock.serve.engine.selecting import Selecting
from penstock.serve.engine.state import make_ledger, state_of
from penstock.serve.engine.utilization import Utilization
from penstock.serve.text.chat import ChatTemplate, check_file

Say = Callable[[str], None]
PRIVATE = ("api_key", "scorer_url", "otlp_endpoint")  # URLs may have a password in them


def serve(engine: EngineConfig, server: ServerConfig, say: Say, progress: Callable[[int, int], None] | None = None) -> None:
    """Serves until SIGTERM or SIGINT. `say` is given lines for people. Raises PenstockError before anything is served."""
    check_texts(server)
    parsers(server)
    if server.chat_template is not None:
        check_file(Path(server.chat_template))
    tracing = open_tracing(server.otlp_endpoint, os.environ, server.served_model_name or engine.model)
    listener = bind(server)
    with listener:
        host, port, *_ = listener.getsockname()
        bound = replace(server, host=host, port=port)
        metrics = Metrics()
        built = build(engine, metrics, progress, say)
        template = template_of(built, server.chat_template, say)
        tool_parser, reasoning_parser = parsers(server, template)
        selections = make_selections(built.tokenizer, server.scorer_url)
        loop = Loop(built.engine, server.max_queue + built.resolved.engine.max_num_seqs, patience_s(built))
        ledger = make_ledger(built)
        metrics.watch(loop.gauges, utilization(built), ledger)
        selecting = Selecting(loop, selections)
        client: EngineClient = selecting if tracing is None else Traced(selecting, tracing)
        app = create_app(Parts(
            engine=client, tokenizer=built.tokenizer, chat_template=template, config=bound, metrics=metrics,
            tool_parser=tool_parser, reasoning_parser=reasoning_parser, sampling_defaults=built.sampling_defaults,
            fingerprint=built.fingerprint, vocab_size=built.spec.vocab_size, width=built.spec.hidden_size, grammars=built.grammars,
            feed=Feed(subject(built, loop, server.served_model_name)), state=lambda: state_of(built, ledger),
            serves_objectives=times_steps(built.resolved.engine)))
        if tracing is not None:
            app.add_middleware(Propagating, tracing=tracing)
        for line in banner(built, engine, server, base_url(bound)):
            say(line)
        gc.collect()
        gc.freeze()  # what is loaded stays: no collection walks it again while answers wait
        loop.start()
        try:
            run(app, bound, listener)
        finally:
            gc.unfreeze()
            loop.stop()
            if tracing is not None:
                tracing.close()


def template_of(built: Built, path: str | None, say: Say) -> ChatTemplate:
    """The one in the file `path`, else the model's own, compiled: no request waits for that. A model whose own one is broken is served
    without any."""
    template = built.chat_template if path is None else ChatTemplate.of(built.tokenizer, Path(path))
    try:
        template.check()
    except ModelError as error:
        if path is not None:
            raise
        say(f"{error}; chats are refused: give another template with --chat-template FILE")
        return ChatTemplate({}, {})
    return template


def utilization(built: Built) -> Utilization | None:
    """What MFU and MBU are told from; None where the machine's limits were not measured."""
    return None if built.hardware is None else Utilization(built.hardware, built.engine.facts.compute_type, built.engine.clock)


def subject(built: Built, loop: Loop, served_name: str | None) -> Subject:
    """What the dashboard looks at."""
    config = built.resolved.engine
    about = {
        "model": served_name or config.model, "version": penstock.__version__, "backend": config.backend, "dtype": config.dtype,
        "quant": config.quant, "propose": config.propose, "parameters": built.spec.num_parameters(), "weight_bytes": built.weight_bytes,
        "max_model_len": config.max_model_len}
    compute_type = built.engine.facts.compute_type
    return Subject(loop, built.engine.clock, built.hardware, compute_type, config.block_size, about)


def banner(built: Built, asked: EngineConfig, server: ServerConfig, at: str) -> Iterator[str]:
    """What was loaded, what fits and why, what of it was asked for, and a request to try. `at`: the URL that is listened at."""
    config, reasons = built.resolved.engine, built.resolved.reasons
    kv_tokens, max_len = config.kv_tokens or 0, config.max_model_len or 0
    yield f"{config.model}: {built.spec.num_layers} layers, computed in {config.dtype}, {built.found.source.path}"
    yield f"  weights    {mib(built.weight_bytes)} in memory: {built.spec.num_parameters():,} parameters; {reasons['quant']}"
    cache = mib(kv_tokens * built.kv_bytes_per_token)
    yield f"  KV cache   {kv_tokens:,} tokens of {built.kv_bytes_per_token:,} bytes, {cache}: {reasons['kv_tokens']}"
    fitting = "1 sequence of that length fits" if kv_tokens // max_len == 1 else f"{kv_tokens // max_len:,} sequences of that length fit"
    yield f"  context    {max_len:,} tokens: {reasons['max_model_len']}; {fitting}"
    yield f"  backend    {config.backend}: {reasons['backend']}"
    yield f"  threads    {config.threads}: {reasons['threads']}"
    given = [*options(asked), *options(server)]
    yield f"  options    {', '.join(given)}; otherwise defaults" if given else "  options    all defaults"
    name = server.served_model_name or config.model
    key = " -H 'Authorization: Bearer KEY'" if server.api_key or server.api_keys else ""
    yield f"Serving {name} at {at}, with a dashboard for your browser  (stop with Ctrl-C). Try:"
    yield (f"""  curl {quote(at + '/v1/chat/completions')}{key} -H 'Content-Type: application/json' \\\n"""
           """    -d '{"messages": [{"role": "user", "content": "Tell me about the fox and the old king."}], "max_tokens": 120}'""")


def options(config: EngineConfig | ServerConfig) -> Iterator[str]:
    """Those that are not their defaults, as they are given; of what may hold a secret the name alone. The model is no option."""
    for each in fields(config):
        value, name = getattr(config, each.name), each.name.replace("_", "-")
        if value == each.default or each.name == "model":
            continue
        if isinstance(value, bool):
            yield f"--{name}" if value else f"--no-{name}"
        else:
            yield f"--{name}" if each.name in PRIVATE else f"--{name} {value}"


def mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB"
