"""The Grafana dashboard in docs/: every metric and label that it names is one that the server has, and its panels do not overlap."""
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.serve.api.metrics import Metrics
from tests.serve.api.exposition import Family, busy, families_of

BOARD = json.loads((Path(__file__).parents[3] / "docs/grafana/penstock.json").read_text())
GIVEN_BY_PROMETHEUS = {"instance", "le"}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in BOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


@pytest.fixture(scope="module")
def families() -> dict[str, Family]:
    return families_of(busy().render().decode())


@pytest.fixture(scope="module")
def metrics(families: dict[str, Family]) -> dict[str, set[str]]:
    """Every sample that a busy server has, and its labels."""
    found: dict[str, set[str]] = {}
    for family in families.values():
        for name, labels in family.samples:
            found.setdefault(name, set()).update(dict(labels))
    return found


def test_every_metric_is_the_servers(metrics: dict[str, set[str]]) -> None:
    named = {name for expression in expressions() for name in re.findall(r"\bpenstock_\w+", expression)}
    assert len(named) > 20 and named <= metrics.keys(), sorted(named - metrics.keys())


def test_those_who_are_refused_are_shown_beside_those_who_are_answered() -> None:
    shown = " ".join(expressions())
    assert all(f"penstock_slo_{name}_total" in shown for name in ("requests", "refused", "deferred"))


def test_every_label_is_the_metrics(metrics: dict[str, set[str]]) -> None:
    for expression in expressions():
        known = GIVEN_BY_PROMETHEUS.union(*(metrics[name] for name in re.findall(r"\bpenstock_\w+", expression)))
        asked = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(",")}
        assert asked <= known, f"{sorted(asked - known)} in {expression}"


def test_counters_are_told_by_their_growth_and_gauges_as_they_are(families: dict[str, Family]) -> None:
    """And a percentile by the bounds of a histogram."""
    grows = {name: family.kind == "counter" for name, family in families.items() if family.kind != "histogram"}
    grows |= {f"{name}_bucket": True for name, family in families.items() if family.kind == "histogram"}
    for expression in expressions():
        of_growth = set(re.findall(r"\b(?:rate|increase)\((penstock_\w+)\{[^}]*\}\[\$__rate_interval\]\)", expression))
        assert of_growth == {name for name in re.findall(r"\bpenstock_\w+", expression) if grows[name]}, expression
        if "_bucket" in expression or "histogram_quantile" in expression:
            of_bounds = r"(histogram_quantile\(0\.\d+, )?sum by \(le\) \((rate|increase)\(penstock_\w+_bucket\{"
            assert re.match(of_bounds, expression), expression


def test_an_instance_of_which_nothing_is_known_does_not_hide_the_others() -> None:
    """A share is NaN without a step, and a mean over instances is NaN with one of them."""
    unknown = {name for name, family in families_of(Metrics().render().decode()).items() if any(map(math.isnan, family.samples.values()))}
    assert unknown == {"penstock_mfu_ratio", "penstock_mbu_ratio"}
    for expression in expressions():
        for name in unknown & set(re.findall(r"\bpenstock_\w+", expression)):
            assert re.search(name + r"\{[^}]*\} >= 0\)", expression), expression


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
