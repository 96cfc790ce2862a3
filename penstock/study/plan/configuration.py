"""One way to run a model on some hardware: what it is, what it gives, and why it was not chosen."""
from dataclasses import dataclass, field

from penstock.compute.steptime import Split
from penstock.core.catalogue.part import Part

ROOFLINE, MEASURED = "roofline", "measured"
ARITHMETIC, TWIN = "arithmetic", "twin"  # what predicts a row


@dataclass(frozen=True, slots=True)
class Candidate:
    """Before it is known whether it fits. `quant` and `kv_dtype` are names of formats."""

    part: Part
    split: Split
    quant: str
    kv_dtype: str


@dataclass(frozen=True, slots=True)
class Configuration:
    """A row of the plan. What does not fit has no figures: None."""

    hardware: str
    devices: int  # all of them
    tensor_parallel: int
    pipeline_parallel: int
    quant: str
    kv_dtype: str
    fits: bool
    expert_parallel: int = 1  # of the devices of a tensor parallel group, those that experts are dealt to
    replicas: int = 1
    replicas_told: str = ""  # where the twin tried other numbers: what they come to
    prefill_replicas: int = 0  # of them, where prompts are computed apart from the rest
    routing: str | None = None  # which policy sent requests to replicas, where the twin played several
    routing_told: str = ""  # what it gives
    batch: int | None = None  # requests that run at once in a replica, at most
    batch_told: str = ""  # why no more; empty where it was given
    chunk: int | None = None  # tokens of prompts in a step, at most
    chunk_told: str = ""  # where prompts never fill it
    ttft_s: float | None = None
    ttft_p99_s: float | None = None  # of requests that come at random; None in a closed loop
    tpot_s: float | None = None
    e2e_s: float | None = None
    requests_per_s: float | None = None
    output_tokens_per_s: float | None = None
    goodput_per_s: float | None = None  # requests a second that keep the SLO
    goodput_per_usd: float | None = None  # such requests for a dollar
    most_per_s: float | None = None  # requests a second, where it cannot keep up with what is asked for: the highest rate that it can
    meets_slo: bool | None = None
    kept_share: float | None = None  # of the requests, by the twin; of what it does not play, of a trace's, each in its line
    edge_told: str = ""  # where steps that take a little longer would break the SLO
    predicted_by: str = ARITHMETIC  # or TWIN
    steps: str = ROOFLINE  # or measured: what the time of a step is taken from
    times_roofline: dict[str, float] = field(default_factory=dict)  # ttft, tpot of a request alone, where steps were measured
    unmeasured: bool = False  # others of this hardware have measured steps, this one has not: it is not compared with those
    unserved: tuple[str, ...] = ()  # what this engine would need that it does not have: formats, a backend, parallelism
    bound: str | None = None
    shares: dict[str, float] = field(default_factory=dict)  # of the time, by what binds
    mbu: float | None = None  # of decoding
    mfu: float | None = None  # of prompts
    utilization: float | None = None  # share of the time in which prompts are computed, at a rate
    running: float | None = None  # requests in a replica, on average
    device_bytes: float | None = None  # that a device holds with them: weights, activations, keys and values, what the engine keeps
    reserved_bytes: float = 0.0  # of these, that the engine keeps for itself
    weight_bytes: int = 0
    kv_bytes_per_token: float = 0.0
    kv_tokens: int = 0  # of a replica's cache
    longest_context: int = 0
    largest_batch: int = 0  # sequences of the whole context
    overfull: float | None = None  # where memory is too small: what a device would hold over what it can
    watts: float | None = None  # None, as all that follows from it: the part's power is not given
    usd_per_hour: float | None = None  # the same of its price
    usd_per_million_output_tokens: float | None = None
    kwh_per_year: float | None = None
    pareto: bool = False
    reason: str = ""
    beside: str = ""  # what the row is compared with there: another's `called`

    @property
    def split(self) -> Split:
        """Of a replica."""
        return Split(self.tensor_parallel, self.pipeline_parallel, self.expert_parallel)

    @property
    def layout(self) -> str:
        return layout_of(self.tensor_parallel, self.pipeline_parallel, self.expert_parallel)

    @property
    def called(self) -> str:
        """What tells it from others, short."""
        layout = self.layout
        copies = f" x {self.replicas}" if self.replicas > 1 else ""
        apart = f" ({self.prefill_replicas} for prompts)" if self.prefill_replicas else ""
        return f"{self.hardware} {layout}{copies}{apart} {self.quant}/{self.kv_dtype}"


def layout_of(ranks: int, stages: int, experts: int = 1) -> str:
    return f"TP{ranks}" + (f" EP{experts}" if experts > 1 else "") + (f" PP{stages}" if stages > 1 else "")
