"""From what a user asks for to an answer in a file: checked, searched, written."""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import penstock
from penstock.core.config import EngineConfig
from penstock.core.errors import UsageError
from penstock.serve.engine.machine import native_build, num_cpus, processor
from penstock.study.measure.keep import write
from penstock.study.plan.tune.budget import Budget
from penstock.study.plan.tune.conduct import Search, Terms
from penstock.study.plan.tune.engines import Engines, Goal, Watchers
from penstock.study.plan.tune.journal import Journal
from penstock.study.plan.tune.levers import Choices, Levers, levers
from penstock.study.plan.tune.outcome import Outcome
from penstock.study.plan.tune.setting import Setting
from penstock.study.plan.tune.toml import text
from penstock.study.plan.tune.traffic import Traffic

STATE = ".state.jsonl"  # behind the output's name
SAME_CACHE = 0.05  # difference of two KV caches that is not told: free memory is never quite the same


@dataclass(frozen=True, slots=True)
class Request:
    """`said`: the arguments as the user gave them, by their names; a search that goes on must have the same. `only`: these options alone
    are tried."""

    engine: EngineConfig
    traffic: Traffic
    goal: Goal
    budget: Budget
    choices: Choices
    output: Path
    said: Mapping[str, Any]
    only: tuple[str, ...] = ()
    finalists: int = 4
    pairs: int = 5
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Tuned:
    """`recalled` answers came from an earlier call."""

    outcome: Outcome
    told: Mapping[str, Any] = field(default_factory=dict)
    recalled: int = 0

    def as_json(self) -> dict[str, Any]:
        return {**self.told, **self.outcome.as_json(), "recalled": self.recalled}


def tune(request: Request, watchers: Watchers) -> Tuned:
    """Raises UsageError for what cannot be asked for, PenstockError where the engine or the files cannot be used."""
    machine = processor()
    where = f"{machine.model}, {machine.num_cpus} processors"
    options = {each.name: value for each in fields(EngineConfig) if (value := getattr(request.engine, each.name)) != each.default}
    asked = {**{f"--{name.replace('_', '-')}": value for name, value in (options | dict(request.said)).items()}, "machine": where}
    engines = Engines(request.engine, request.traffic, request.goal, watchers)
    engines.check()
    resolved = engines.resolved(Setting())
    found = levers(request.engine, resolved, request.choices, num_cpus(), request.only)
    terms = Terms(
        request.budget, request.goal.searches, request.goal.start_rate, request.traffic.is_made_up() and not request.traffic.text,
        request.finalists, request.pairs, request.traffic.arrivals.users is not None)
    if request.only:
        check_any(request.only, found, terms)
    asked |= {"weights (digest)": engines.weights(), "requests (digest)": request.traffic.digest()}
    asked |= {"version": penstock.__version__, "kernels (digest)": native_build() or "none"}
    state, now = request.output.with_name(request.output.name + STATE), resolved.kv_tokens or 0
    with Journal(state, asked, request.restart, {"kv_tokens": now}) as journal:
        if len(journal):
            watchers.say(f"going on: {len(journal)} answers are in {journal.path}")
            begun = journal.begun["kv_tokens"]
            if abs(now - begun) > SAME_CACHE * begun:
                watchers.say(f"the engine's own KV cache holds {now:,} tokens in the memory that is free now, and held {begun:,} when the "
                             "search began")
            found = levers(request.engine, replace(resolved, kv_tokens=begun), request.choices, num_cpus(), request.only)
        outcome = Search(found, terms, engines, journal, watchers.say).run()
        told = {name: str(value) for name, value in asked.items()}
        write(request.output, text(outcome, request.engine, request.goal.slo, told))
        return Tuned(outcome, {"asked": asked, "model": request.engine.model, "output": str(request.output)}, journal.num_recalled)


def check_any(only: Sequence[str], found: Levers, terms: Terms) -> None:
    """Raises UsageError where none of these options can be tried."""
    barred = {name: why for name, values in found.values.items() if values and (why := terms.bar(name)) is not None}
    if not any(values for name, values in found.values.items() if name not in barred):
        why = "; ".join(f"{name}: {reason}" for name, reason in (*found.left_out, *barred.items())) or "they have no other values here"
        raise UsageError(f"--levers {','.join(only)} leaves nothing to search: {why}")
