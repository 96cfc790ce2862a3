"""What each field of EngineConfig and ServerConfig is called in --help, and the table of plug-ins that it chooses from, if not none."""
from collections.abc import Mapping

from penstock.core.config import EngineConfig, ServerConfig
from penstock.core.extras import how_to_install

ENGINE = {
    "model": "A folder in Hugging Face layout, a GGUF file, a hub name, or a bundled model: brook, rill",
    "revision": "Branch, tag or commit of a hub model",
    "backend": "Backend that runs the model, as name:key=value,... (cpu: kernels=avx2, pin=true, dequantize=true; reference: arrays=torch)",
    "device": "Device that the backend runs on: cpu, cuda, cuda:1; default: the backend's first",
    "dtype": "Compute precision: auto, float32, bfloat16, float16",
    "quant": "Weight format, as name:key=value,...",
    "weight_cache": "Keep quantized weights packed in the cache folder, for a faster next start",
    "kv_dtype": "Format of the KV cache; auto: what the backend computes in",
    "max_model_len": "Longest context, in tokens; default: the model's own",
    "max_num_seqs": "Most sequences that run at once",
    "max_num_batched_tokens": "Most tokens computed in one step; longer prompts are split into chunks",
    "block_size": "Tokens in one KV block",
    "kv_tokens": "Size of the KV cache, in tokens; default: what free memory allows",
    "prefix_cache": "Reuse the KV of prompt prefixes seen before",
    "evict": "Which unused block is evicted first",
    "batching": "When waiting sequences join the batch",
    "order": "Which waiting request goes first",
    "admission": "Whether to refuse requests that would miss their objectives (auto: only with --order deadline)",
    "chunking": "How many prompt tokens a step takes while answers are running (auto: with --order deadline, what their TPOT allows)",
    "propose": "Speculative decoding: what drafts the tokens, as name:key=value,... (also auto, or none, the default)",
    "accept": "Which drafted tokens are accepted, as name:key=value,... (only exact is lossless)",
    "draft_control": "Draft only what pays, or always: patient, always",
    "threads": "CPU threads; default: one for each processor, fewer for a small model",
    "seed": "Seed for requests that have none of their own; default: from the operating system",
}
SERVER = {
    "host": "Address to listen on; any but loopback needs --api-key, --api-keys or --no-auth",
    "port": "Port to listen on",
    "api_key": "Key that clients must send as a bearer token",
    "api_keys": "TOML file of named keys, each with a default slo and priority; see deadlines.md",
    "slo_default": "Objectives for requests that state none, like ttft=200ms,tpot=50ms",
    "no_auth": "Serve anyone without a key, even from other machines",
    "served_model_name": "Name of the model in the API; default: MODEL",
    "max_queue": "Most requests that may wait; further ones get status 429",
    "max_body_bytes": "Largest request body, in bytes",
    "drain_s": "Seconds that running requests get to finish after SIGTERM",
    "log_requests": "Folder to write each request to, with a curl command that replays it",
    "log_level": "critical, error, warning, info, debug or trace",
    "tool_parser": "Format of tool calls in the model's text (default: by its chat template)",
    "reasoning_parser": "Format that separates the model's reasoning from its answer (default: by its chat template)",
    "chat_template": "A jinja file to use instead of the model's own template",
    "scorer_url": "URL that requests may use as a scorer, and any URL below it; may be given several times",
    "otlp_endpoint": "URL to send OpenTelemetry traces of requests to, like http://localhost:4318; needs "
                     f"{how_to_install('otel')}",
}
HELP: Mapping[type, Mapping[str, str]] = {EngineConfig: ENGINE, ServerConfig: SERVER}

TABLES = {  # field -> the folder whose TABLE lists the choices
    "backend": "penstock.compute.backends",
    "quant": "penstock.compute.quant",
    "evict": "penstock.decide.kv.evict",
    "batching": "penstock.decide.scheduler.batching",
    "order": "penstock.decide.scheduler.order",
    "admission": "penstock.decide.scheduler.admission",
    "chunking": "penstock.decide.scheduler.chunking",
    "propose": "penstock.compute.decoding.propose",
    "accept": "penstock.compute.decoding.acceptance",
    "tool_parser": "penstock.serve.text.tools",
    "reasoning_parser": "penstock.serve.text.reasoning",
    "kind": "penstock.study.compress.heads",
    "arrivals": "penstock.study.measure.arrivals",
    "dataset": "penstock.study.measure.datasets",
    "routing": "penstock.decide.routing",
}
MAY_BE_LEFT_OUT = ("propose",)  # fields that `none` sets to None; elsewhere it is a name like any other
