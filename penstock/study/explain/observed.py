"""What an engine's counters gained, as figures of its time and of its traffic."""
from dataclasses import dataclass

from penstock.core.errors import PenstockError
from penstock.core.slo import NO_OBJECTIVES, Objectives
from penstock.serve.engine.tally import Tally
from penstock.study.explain.words import short
from penstock.study.measure.counters import PREFIX, Values, ratio

UNANSWERED = ("abort", "error", "refused")  # requests whose lengths say nothing
BOUNDED = 0.1  # requests refused for their objectives, to those answered: from here on that keeps the number steady which is there


@dataclass(frozen=True, slots=True)
class Lengths:
    """Of prompts or answers, in tokens. `scv`: squared coefficient of variation, 0 where all are alike."""

    mean: float
    scv: float


@dataclass(frozen=True, slots=True)
class Drafted:
    """`rows`: drafts of a sequence, in the `share` of its steps that check any; `tokens`: that it gains in a step, of all. `seconds`: that
    drafting takes in a step that decodes, on average."""

    rows: float
    tokens: float
    share: float = 1.0
    seconds: float = 0.0

    @property
    def mean_rows(self) -> float:
        return self.share * self.rows


@dataclass(frozen=True, slots=True)
class Observed:
    """A stretch of an engine's time. Latencies are means in seconds, None where nothing is known."""

    tally: Tally
    requests_per_s: float
    output_tokens_per_s: float
    prompt: Lengths
    output: Lengths
    hit_share: float  # of prompt tokens: that a prefix cache found, or would have found
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    drafted: Drafted | None = None
    host_s: float = 0.0  # of a step, beside the backend
    step_kv_bytes: float = 0.0  # moved by a step
    refused_share: float = 0.0  # of the requests that ended
    left_per_s: float = 0.0  # requests that whoever asked gave up
    kept_share: float | None = None  # of the requests that were not refused: that kept the objectives which are judged by
    asking_share: float = 0.0  # of the requests that were answered: that carried objectives, whatever these were
    objectives: Objectives = NO_OBJECTIVES  # that requests carry, where the engine serves for them and they are known
    open_share: float = 0.0  # of the requests that were answered: that gave no max_tokens
    spare: float = 0.0  # tokens by which the answers of the others were shorter than their max_tokens, on average
    late_ratio: float = 0.0  # requests that were refused for their objectives, to those that were answered

    @property
    def bounded(self) -> bool:
        """Whether how many are there says nothing of who comes, since others are refused. The twin does so, too."""
        return bool(self.objectives) and self.late_ratio >= BOUNDED

    @property
    def good_tokens_per_s(self) -> float | None:
        return None if self.kept_share is None else self.kept_share * self.output_tokens_per_s


def observed(grown: Values, ever: Values | None = None) -> Observed:
    """`ever`: growth since the engine's start, which tells lengths where no request ended meanwhile.

    Raises PenstockError where the counters are not Penstock's, nothing was ever answered, or nothing was done meanwhile.
    """
    tally = tally_of(grown)
    if not tally.wall_s:
        raise PenstockError("the counters do not say where the engine's time went: they are of another server or an older Penstock")
    lengths = grown if answered(grown) else ever or grown
    count = answered(lengths)
    if count < 1:
        raise PenstockError(f"no request ended in {short(tally.wall_s)} s, so there is no traffic to judge by: try again "
                            "under load, or with a longer --duration")
    prompt, output = (lengths_of(lengths, name, count) for name in ("prompt", "generation"))
    tokens = value(grown, 'step_tokens_total{kind="decode"}') + value(grown, "spec_accepted_tokens_total") + answered(grown)
    if tokens < 1:
        raise PenstockError(f"no token was generated in {short(tally.wall_s)} s, so there is no traffic to judge by: try again under "
                            "load, or with --duration 0, which covers everything since the server started")
    rate = tokens / tally.wall_s
    return Observed(
        tally, rate / max(1.0, output.mean), rate, prompt, output,
        shared_of(lengths),
        mean(grown, "time_to_first_token_seconds"), mean(grown, "inter_token_latency_seconds"), mean(grown, "e2e_request_latency_seconds"),
        drafts_of(grown), tally.bound_s.get("host", 0.0) / max(1, tally.num_steps),
        value(grown, 'step_bytes_total{kind="kv"}') / max(1, tally.num_steps),
        refused_of(grown), labelled(grown, "requests").get("abort", 0.0) / tally.wall_s,
        asking_share=min(1.0, sum(labelled(lengths, "slo_requests").values()) / count),
        open_share=min(1.0, value(lengths, "open_requests_total") / count),
        spare=value(lengths, "unused_max_tokens_total") / max(1.0, count - value(lengths, "open_requests_total")),
        late_ratio=value(grown, "slo_refused_total") / max(1.0, answered(grown)))


def tally_of(grown: Values) -> Tally:
    """What `serve/api/metrics.py` made of one."""
    bound, least, waiting, requests = (
        labelled(grown, name) for name in ("step_bound_seconds", "step_bound_least_seconds", "queue_seconds", "request_seconds"))
    return Tally(
        value(grown, "engine_seconds_total"), bound, least, waiting, requests.get("running", 0.0), requests.get("waiting", 0.0),
        value(grown, "served_seconds_total"), value(grown, "held_seconds_total"), int(value(grown, "requests_arrived_total")),
        value(grown, "requests_found_total"), value(grown, "requests_found_squared_total"), int(value(grown, "requests_placed_total")),
        value(grown, "requests_after_seconds_total"), value(grown, "requests_between_seconds_total"),
        int(value(grown, "requests_followed_total")),
        value(grown, "requests_since_seconds_total"), value(grown, "requests_since_squared_seconds_total"),
        value(grown, "requests_gap_seconds_total"), value(grown, "requests_gap_squared_seconds_total"),
        int(value(grown, "requests_peaks_total")), value(grown, "requests_peaks_inverse_total"),
        int(value(grown, "wakes_total")), value(grown, "wake_seconds_total"), int(sum(labelled(grown, "steps").values())),
        int(value(grown, "preemptions_total")), int(answered(grown)),
        more_s=labelled(grown, "step_bound_more_seconds"), num_slow=int(value(grown, "slow_steps_total")),
        slow_rows=value(grown, "slow_steps_rows_total"), slow_rows_squared=value(grown, "slow_steps_rows_squared_total"),
        slow_row_s=value(grown, "slow_steps_row_seconds_total"))


def value(grown: Values, name: str) -> float:
    return grown.get(PREFIX + name, 0.0)


def labelled(grown: Values, name: str) -> dict[str, float]:
    """A counter's growth by the value of its label."""
    begin = f"{PREFIX}{name}_total{{"
    return {key[len(begin) :].split('"')[1]: count for key, count in grown.items() if key.startswith(begin) and count}


def answered(grown: Values) -> float:
    return sum(count for reason, count in labelled(grown, "requests").items() if reason not in UNANSWERED)


def refused_of(grown: Values) -> float:
    ended = labelled(grown, "requests")
    return ended.get("refused", 0.0) / sum(ended.values()) if ended else 0.0


def shared_of(grown: Values) -> float:
    found = value(grown, "prefix_cache_hits_total") + value(grown, "prefix_cache_missed_total")
    return min(1.0, ratio(found, value(grown, "prefix_cache_queries_total")) or 0.0)


def lengths_of(grown: Values, name: str, count: float) -> Lengths:
    total, squares = value(grown, f"{name}_tokens_total"), value(grown, f"{name}_tokens_squared_total")
    return Lengths(total / count, max(0.0, squares * count / total**2 - 1)) if total >= 1 else Lengths(0.0, 0.0)


def mean(grown: Values, name: str) -> float | None:
    """Of a histogram."""
    return ratio(value(grown, f"{name}_sum"), value(grown, f"{name}_count"))


def drafts_of(grown: Values) -> Drafted | None:
    decoded, passes = value(grown, 'step_tokens_total{kind="decode"}'), value(grown, "spec_passes_total")
    if not decoded or not passes:
        return None
    decodes = sum(count for kind, count in labelled(grown, "steps").items() if kind != "prefill")
    return Drafted(
        value(grown, "spec_drafted_tokens_total") / passes, 1 + value(grown, "spec_accepted_tokens_total") / decoded,
        min(1.0, passes / decoded), labelled(grown, "step_bound_seconds").get("drafting", 0.0) / max(1.0, decodes))
