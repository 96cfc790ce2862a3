"""What each field of EngineConfig and ServerConfig is called in --help, and the table of plug-ins that it chooses from."""
from collections.abc import Mapping

from penstock.core.config import EngineConfig, ServerConfig
from penstock.core.extras import how_to_install

ENGINE = {
    "model": "A folder in Hugging Face layout, a GGUF file, a hub name, or a bundled model: brook, rill",
    "revision": "Branch, tag or commit of a hub model",
    "backend": "What computes the steps, as name:key=value,... (cpu: kernels=avx2, pin=true, dequantize=true; reference: arrays=torch)",
    "device": "Where the backend computes: cpu, cuda, cuda:1; default: the backend's first",
    "dtype": "Precision computed in: auto, float32, bfloat16, float16",
    "quant": "Weight format, as name:key=value,...",
    "weight_cache": "Whether quantized weights are kept packed in the cache folder, for a faster next start",
    "kv_dtype": "Format of the KV cache: auto is that of --dtype",
    "max_model_len": "Longest context, in tokens; default: the model's own",
    "max_num_seqs": "Sequences running at once",
    "max_num_batched_tokens": "Tokens computed in one step; longer prompts are computed in chunks",
    "block_size": "Tokens in one KV block",
    "kv_tokens": "Size of the KV cache, in tokens; default: from free memory",
    "prefix_cache": "Whether prompts reuse the KV of prefixes seen before",
    "evict": "Which unused block goes first",
    "batching": "When a waiting sequence may enter",
    "order": "Who goes first",
    "admission": "Whether requests that would miss their objectives are refused; auto: with --order deadline they are",
    "chunking": "How much of prompts a step takes beside running answers; auto: what their TPOT allows, with --order deadline",
    "propose": "What drafts tokens, so that one step may yield several (nothing, if not given), as name:key=value,..., auto or none",
    "accept": "When a draft is accepted: the one that is not exact is lossy, with options as name:key=value,...",
    "draft_control": "Whether there are drafts always, or where they are priced to pay: auto, always, priced",
    "threads": "CPU threads; default: all",
    "seed": "Seeds what brings no seed of its own; default: from the operating system",
}
SERVER = {
    "host": "Address to listen on; other than loopback it needs --api-key, --api-keys or --no-auth",
    "port": "Port to listen on",
    "api_key": "Key that clients must send as a bearer token",
    "api_keys": "TOML file of named keys, each with a default slo and priority; see deadlines.md",
    "slo_default": "Objectives of requests that bring none, like ttft=200ms,tpot=50ms",
    "no_auth": "Let anyone in, even from other machines",
    "served_model_name": "Name of the model in the API; default: MODEL",
    "max_queue": "Requests that may wait; one more is answered 429",
    "max_body_bytes": "Largest request body, in bytes",
    "drain_s": "Seconds that SIGTERM waits for running requests",
    "log_requests": "Folder to write each request to, with a curl that replays it",
    "log_level": "critical, error, warning, info or debug",
    "tool_parser": "Finds tool calls in the model's text; default: by its chat template",
    "reasoning_parser": "Separates the model's reasoning from its answer; default: by its chat template",
    "chat_template": "A jinja file to use instead of the model's own template",
    "scorer_url": "URL that requests may have answers scored by, with all below it; may be given several times",
    "otlp_endpoint": "URL that OpenTelemetry traces of requests are sent to, like http://localhost:4318; for these: "
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
    "kind": "penstock.study.compress.heads",
    "arrivals": "penstock.study.measure.arrivals",
    "dataset": "penstock.study.measure.datasets",
    "routing": "penstock.decide.routing",
}
