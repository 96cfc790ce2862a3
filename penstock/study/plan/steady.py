"""How one replica does in the long run, by arithmetic: means of steps that a StepTimer times, no events.

Prompts are computed in chunks that ride along with the tokens that are decoded (Agrawal et al., "Sarathi-Serve", OSDI 2024), so a step is
mixed or decodes only. In a closed loop a fixed number of requests is always there, and one waits only where all steps are full; in an open
one they come at random and wait for a prompt's turn: as in an M/D/1 queue where a prompt takes several steps, for the next step where that
takes whole prompts (`batches`), on replicas of their own as beside tokens. With stages (pipeline parallelism) a pass is one micro-batch
going through them, and from a token to the next of its sequence there are as many as there are stages: where sequences are fewer, one for
each of them, and no less time than one takes through all stages.
"""
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.compute.steptime import Roofline, StepTime
from penstock.core.work import StepWork
from penstock.study.plan.batches import Batches, waiting

PASSES = 100  # of the iteration to a fixed point
IDLE = 0.01  # of a pass with a prompt: how often a replica that has nothing else to do looks for one
PREFILL, DECODE, INTERCONNECT = "prefill compute", "decode compute", "interconnect"
BOUNDS = (("weights", "weight bandwidth"), ("kv", "KV bandwidth"), ("activations", "activation bandwidth"),
          ("kernels", "kernel overhead"), ("host", "host overhead"), ("network", INTERCONNECT))
BEYOND = "overhead beyond the roofline"  # of steps that were measured


@dataclass(frozen=True, slots=True)
class MeanStep:
    """A step of many, on average: sequences that decode, and prompts of which some rows are computed."""

    decodes: float
    context: float  # tokens that each of them sees
    prompts: float = 0.0
    rows: float = 0.0  # of each prompt
    total: float = 0.0  # tokens of each prompt in the cache after it

    @property
    def num_tokens(self) -> float:
        return self.decodes + self.prompts * self.rows

    @property
    def num_logits(self) -> float:
        return self.decodes + self.prompts

    @property
    def prompt_share(self) -> float:
        """Of its rows, those of prompts."""
        return self.prompts * self.rows / self.num_tokens if self.num_tokens else 0.0

    def sequences(self) -> Iterator[tuple[float, float, float]]:
        yield self.decodes, 1, self.context
        if self.prompts:
            yield self.prompts, *self._prompt()

    def windowed(self, window: int | None) -> tuple[float, float]:
        seen = self.context if window is None else min(self.context, window)
        read = pairs = self.decodes * seen
        if self.prompts:
            own = StepWork((self._prompt(),)).windowed(window)
            read, pairs = read + self.prompts * own[0], pairs + self.prompts * own[1]
        return read, pairs

    def _prompt(self) -> tuple[int, int]:
        """Rows of each, and tokens of each in the cache after the step."""
        return max(1, round(self.rows)), max(1, round(self.total))


@dataclass(frozen=True, slots=True)
class Queue:
    """Waiting for a prompt's turn: M/D/1, its tail as in heavy traffic (Kingman, 1961)."""

    service_s: float
    busy: float  # below 1
    after_s: float = 0.0  # what follows without waiting

    @property
    def mean_s(self) -> float:
        return self.after_s + self.service_s * (1 + self.busy / (2 * (1 - self.busy)))

    def later(self, seconds: float) -> "Queue":
        return replace(self, after_s=self.after_s + seconds)

    def share_within(self, seconds: float) -> float:
        """Of requests whose first token comes within so many seconds."""
        left = seconds - self.service_s - self.after_s
        return 0.0 if left < 0 else 1 - self.busy * math.exp(-2 * (1 - self.busy) * left / self.service_s)

    def percentile(self, share: float) -> float:
        """Seconds within which this share of the requests has its first token; no less than the mean."""
        waits = math.log(self.busy / (1 - share)) / (2 * (1 - self.busy)) if self.busy > 1 - share else 0.0
        return max(self.mean_s, self.after_s + self.service_s * (1 + waits))


@dataclass(frozen=True, slots=True)
class Point:
    """What a replica does."""

    queue: Queue | Batches
    ttft_s: float
    tpot_s: float
    requests_per_s: float
    running: float  # requests that are in the KV cache
    mixed: StepTime  # engine's seconds of a mean pass, those of mixed passes
    decoding: StepTime  # and those that only decode; with nothing to do it takes none
    prompt_share: float  # of the rows of mixed passes, those of prompts
    prefilling: float | None = None  # at a rate: share of the time in which prompts are computed, of the replicas that do

    def shares(self) -> dict[str, float]:
        """Of the engine's time, by what binds."""
        return shares_of(self.mixed, self.decoding, self.prompt_share)


def shares_of(mixed: StepTime, decoding: StepTime, prompt_share: float, beyond_s: float = 0.0) -> dict[str, float]:
    """Of the time of steps that compute prompts and of those that only decode, by what binds. `prompt_share`: of the rows of the former,
    those of prompts, by which their arithmetic is divided, as the engine's own counters have it. `beyond_s`: seconds that they took and no
    limit accounts for."""
    whole = mixed.seconds + decoding.seconds + beyond_s
    prefill = mixed.compute * prompt_share
    shares = {PREFILL: prefill / whole, DECODE: (mixed.compute - prefill + decoding.compute) / whole}
    shares |= {name: (getattr(mixed, field) + getattr(decoding, field)) / whole for field, name in BOUNDS}
    return shares | ({BEYOND: beyond_s / whole} if beyond_s else {})


def told_of(shares: Mapping[str, float]) -> dict[str, Any]:
    """Fields of a Configuration: the shares, and the largest."""
    return {"bound": max(shares, key=lambda name: shares[name]), "shares": {name: round(share, 4) for name, share in shares.items()}}


class Steady:
    """A replica under requests of one length. `chunk`: tokens of prompts in a step, at most."""

    def __init__(self, timer: Roofline, stages: int, lengths: tuple[int, int], chunk: int) -> None:
        self._timer = timer
        self._stages = stages
        self._input, output = lengths
        self._steps = output - 1  # the first token comes with the prompt
        self._chunk = chunk
        self._chunks = math.ceil(self._input / chunk)
        self._context = self._input + output / 2

    def closed(self, batch: int) -> Point:
        """`batch` requests at once; one that ends is followed by another."""
        steps, chunks, turn = self._steps, self._chunks, min(self._stages, batch)
        life = chunks + steps * turn  # passes
        wanted = batch * self._input / life  # rows of prompts, in a pass
        if wanted > self._chunk:
            return self._saturated(batch)
        mixed_share = min(1.0, (batch - 1) * chunks / (steps * turn)) if steps else 0.0  # of the passes in which it decodes
        rows = max(self._input / chunks, wanted)
        mixed = self._mixed((batch - 1) * steps / life, rows)
        decode = self._decode(max(1.0, batch * steps / life))
        tpot = self._token_seconds(turn, mixed_share, mixed, decode)
        own = self._own_seconds(mixed)
        # A prompt's turn comes when a request ends: none waits while rows are left, but for the step that has begun when the next arrives.
        queue = Queue(own, 0.0, self._timer.interval(decode) if batch > 1 and steps else 0.0)
        share = min(1.0, batch * chunks / life)
        return Point(queue, queue.mean_s, tpot, batch / (own + steps * tpot), batch,
                     self._timer.told(mixed).scaled(share), self._timer.told(decode).scaled(1 - share), mixed.prompt_share)

    def open(self, rate: float, most: float) -> Point | None:
        """Requests that come at `rate`, of which `most` fit in the KV cache. None where it cannot keep up."""
        steps, chunks = self._steps, self._chunks
        passed = self._timer.interval(self._decode(1.0))
        for _ in range(PASSES):
            decodes = rate * steps * passed  # in a pass
            rows = max(self._input / chunks, rate * passed * self._input)
            share = min(1.0, rate * chunks * passed)
            if rows > self._chunk * (1 + 1e-9) or decodes * self._turn(decodes) > max(1.0, most):
                return None
            mixed, decode = self._mixed(decodes, rows), self._decode(max(1.0, decodes))
            now = share * self._timer.interval(mixed) + (1 - share) * self._timer.interval(decode)
            settled, passed = abs(now - passed) < 1e-5 * passed, now
            if settled:
                break
        queue = self._waiting(rate, decodes, passed, mixed if chunks > 1 else None)
        if queue is None:
            return None
        tpot = self._token_seconds(self._turn(decodes), share, mixed, decode)
        running = rate * (queue.mean_s + steps * tpot)
        if running > most:
            return None
        mixed_time, other = self._timer.told(mixed).scaled(share), self._timer.told(decode).scaled(1 - share)
        return Point(queue, queue.mean_s, tpot, rate, running, mixed_time, other.scaled(occupied(decodes)), mixed.prompt_share,
                     mixed_time.seconds / (mixed_time.seconds + other.seconds))

    def _waiting(self, rate: float, decodes: float, passed: float, chunk: MeanStep | None) -> Queue | Batches | None:
        """`chunk`: of a prompt, a step with it; None: steps take whole prompts. None where it cannot keep up."""
        if chunk is None:
            return waiting(rate, self._chunk / self._input, occupied(decodes), lambda count: self._pass_seconds(decodes, count))
        full = rate * self._chunks * passed >= 1
        busy = rate * passed * self._input / self._chunk if full else rate * self._chunks * self._timer.interval(chunk)
        after_s = passed / 2 * min(1.0, decodes)  # the step that is under way has to end first
        return Queue(self._own_seconds(chunk), busy, after_s) if busy < 1 else None

    def _pass_seconds(self, decodes: float, prompts: float) -> tuple[float, float]:
        """(until the next one may begin, through all stages) of a pass that takes so many prompts."""
        step = self._mixed(decodes, prompts * self._input) if prompts else self._decode(max(1.0, decodes))
        return self._timer.interval(step), self._timer.seconds(step)

    def prefill(self, rate: float) -> Queue | Batches | None:
        """Of a replica that only computes prompts. None where it cannot keep up."""
        if self._chunks == 1:
            most, idle_s = self._chunk / self._input, IDLE * self._pass_seconds(0.0, 1)[0]
            if rate * self._pass_seconds(0.0, most)[0] >= most:
                return None
            return waiting(rate, most, 0.0, lambda count: self._pass_seconds(0.0, count) if count else (idle_s, idle_s))
        step = self._mixed(0.0, self._input / self._chunks)
        busy = rate * self._chunks * self._timer.interval(step)
        return Queue(self._own_seconds(step), busy) if busy < 1 else None

    def computing(self, rate: float, busy: float) -> StepTime:
        """Where a second of a replica's time goes that only computes prompts. `busy`: of it, in which it does."""
        most = self._chunk / self._input
        together = min(most, max(1.0, rate * self._pass_seconds(0.0, 1.0)[0])) if self._chunks == 1 else 1 / self._chunks
        return scaled_to(busy, self._timer.told(self._mixed(0.0, together * self._input)))

    def decode(self, rate: float, most: float) -> tuple[float, StepTime] | None:
        """(seconds between tokens, where a second of its time goes) of a replica that is handed prompts computed elsewhere."""
        passed = self._timer.interval(self._decode(1.0))
        for _ in range(PASSES):
            decodes = rate * self._steps * passed
            if decodes * self._turn(decodes) > most or decodes > 1e7:
                return None
            step = self._decode(max(1.0, decodes))
            now = self._timer.interval(step)
            settled, passed = abs(now - passed) < 1e-5 * passed, now
            if settled:
                tpot = self._token_seconds(self._turn(decodes), 0.0, step, step)
                return (tpot, scaled_to(occupied(decodes), self._timer.told(step))) if rate * self._steps * tpot <= most else None
        return None

    def _saturated(self, batch: int) -> Point:
        """Every pass is full of prompts' rows: they set the rate, and all else waits."""
        prompts = self._chunk / self._input  # in a pass
        mixed = self._mixed(self._steps * prompts, self._chunk)
        passed = self._timer.interval(mixed)
        rate = prompts / passed
        tpot = self._stages * passed if self._steps else 0.0
        own = self._own_seconds(mixed)
        ttft = max(own, batch / rate - self._steps * tpot)
        queue = Queue(own, 0.0)
        return Point(queue, ttft, tpot, batch / (ttft + self._steps * tpot), batch, self._timer.told(mixed), StepTime(),
                     mixed.prompt_share)

    def _turn(self, decodes: float) -> float:
        """Passes from a token to the next of its sequence, with so many that decode in each: one of its own and one of each of the others
        that are there, at most as many as there are stages."""
        return 1 / max(1 - decodes, 1 / self._stages)

    def _token_seconds(self, turn: float, mixed_share: float, mixed: MeanStep, decode: MeanStep) -> float:
        """From a token to the next of its sequence, between which there are so many passes, of which this share is mixed; 0 where an answer
        has one token."""
        passed, through = (mixed_share * seconds(mixed) + (1 - mixed_share) * seconds(decode)
                           for seconds in (self._timer.interval, self._timer.seconds))
        return max(turn * passed, through) if self._steps else 0.0

    def _own_seconds(self, mixed: MeanStep) -> float:
        """From a prompt's first chunk to its first token: chunks follow one another through the stages."""
        return (self._chunks - 1) * self._timer.interval(mixed) + self._timer.seconds(mixed)

    def _mixed(self, decodes: float, rows: float) -> MeanStep:
        """With a chunk of a mean prompt: it stands in the middle. More rows than a prompt has are several prompts."""
        prompts = max(1.0, rows / self._input) if self._chunks == 1 else 1.0
        each = rows / prompts
        return MeanStep(decodes, self._context, prompts, each, (self._input + each) / 2)

    def _decode(self, decodes: float) -> MeanStep:
        return MeanStep(decodes, self._context)


def occupied(decodes: float) -> float:
    """Of the passes without prompts, in which so many sequences decode on average, those in which any does."""
    return 1 - math.exp(-decodes)


def scaled_to(seconds: float, time: StepTime) -> StepTime:
    return time.scaled(seconds / time.seconds)
