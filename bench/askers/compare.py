"""Whether clients that measured the same load say the same: ratios of what they tell, and what the server itself counted meanwhile."""
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from askers.contract import Found
from penstock.study.measure.counters import growth

EXACT = 1e-9
COUNTS = ("answered", "prompt_tokens", "output_tokens")
MEASURES = ("ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99", "itl_p50", "itl_mean", "e2e_p50", "requests_per_s")
SERVED = {"ttft_mean": "time_to_first_token", "itl_mean": "inter_token_latency", "e2e_mean": "e2e_request_latency"}
TOKENS = {"prompt_tokens": "penstock_prompt_tokens_total", "output_tokens": "penstock_generation_tokens_total"}


@dataclass(frozen=True, slots=True)
class Run:
    """One client's word on one load, and the server's on the same requests (`served`, by the same names as Found's)."""

    load: str
    client: str
    round: int
    found: Found
    served: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        return {"load": self.load, "client": self.client, "round": self.round, **self.found.as_json(), "served": dict(self.served)}


def served_between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What a server's counters (Prometheus name -> value) gained, by Found's names. Nothing of what did not grow."""
    grown = growth(before, after)
    found = {name: grown.get(theirs, 0.0) for name, theirs in TOKENS.items()}
    for name, theirs in SERVED.items():
        count = grown.get(f"penstock_{theirs}_seconds_count", 0.0)
        if count > 0:
            found[name] = grown[f"penstock_{theirs}_seconds_sum"] / count
    found["answered"] = grown.get("penstock_e2e_request_latency_seconds_count", 0.0)
    return found


def ratios(runs: Sequence[Run], ours: str) -> dict[str, dict[str, dict[str, float]]]:
    """load -> rival -> measure -> the median over the rounds of (rival's figure / ours in that round)."""
    mine = {(run.load, run.round): run.found for run in runs if run.client == ours}
    pairs = [(run, mine[run.load, run.round]) for run in runs if run.client != ours and (run.load, run.round) in mine]
    return medians(((run.load, run.client), quotients(run.found.as_json(), own.as_json(), (*MEASURES, *COUNTS))) for run, own in pairs)


def over_server(runs: Sequence[Run]) -> dict[str, dict[str, dict[str, float]]]:
    """load -> client -> measure -> the median over the rounds of (the client's figure / the server's own of the same requests)."""
    return medians(((run.load, run.client), quotients(run.found.as_json(), run.served, (*SERVED, *COUNTS))) for run in runs)


def agreement(served: Mapping[str, Mapping[str, Mapping[str, float]]], ours: str) -> dict[str, dict[str, dict[str, float]]]:
    """`over_server` of each rival over that of ours: how they differ once it is known how differently they were served."""
    return {load: {client: quotients(told, clients[ours], (*SERVED, *COUNTS)) for client, told in clients.items() if client != ours}
            for load, clients in served.items() if ours in clients}


def quotients(above: Mapping[str, Any], below: Mapping[str, Any], names: Iterable[str]) -> dict[str, float]:
    """Of what both tell."""
    return {name: above[name] / below[name] for name in names if above.get(name) is not None and below.get(name)}


def medians(rows: Iterable[tuple[tuple[str, str], Mapping[str, float]]]) -> dict[str, dict[str, dict[str, float]]]:
    gathered: dict[str, dict[str, dict[str, list[float]]]] = {}
    for (load, client), told in rows:
        of = gathered.setdefault(load, {}).setdefault(client, {})
        for name, value in told.items():
            of.setdefault(name, []).append(value)
    return {load: {client: {name: statistics.median(values) for name, values in told.items()} for client, told in clients.items()}
            for load, clients in gathered.items()}


def apart(told: Mapping[str, Mapping[str, Mapping[str, float]]], tolerance: float) -> list[dict[str, Any]]:
    """The ratios of times that are further from 1 than `tolerance`, and those of counts that are not 1."""
    return [{"load": load, "client": client, "measure": name, "ratio": value} for load, clients in told.items()
            for client, measures in clients.items() for name, value in measures.items()
            if abs(value - 1) > (EXACT if name in COUNTS else tolerance)]


def table(told: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Lines: a client each, its ratios under their measures."""
    names = list(dict.fromkeys(name for measures in told.values() for name in measures))
    lines = [" " * 10 + "".join(f"{name:>16}" for name in names)]
    for client, measures in told.items():
        lines.append(f"{client:10}" + "".join(f"{measures[name]:16.3f}" if name in measures else f"{'-':>16}" for name in names))
    return lines
