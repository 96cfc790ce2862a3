"""Requests like those that were observed, for the twin: as many users as took turns, or as many a second as came, with lengths of the same
mean and spread, and the same share of their prompts in common."""
import random
from dataclasses import dataclass

from penstock.core.config import EngineConfig
from penstock.serve.engine.binding import idle_share
from penstock.study.explain.observed import Lengths, Observed
from penstock.study.plan.simulate.call import STRETCH, Call

TAKING_TURNS = 0.5  # dispersion of what those find who come, below which they are users who take turns
SPARSE = 0.5  # of the time idle: whoever finds nobody then is one of many, not one who asks again and again
SATURATED = 0.95  # busy time at which the rate that came says nothing: what waits is what counts
LEAST, MOST, PER_USER = 400, 1200, 10  # requests that are simulated
OPEN = 400
TELLING = 0.25  # of the time of a request: what less of it is spent outside the engine may be chance


@dataclass(frozen=True, slots=True)
class Traffic:
    """`users` who ask again when they are answered, or `rate` requests a second that come on their own. `shared`: of a prompt's tokens,
    those that others begin with, too. `delay_s`: each way between client and engine. `think_s`: of a user from an answer to the next
    request, the mean of a memoryless time: with one that is always the same all users would keep the order in which they began."""

    prompt: Lengths
    output: Lengths
    users: int | None = None
    rate: float | None = None
    shared: float = 0.0
    delay_s: float = 0.0
    think_s: float = 0.0

    @property
    def closed(self) -> bool:
        return self.users is not None

    def told(self) -> str:
        who = f"{self.users} users who take turns" if self.users is not None else f"{self.rate:.3g} requests a second"
        common = f", {self.shared:.0%} of prompts in common" if self.shared else ""
        return f"{who}, {self.prompt.mean:,.0f} tokens in, {self.output.mean:,.0f} out{common}"

    def calls(self, config: EngineConfig, shorter: float = 1.0) -> list[Call]:
        """Always the same ones. `shorter`: answers take so many times fewer steps than they have tokens."""
        rng, thinking = random.Random(0), random.Random(1)
        most = min(config.max_model_len or STRETCH, config.kv_tokens or STRETCH) - 1
        prefix = int(self.shared * self.prompt.mean) // config.block_size * config.block_size
        found, at_s = [], 0.0
        for number in range(self._count()):
            output = min(draw(rng, self.output), most // 2)
            length = min(max(draw(rng, self.prompt), prefix + 1), most - output)
            common, first = min(prefix, length - 1), (number + 1) * STRETCH
            parts = (range(common), range(first, first + length - common)) if common > 0 else (range(first, first + length),)
            after_s = thinking.expovariate(1 / self.think_s) if self.think_s else 0.0
            found.append(Call(at_s, parts, max(1, round(output / shorter)), after_s=after_s))
            at_s += rng.expovariate(self.rate) if self.rate else 0.0
        return found

    def _count(self) -> int:
        return OPEN if self.users is None else max(LEAST, min(MOST, PER_USER * self.users), 2 * self.users)


def traffic_of(seen: Observed) -> Traffic:
    """Who takes turns with others finds all of them whenever he comes back; who comes on his own finds now more of them, now fewer."""
    tally = seen.tally
    inside, rate = tally.mean_running + tally.mean_queued, seen.requests_per_s
    turns = idle_share(tally) < SPARSE if tally.dispersion is None else tally.dispersion < TAKING_TURNS
    inside_s = inside / rate  # Little's law
    outside_s = max(0.0, (seen.e2e_s or 0.0) - inside_s)
    delay_s = outside_s / 2 if outside_s > TELLING * (seen.e2e_s or 0.0) else 0.0
    if turns or saturated(seen):
        users = max(1, round(tally.mean_found if turns else inside))
        away_s = max(0.0, users / rate - inside_s)
        delay_s = min(delay_s, away_s / 2)
        return Traffic(seen.prompt, seen.output, users, None, seen.hit_share, delay_s, away_s - 2 * delay_s)
    return Traffic(seen.prompt, seen.output, None, rate, seen.hit_share, delay_s)


def saturated(seen: Observed) -> bool:
    """More come than can be answered: they are taken for as many users as there were requests on average."""
    tally = seen.tally
    return tally.busy_s >= SATURATED * tally.wall_s and tally.mean_queued > tally.mean_running


def draw(rng: random.Random, lengths: Lengths) -> int:
    if lengths.scv < 1e-3:
        return max(1, round(lengths.mean))
    return max(1, round(rng.gammavariate(1 / lengths.scv, lengths.mean * lengths.scv)))
