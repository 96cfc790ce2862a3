"""Prometheus' text format 0.0.4, by a reader that lets nothing else pass, unlike prometheus_client's; and the metrics of a busy server."""
import math
import re
from dataclasses import dataclass, field

from penstock.core.clock import VirtualClock
from penstock.core.drafting import Drafting
from penstock.core.events import StepRecord
from penstock.core.hardware import Hardware
from penstock.serve.api.metrics import Metrics
from penstock.serve.engine.ledger import Ledger
from penstock.serve.engine.requests import Gauges, Usage
from penstock.serve.engine.utilization import Utilization

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})(?:\{{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*)\}})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\[\\"n])*)"')
PARTS = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    kind: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


def families_of(text: str) -> dict[str, Family]:
    """Fails where a family is not introduced by HELP and TYPE, is told in two places, or has a sample twice or of another name."""
    assert text.endswith("\n") and "\r" not in text
    found: dict[str, Family] = {}
    helped = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            helped, words = line.removeprefix("# HELP ").split(" ", 1)
            assert helped not in found and words.endswith("."), line
        elif line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            assert name == helped and kind in PARTS and re.fullmatch(NAME, name), line
            found[name] = Family(kind)
        else:
            matched = SAMPLE.fullmatch(line)
            assert matched is not None, line
            family = found[helped]
            assert matched[1] in [helped + part for part in PARTS[family.kind]], line
            labels = tuple(sorted((each[1], each[2]) for each in LABEL.finditer(matched[2] or "")))
            assert (matched[1], labels) not in family.samples and len(dict(labels)) == len(labels), line
            family.samples[matched[1], labels] = float(matched[3])
    return found


def check(found: dict[str, Family]) -> None:
    for name, family in found.items():
        assert family.kind != "counter" or (name.endswith("_total") and all(value >= 0 for value in family.samples.values())), name
        assert family.kind == "counter" or not name.endswith("_total"), name
        if family.kind == "histogram":
            buckets = [(float(dict(labels)["le"]), value) for (part, labels), value in family.samples.items() if part.endswith("_bucket")]
            assert buckets == sorted(buckets) and buckets[-1][0] == math.inf, name
            assert [value for _, value in buckets] == sorted(value for _, value in buckets), name
            assert family.samples[f"{name}_count", ()] == buckets[-1][1] and family.samples[f"{name}_sum", ()] >= 0, name


def busy() -> Metrics:
    """Of which every family has samples."""
    clock = VirtualClock()
    hardware = Hardware("box", {1: 1e9}, {"fp32": 1e9})
    made = Metrics(Gauges)
    made.watch(Gauges, Utilization(hardware, "fp32", clock), Ledger(hardware, "fp32", clock))
    for number in range(2):
        made.on_step(StepRecord(number, 1.0 * number, 0.5, 0.4, 1, 4, 2, 2, 1, 10, 10, 10, 10, num_running=1, num_waiting=1, waits_for="kv",
                                num_draft_seqs=1, drafting=Drafting(1, 2, (1, 1), (1, 0)), waited_s=(0.25,)))
    made.on_queue(0.00004)
    made.on_first_token(0.3)
    made.on_tokens(1000.0, 2)
    made.on_request("stop", Usage(1, 1), 0.1)
    made.on_objectives(True)
    return made
