"""What a user asks for. `serve/engine/resolve.py` turns an EngineConfig into a Resolved one and says why each value was chosen."""
from dataclasses import dataclass, field

from penstock.core.errors import UsageError

MAX_THREADS = 1024


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Options of the engine as given; None means "choose for me"."""

    model: str = "brook"
    revision: str | None = None
    backend: str = "auto"  # the native one where it was built, else the reference
    device: str | None = None
    dtype: str = "auto"  # auto, float32, bfloat16, float16
    quant: str = "none"
    weight_cache: bool = True  # quantized weights are kept as they are packed, for the next start
    kv_dtype: str = "auto"
    max_model_len: int | None = None  # tokens
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    block_size: int = 16  # tokens
    kv_tokens: int | None = None  # size of the KV cache; None: from free memory
    prefix_cache: bool = True
    evict: str = "lru"
    batching: str = "continuous"
    order: str = "fcfs"
    admission: str = "auto"  # who is taken in: none, deadline; auto: deadline with that order, where requests have objectives
    chunking: str = "auto"  # how much of prompts a step takes: fixed, slo; auto: slo with the deadline order
    propose: str | None = None
    accept: str = "exact"  # when a draft may stand in for what the model chooses
    draft_control: str = "patient"  # how much is drafted
    threads: int | None = None
    seed: int | None = None  # seeds requests that bring none; None: from the operating system


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Options of the HTTP server."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    api_keys: str | None = None  # a TOML file of named keys with their objectives and priorities (serve/api/keys.py)
    slo_default: str | None = None  # objectives of requests that bring none, and whose key has none
    no_auth: bool = False
    served_model_name: str | None = None
    max_queue: int = 512  # requests that may wait beside max_num_seqs that run; one more is answered 429
    max_body_bytes: int = 16 << 20
    drain_s: float = 25.0  # how long SIGTERM waits for running requests
    log_requests: str | None = None  # a folder
    log_level: str = "info"
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    chat_template: str | None = None  # a file
    scorer_url: tuple[str, ...] = ()  # requests may have answers scored by what is at these URLs and below
    otlp_endpoint: str | None = None  # where traces of requests go; None: where the OTEL_* variables say, else nowhere


@dataclass(frozen=True, slots=True)
class Resolved:
    """A config without gaps, and the reason of each value that was chosen rather than given."""

    engine: EngineConfig
    reasons: dict[str, str] = field(default_factory=dict)


def check_threads(count: int | None) -> None:
    """Raises UsageError for a number of threads beyond MAX_THREADS or below 1; None: it is chosen."""
    if count is not None and not 1 <= count <= MAX_THREADS:
        raise UsageError(f"--threads must be from 1 to {MAX_THREADS}, not {count}")
