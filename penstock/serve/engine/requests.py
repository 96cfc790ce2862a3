"""What goes into the engine and what comes out of it: Request, Delta, Usage, and the EngineClient that the API talks to."""
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from penstock.compute.decoding.grammar.compiled import Compiled
from penstock.core.drafting import NO_DRAFTS, Drafting
from penstock.core.errors import INTERRUPTS, RequestError
from penstock.core.message import message
from penstock.core.types import CacheMark, SamplingParams, Score, TokenLogprobs

log = logging.getLogger("penstock.engine")


@dataclass(frozen=True, slots=True)
class Request:
    """A tokenized request. `params` has been checked by `check_params`."""

    request_id: str
    token_ids: tuple[int, ...]
    params: SamplingParams
    prompt: str | None = None
    priority: int = 0  # smaller goes first
    salt: str = ""
    marks: tuple[CacheMark, ...] = ()
    ttft_slo_s: float | None = None
    tpot_slo_s: float | None = None
    e2e_slo_s: float | None = None
    arrival_s: float | None = field(default=None, compare=False)  # on the engine's clock; None: when it is handed over
    wants_embedding: bool = False
    grammar: Compiled | None = None  # of `params.structured_outputs`: it stays compiled while the request lives
    patience_s: float = field(default=0.0, compare=False)  # that its reader lets tokens wait for later ones, to be given them together

    @property
    def has_objectives(self) -> bool:
        return (self.ttft_slo_s, self.tpot_slo_s, self.e2e_slo_s) != (None, None, None)

    @property
    def is_open(self) -> bool:
        """Whether its answer may end anywhere before the context is full."""
        params = self.params
        return params.max_tokens is None and not params.ignore_eos and params.beam_width is None and not self.wants_embedding

    def num_unused(self, num_output: int) -> int:
        """Tokens that a single answer of so many is shorter than it might have been by its max_tokens."""
        params = self.params
        is_single = params.beam_width is None and (params.best_of or params.n) == 1
        if params.max_tokens is None or not is_single or self.wants_embedding:
            return 0
        return params.max_tokens - num_output


def given_up(request: Request) -> RequestError:
    """What the client is told where an answer ended with "abort"."""
    if request.grammar is not None:
        return RequestError(
            "the answer's grammar could not be followed any further: it became too complex there, leaves no token that could come next, or "
            "failed, as the log says then; ask for a simpler schema, pattern or grammar", code="grammar_too_complex")
    return RequestError("the engine gave up on this request", status=503, code="aborted")


def failed(error: BaseException) -> RequestError:
    """What the client is told whose answer could not be made; the log says why. Raises an interrupt, which is no failure of a request."""
    if isinstance(error, INTERRUPTS):
        raise error
    log.error("a request failed: %s: %s; all others go on", type(error).__name__, error, exc_info=error)
    told = RequestError("the engine failed at this request; its log says why", status=500, code="request_failed")
    told.__cause__ = error
    return told


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # prompt tokens read from the prefix cache
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    drafting: Drafting = NO_DRAFTS
    queued_s: float | None = field(default=None, compare=False)  # until its first step
    prefilled_s: float | None = field(default=None, compare=False)  # until the end of the step that chose its first token


@message
class Delta:
    """What a step added to choice `index` of a request, or several steps did, where the reader is patient.

    `text` may lag behind `token_ids` while a character or a possible stop string is incomplete; it never has to be taken back.
    `prompt_logprobs` comes once, with the first delta of choice 0: one entry per prompt token, None for the first.
    `usage` is set on the delta that ends the whole request (`done`). `drafted`: the places in `token_ids` of tokens that were drafts.
    `drafting` comes with the finish reason, where drafts were checked, `score` where one was asked for, `queued_s` (as Usage's) with the
    first delta of a sampled answer: the request may not live to have usage.
    """

    index: int
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    finish_reason: str | None = None  # stop, length, abort
    stop_reason: int | str | None = None  # the stop string or stop token id that ended it
    embedding: tuple[float, ...] | None = None
    done: bool = False
    usage: Usage | None = None
    drafted: tuple[int, ...] = ()
    drafting: Drafting | None = None
    score: Score | None = None
    queued_s: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Health:
    ok: bool
    reason: str = ""


@message
class Gauges:
    """The engine's state now."""

    num_running: int = 0
    num_waiting: int = 0
    kv_blocks_used: int = 0  # held by live sequences
    kv_blocks_total: int = 0
    kv_blocks_cached: int = 0  # reusable prefixes that nobody holds
    num_refused: int = 0  # sequences that could not be served in time, since the start
    num_deferred: int = 0  # such sequences that were taken in to go last


class EngineClient(Protocol):
    """What `serve/api` knows of the engine. Every method may be called from the event loop's thread; none blocks."""

    model_name: str
    max_model_len: int

    def submit(self, request: Request) -> AsyncIterator[Delta]:
        """Queues the request and returns its deltas. Raises RequestError at once when it is refused (too long, queue full); the deltas
        raise OverloadedError instead of the first when it could not be served in time."""
        ...

    def abort(self, request_id: str) -> None:
        """Frees what the request holds within one step, and ends its deltas with RequestError; unknown ids are ignored."""
        ...

    def health(self) -> Health: ...

    def gauges(self) -> Gauges: ...


class Forwarding:
    """An EngineClient that forwards everything to another one. Layers between the API and the engine derive from it and override
    `submit`."""

    def __init__(self, engine: EngineClient) -> None:
        self.model_name = engine.model_name
        self.max_model_len = engine.max_model_len
        self._engine = engine

    def submit(self, request: Request) -> AsyncIterator[Delta]:
        return self._engine.submit(request)

    def abort(self, request_id: str) -> None:
        self._engine.abort(request_id)

    def health(self) -> Health:
        return self._engine.health()

    def gauges(self) -> Gauges:
        return self._engine.gauges()
