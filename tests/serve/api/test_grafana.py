"""The Grafana dashboard in docs/: every metric and label that it names is one that the server has, and its panels do not overlap."""
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.core.clock import VirtualClock
from penstock.core.drafting import Drafting
from penstock.core.events import StepRecord
from penstock.core.hardware import Hardware
from penstock.serve.api.metrics import Metrics
from penstock.serve.engine.requests import Gauges, Usage
from penstock.serve.engine.utilization import Utilization

BOARD = json.loads((Path(__file__).parents[3] / "docs/grafana/penstock.json").read_text())
GIVEN_BY_PROMETHEUS = {"instance", "le"}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in BOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


@pytest.fixture(scope="module")
def metrics() -> dict[str, set[str]]:
    """Every sample that a busy server has, and its labels."""
    clock = VirtualClock()
    hardware = Hardware("box", {1: 1e9}, {"fp32": 1e9})
    made = Metrics(Gauges)
    made.watch(Gauges, Utilization(hardware, "fp32", clock))
    made.on_step(StepRecord(1, 0.0, 0.5, 0.4, 1, 4, 2, 2, 1, 10, 10, 10, 10, num_draft_seqs=1, drafting=Drafting(1, 2, (1, 1), (1, 0))))
    made.on_request("stop", Usage(1, 1), 0.1)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(made.render().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_metric_is_the_servers(metrics: dict[str, set[str]]) -> None:
    named = {name for expression in expressions() for name in re.findall(r"\bpenstock_\w+", expression)}
    assert len(named) > 20 and named <= metrics.keys(), sorted(named - metrics.keys())


def test_every_label_is_the_metrics(metrics: dict[str, set[str]]) -> None:
    for expression in expressions():
        known = GIVEN_BY_PROMETHEUS.union(*(metrics[name] for name in re.findall(r"\bpenstock_\w+", expression)))
        asked = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(",")}
        assert asked <= known, f"{sorted(asked - known)} in {expression}"


def test_every_expression_is_balanced_and_of_the_chosen_instances() -> None:
    for expression in expressions():
        assert all(expression.count(a) == expression.count(b) for a, b in ("()", "[]", "{}")), expression
        assert expression.count("penstock_") == expression.count('{instance=~"$instance"'), expression


def test_every_panel_has_its_own_place_unit_and_words() -> None:
    for panel in panels():
        assert panel["title"] and panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"]
    for one, other in itertools.combinations((panel["gridPos"] for panel in BOARD["panels"]), 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    assert not re.search(r"https?://", json.dumps(BOARD))
