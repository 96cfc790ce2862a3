"""The answer as a file that `penstock serve --config` reads: each option with what it gained, as a comment."""
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from penstock.core.config import EngineConfig
from penstock.core.slo import SERVED
from penstock.study.measure.slo import Slo
from penstock.study.plan.tune.levers import QUANT
from penstock.study.plan.tune.outcome import Outcome


def text(outcome: Outcome, given: EngineConfig, slo: Slo, told: Mapping[str, str]) -> str:
    """`told`: what the search was of (machine, SLO, traffic ...), in the order in which it is to be read."""
    return "".join(f"{line}\n" for line in lines(outcome, given, slo, told))


def lines(outcome: Outcome, given: EngineConfig, slo: Slo, told: Mapping[str, str]) -> Iterator[str]:
    yield "# Written by penstock tune; penstock serve --config reads it."
    for name, value in told.items():
        yield comment(f"{name}: {value}")
    yield from [comment(line) for line in (outcome.doubt, outcome.sentence) if line is not None]
    yield ""
    yield assignment("model", given.model)
    for each in fields(EngineConfig):
        value = getattr(given, each.name)
        if each.name != "model" and value != each.default:
            yield "# as given"
            yield assignment(each.name, value)
    served = {name: seconds for name, seconds in slo.most_s.items() if name in SERVED}
    if served:
        yield "# requests that bring no objectives of their own are served for these"
        yield assignment("slo_default", str(Slo(served)))
    gains = {gain.name: gain for gain in outcome.gains}
    for name, value in outcome.best:
        if name == QUANT and outcome.loss is not None:
            yield comment(outcome.loss)
        if name in gains:
            yield comment(f"against the same without it: {gains[name].pairs}")
        yield assignment(name, value)


def comment(line: str) -> str:
    return "# " + " ".join(line.split())


def assignment(name: str, value: Any) -> str:
    """JSON's strings, numbers and truth values are TOML's, but for the delete character, which TOML wants escaped."""
    return f"{name} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f")
