"""Which limit binds, from a `Tally` alone: the name, the numbers that say so, and a sentence. Pure arithmetic, for whoever asks."""
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.serve.engine.tally import DECODE, DRAFTING, HOST, KERNELS, KV, PREFILL, UNMEASURED, WEIGHTS, Tally

PREFILL_COMPUTE, DECODE_COMPUTE, WEIGHT_BANDWIDTH, KV_BANDWIDTH, KV_CAPACITY, QUEUEING, HOST_OVERHEAD, ARRIVALS = (
    "prefill_compute", "decode_compute", "weight_bandwidth", "kv_bandwidth", "kv_capacity", "queueing", "host_overhead", "arrival_limited")
LIMITS = {  # as they are called
    PREFILL_COMPUTE: "prefill compute", DECODE_COMPUTE: "decode compute", WEIGHT_BANDWIDTH: "weight bandwidth",
    KV_BANDWIDTH: "KV bandwidth", KV_CAPACITY: "KV capacity", QUEUEING: "queueing or admission", HOST_OVERHEAD: "host overhead",
    ARRIVALS: "arrival-limited", UNMEASURED: "not known",
}
OF_BOUND = {PREFILL: PREFILL_COMPUTE, DECODE: DECODE_COMPUTE, WEIGHTS: WEIGHT_BANDWIDTH, KV: KV_BANDWIDTH, KERNELS: HOST_OVERHEAD,
            DRAFTING: HOST_OVERHEAD, HOST: HOST_OVERHEAD, UNMEASURED: UNMEASURED}
ONCE = (WEIGHTS, KERNELS, DRAFTING, HOST)  # what a step pays once, but for `Tally.more_s` and `kernel_rows_s`
WAITS = 0.25  # of the time in which somebody waits: more is no passing queue
GROWS = 1.1  # a batch of twice the size that gives so many times the tokens would pay
THRASHES = 0.1  # preemptions for each request: what was computed is computed again
IDLE = 0.1  # of the time
TOLD = 0.01  # of the weights' bytes
LACKS = {"seqs": "a seat (--max-num-seqs)", "tokens": "tokens in a step (--max-num-batched-tokens)", "batching": "the batching mode",
         "scored": "a step's rows for the log-probabilities of prompts",
         "tpot": "the pace of running requests (--chunking)", "kv": "KV blocks"}


@dataclass(frozen=True, slots=True)
class Limit:
    """`share`: of the time in which it binds. `reached`: share of the machine's measured limit that is reached, where it is such a
    limit."""

    name: str
    sentence: str
    share: float
    reached: float | None = None


def evidence(tally: Tally) -> dict[str, float]:
    """The numbers from which the limit's name is derived: shares of the time, and means."""
    wall = tally.wall_s or 1.0
    found = {f"{bound}_share": seconds / wall for bound, seconds in tally.bound_s.items()}
    found |= {f"waits_for_{reason}_share": seconds / wall for reason, seconds in tally.waiting_s.items()}
    found |= {f"{bound}_reached": reached for bound in tally.bound_s if (reached := reached_of(tally, bound)) is not None}
    return found | {
        "seconds": tally.wall_s, "busy_share": tally.busy_s / wall, "idle_share": idle_share(tally), "mean_running": tally.mean_running,
        "mean_waiting": tally.mean_queued, "twice_the_batch": growth(tally), "preemptions_per_request": thrashing(tally)}


def limit_of(tally: Tally) -> Limit:
    """Checks first what keeps requests waiting though a larger batch would pay, then whether there is enough to do, then what binds the
    steps."""
    if not tally.busy_s:
        return Limit(ARRIVALS, "Idle: there was nothing to compute.", 1.0)
    waiting = {reason: min(1.0, seconds / tally.wall_s) for reason, seconds in tally.waiting_s.items()}
    waits = sum(waiting.values())
    if (found := _kept_out(tally, waiting)) is not None:
        return found
    idle = idle_share(tally)
    if idle >= IDLE and idle > waits:
        said = f"The engine is idle {idle:.0%} of the time, and requests wait {waits:.0%} of it: it could serve more requests."
        return Limit(ARRIVALS, said, idle)
    return _bound(tally)


def _kept_out(tally: Tally, waiting: Mapping[str, float]) -> Limit | None:
    """KV capacity or queueing, if one of them is the limit."""
    blocks, seats = waiting.get("kv", 0.0), sum(share for reason, share in waiting.items() if reason != "kv")
    thrashes, pays, queue = thrashing(tally), growth(tally) >= GROWS, tally.mean_queued
    if thrashes >= THRASHES and blocks > seats:
        said = (f"The KV cache is too small for the running requests: {thrashes:.2g} preemptions per request, whose tokens are computed "
                f"again; for {blocks:.0%} of the time requests wait for KV blocks, {queue:.3g} on average.")
        return Limit(KV_CAPACITY, said, max(blocks, min(1.0, thrashes)))
    if not pays or blocks + seats < WAITS:
        return None
    if blocks >= seats:
        name, share, reason = KV_CAPACITY, blocks, "kv"
    else:
        reason = max((reason for reason in waiting if reason != "kv"), key=lambda reason: waiting[reason])
        name, share = QUEUEING, seats
    lacks = LACKS.get(reason, reason)
    said = f"Requests wait {share:.0%} of the time for {lacks}, {queue:.3g} on average, while {tally.mean_running:.3g} run"
    if reason == "scored":  # of which no batch has more
        return Limit(name, f"{said}.", share)
    return Limit(name, f"{said}; running twice as many at once would give about {growth(tally) - 1:.0%} more.", share)


def _bound(tally: Tally) -> Limit:
    """What binds most of the busy time."""
    sums: dict[str, float] = {}
    for bound, seconds in tally.bound_s.items():
        sums[OF_BOUND[bound]] = sums.get(OF_BOUND[bound], 0.0) + seconds
    name = max(sums, key=lambda each: sums[each])
    share = sums[name] / tally.busy_s
    bound = next((bound for bound, limit in OF_BOUND.items() if limit == name), name)
    reached = reached_of(tally, bound)
    return Limit(name, _sentence(name, tally, share, reached), share, reached)


def _sentence(name: str, tally: Tally, share: float, reached: float | None) -> str:
    part = f"{share:.0%} of the busy time"
    at = "" if reached is None else f", at {reached:.0%} of the machine's measured limit"
    batch = tally.running_s / tally.busy_s
    if name == HOST_OVERHEAD:
        kernels, drafting, host = (tally.bound_s.get(bound, 0.0) / tally.busy_s for bound in (KERNELS, DRAFTING, HOST))
        drafts = f"{drafting:.0%} into drafting, " if drafting else ""
        return (f"{part} is overhead: {host:.0%} goes into scheduling, sampling and delivery, {drafts}{kernels:.0%} into kernels that run "
                "far below any limit.")
    if name == UNMEASURED:
        return ("What binds is not known, because the limits of the engine's machine were not measured: run `penstock limits` there, "
                "then restart the engine.")
    return {
        PREFILL_COMPUTE: f"The arithmetic of prompts takes {part}{at}.",
        DECODE_COMPUTE: f"The arithmetic of decoding takes {part}{at}: {batch:.3g} sequences at once are past the ridge of the roofline.",
        WEIGHT_BANDWIDTH: f"Reading the weights takes {part}{at}: once per step, for {batch:.3g} sequences{_more(tally)}.",
        KV_BANDWIDTH: f"Reading keys and values takes {part}{at}, for {batch:.3g} sequences at once.",
    }[name]


def _more(tally: Tally) -> str:
    """What twice as many sequences would read, where they are sent to other experts."""
    more = tally.more_s.get(WEIGHTS, 0.0) / tally.bound_s.get(WEIGHTS, 1.0)
    return f"; twice as many would read {more:.0%} more of them" if more >= TOLD else ""


def idle_share(tally: Tally) -> float:
    """The share of the time in which nothing is computed and no request waits for the batching mode."""
    return max(0.0, tally.wall_s - tally.busy_s - tally.held_s) / (tally.wall_s or 1.0)


def growth(tally: Tally) -> float:
    """How many times the tokens/s a batch of twice the size would give: the cost that a step has once is then shared by twice the
    sequences."""
    once_s = sum(tally.bound_s.get(bound, 0.0) for bound in ONCE) - sum(tally.more_s.values()) - tally.kernel_rows_s
    return 1 / (1 - once_s / tally.busy_s / 2) if tally.busy_s else 1.0


def thrashing(tally: Tally) -> float:
    """Preemptions per request."""
    return tally.num_preempted / max(1, tally.num_requests)


def reached_of(tally: Tally, bound: str) -> float | None:
    seconds = tally.bound_s.get(bound, 0.0)
    return tally.least_s[bound] / seconds if seconds and bound in tally.least_s else None
