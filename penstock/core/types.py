"""The nouns of one request on its way: SamplingParams, Seq, StepPlan, StepResult, Output. Plain Python, picklable."""
from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from penstock.core.drafting import NO_DRAFTS, DraftCheck, Drafting
from penstock.core.message import message
from penstock.core.work import StepWork


@dataclass(frozen=True, slots=True)
class Rules:
    """A grammar in Lark, and JSON schemas beside it: `%json ["name", "#/reference", {...}]` in its text is a value that is valid by what
    the reference leads to in the schema of that name, and by the keywords in the object."""

    text: str
    schemas: tuple[tuple[str, str], ...] = ()  # by name, each as JSON text


@dataclass(frozen=True, slots=True)
class StructuredOutputsParams:
    """What an answer must be; the words are vLLM's. One of `json`, `json_object`, `regex`, `choice` and `grammar` is given.

    Read by the plug-ins of `compute/decoding/grammar`, which are called after these fields.
    """

    json: str | dict[str, Any] | bool | None = None  # a JSON schema
    json_object: bool | None = None  # any JSON object
    regex: str | None = None  # of the whole answer
    choice: tuple[str, ...] | list[str] | None = None  # one of these
    grammar: str | Rules | None = None  # Lark, or EBNF as llama.cpp writes it
    whitespace_pattern: str | None = None  # between the tokens of JSON, once at each place
    disable_any_whitespace: bool = False  # JSON in its shortest form
    disable_additional_properties: bool = False  # of objects whose schema does not mention them
    frame: Rules | None = None  # what may stand around it: rules that begin with "frame" and call it @body


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen and when to stop; the words are vLLM's. Checked by `compute/decoding/params.py`."""

    n: int = 1
    best_of: int | None = None
    temperature: float = 1.0
    top_k: int = 0  # 0 or -1: off
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    stop: tuple[str, ...] | list[str] | str = ()
    stop_token_ids: tuple[int, ...] | list[int] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    max_tokens: int | None = 16  # None: as many as fit
    logprobs: int | None = None  # number of top tokens beside the chosen one
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    scorer: dict[str, Any] | None = None  # says which of best_of answers come back: {"type": name, **its options}; None: the likeliest
    self_consistency: dict[str, Any] | None = None  # {"n": answers that are tried, "extract": regular expression}
    beam_width: int | None = None  # beam search instead of sampling
    length_penalty: float = 1.0
    early_stopping: bool = False
    structured_outputs: StructuredOutputsParams | None = None


class Status(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class CacheMark:
    """A prefix that the user pinned: its first `num_tokens` prompt tokens stay cached for `ttl_s` seconds after the last use."""

    num_tokens: int
    ttl_s: float


@dataclass(slots=True)
class Seq:
    """One token sequence of a request: the only mutable request state, the scheduler's whole view of it.

    Invariant: 0 <= num_computed <= len(tokens) + len(drafts); the KV of the first `num_computed` tokens is in `block_ids`.
    """

    seq_id: int
    tokens: list[int]  # prompt, then output
    num_prompt: int
    params: SamplingParams
    max_len: int = 0  # prompt + output tokens at most; fixed when the request is accepted
    wants_embedding: bool = False  # pooled hidden state instead of tokens
    held: bool = False  # a search appends its tokens, not the scheduler
    status: Status = Status.WAITING
    drafts: list[int] = field(default_factory=list)
    draft_parents: list[int] | None = None  # index into drafts, -1 for the last token; None: a chain
    num_computed: int = 0
    block_ids: tuple[int, ...] = ()
    end_ids: tuple[int, ...] = field(init=False)  # tokens that end it: end of text unless ignored, stop tokens
    first_token_s: float | None = None
    # Until here stands what every step reads and writes: objects lie in memory as they are written down.

    request_id: str = ""
    arrival_s: float = 0.0
    priority: int = 0  # smaller goes first
    ttft_slo_s: float | None = None
    tpot_slo_s: float | None = None
    e2e_slo_s: float | None = None
    deferred: bool = False  # it could not be served in time: it goes last, and its objectives bind nobody
    eos_token_ids: tuple[int, ...] = ()
    seed: int = 0  # always set; the draw of output token i depends on (seed, i) alone
    salt: str = ""  # isolates its prefixes from other salts
    marks: tuple[CacheMark, ...] = ()
    prompt: tuple[int, ...] = ()  # its first `num_prompt` tokens as the request has them, one object for all that is forked; (): not given

    num_scored: int = 0  # rows of the prompt that have given the log-probabilities that are asked for
    num_cached: int = 0  # prompt tokens found in the prefix cache when it was first let in; before that, how many are expected
    num_mark_created: int = 0  # pinned tokens that this request computed
    num_mark_read: int = 0  # pinned tokens that it found
    num_preemptions: int = 0
    first_scheduled_s: float | None = None
    finish_reason: str | None = None  # stop, length, abort
    stop_token_id: int | None = None

    def __post_init__(self) -> None:
        eos = () if self.params.ignore_eos else self.eos_token_ids
        self.end_ids = (*eos, *self.params.stop_token_ids) if self.params.stop_token_ids else eos

    def todo(self) -> int:
        """Tokens whose keys and values are still to be computed."""
        return len(self.tokens) + len(self.drafts) - self.num_computed

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.num_prompt

    @property
    def queued_s(self) -> float | None:
        """Seconds from its arrival to its first step; None before."""
        return None if self.first_scheduled_s is None else self.first_scheduled_s - self.arrival_s

    @property
    def prefilled_s(self) -> float | None:
        """Seconds from its arrival to the end of the step that chose its first token; None before."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s


@dataclass(frozen=True, slots=True)
class SeqInfo:
    """What the runner must know of a sequence before its first row: sent once."""

    params: SamplingParams
    prompt: tuple[int, ...]
    seed: int
    eos_token_ids: tuple[int, ...] = ()
    wants_embedding: bool = False
    held: bool = False
    output: tuple[int, ...] = ()  # output tokens that it has already: of a fork, or of one that the runner has forgotten
    salt: str = ""  # what it writes is shown to sequences of the same salt alone


@message
class PlannedSeq:
    """What one sequence does in a step: `tokens` are computed at positions start, start + 1, ...

    `samples` says that the step reaches the end of the sequence, so that its last row chooses a token.
    The last `num_drafts` of `tokens` are drafts. `new` is set when the runner has not seen the sequence (or has forgotten it).
    """

    seq_id: int
    start: int
    tokens: tuple[int, ...]
    block_ids: tuple[int, ...]
    samples: bool
    num_prompt: int
    num_output: int  # output tokens so far: the index of the next draw
    num_drafts: int = 0
    draft_parents: tuple[int, ...] | None = None
    new: SeqInfo | None = None
    num_scored: int = 0  # rows of the prompt that need give no log-probabilities: these are known


@message
class StepPlan:
    """One step: what to compute. `copies` are (source, target) blocks to copy before anything else is written. `outputs`: those of the
    finished, in that order, where the runner learns from them; else nothing. `tails`: what the runner asked for, or a search has changed:
    (seq_id, start, all tokens of the sequence from there on)."""

    step_id: int
    seqs: tuple[PlannedSeq, ...]
    copies: tuple[tuple[int, int], ...] = ()
    finished: tuple[int, ...] = ()  # seq_ids that the runner may forget
    outputs: tuple[tuple[int, ...], ...] = ()
    tails: tuple[tuple[int, int, tuple[int, ...]], ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum([len(s.tokens) for s in self.seqs])


@message
class TokenLogprobs:
    """The log-probabilities at one position: the chosen token's, its rank (1 is the likeliest), and the top ones in falling order."""

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


@message
class SeqResult:
    """What a step found for one planned sequence, in the plan's order."""

    seq_id: int
    tokens: tuple[int, ...] = ()  # accepted drafts and the token chosen after them; empty in the middle of a prompt
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token, where asked for
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()  # of prompt tokens k + 1 .. k + n, k = max(start, num_scored), where asked for
    candidates: tuple[tuple[int, float], ...] = ()  # for a search: likeliest next tokens and their log-probabilities
    drafts: tuple[int, ...] = ()  # proposed for the next step
    draft_parents: tuple[int, ...] | None = None
    embedding: tuple[float, ...] | None = None
    ended: str | None = None  # why the sequence ends with these tokens, where its grammar says so: stop, abort
    num_cut: int = 0  # tokens chosen after `tokens` that came behind the grammar's end

    def with_drafts(self, drafts: tuple[int, ...], parents: tuple[int, ...] | None) -> SeqResult:
        return SeqResult(
            self.seq_id, self.tokens, self.logprobs, self.prompt_logprobs, self.candidates, drafts, parents, self.embedding, self.ended,
            self.num_cut)


@message
class StepResult:
    step_id: int
    seqs: tuple[SeqResult, ...]
    compute_seconds: float = 0.0
    weight_bytes: int = 0
    kv_bytes: int = 0
    activation_bytes: int = 0
    operations: int = 0
    work: StepWork | None = None
    asks: tuple[tuple[int, int], ...] = ()  # (seq_id, from which token on): the next plan is to tell the sequence's tokens
    more_weight_bytes: int = 0  # that a step of twice the rows would read beside: experts
    draft_seconds: float = 0.0  # for the next step's drafts, beside the backend's


@message
class SeqOutput:
    """What `Scheduler.commit` appended to one sequence; `finish_reason` is set when it ended."""

    seq_id: int
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    candidates: tuple[tuple[int, float], ...] = ()
    embedding: tuple[float, ...] | None = None
    finish_reason: str | None = None
    check: DraftCheck | None = None  # where the step checked drafts


@dataclass(frozen=True, slots=True)
class Score:
    """What a scorer said of an answer; higher is better. `details`: what else it tells, as JSON."""

    value: float
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Completion:
    """One answer of a request (vLLM's CompletionOutput)."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, Logprob]] | None = None
    cumulative_logprob: float | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    drafting: Drafting = NO_DRAFTS
    score: Score | None = None  # where a scorer was asked for


@dataclass(frozen=True, slots=True)
class Logprob:
    """vLLM's Logprob."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass(slots=True)
class Output:
    """What a request came to (vLLM's RequestOutput). Times are seconds on the engine's clock."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[Completion] = field(default_factory=list)
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    finished: bool = False
    num_cached_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    embedding: list[float] | None = None
    arrival_s: float = 0.0
    first_scheduled_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    drafting: Drafting = NO_DRAFTS  # of all sequences, those that were not returned included
