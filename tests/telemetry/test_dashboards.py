"""The dashboard and the alert rules in deploy/ ask only for numbers and labels that a server exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.homes import ROOT
from tests.telemetry.filled import every_family
from toolgate.errors import Ending
from toolgate.telemetry.exposition import render

DASHBOARD = ROOT / "deploy" / "grafana" / "toolgate.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
OF_PROMETHEUS = {"job", "instance", "le"}
"""Labels that Prometheus adds, and that of a bucket."""
METRIC = re.compile(r"\b(?:toolgate|process)_[a-z_]+")
SELECTOR = re.compile(r"\b((?:toolgate|process)_[a-z_]+)\{([^}]*)\}")
MATCHER = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)\s*\"([^\"]*)\"")
GROUPING = re.compile(r"\bby\s*\(([^)]*)\)")
LEGEND = re.compile(r"\{\{\s*(?:\$labels\.)?([a-z]+)\s*\}\}")


def exported() -> dict[str, set[str]]:
    """Each name on the page with its labels."""
    page = render([every_family()]).decode()
    return {
        sample.name: set(sample.labels) - {"le"}
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def questions() -> Iterator[tuple[str, str, str]]:
    """(where, expression, the text that names its labels)"""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]
    for rule in rules():
        yield rule["alert"], rule["expr"], rule["annotations"]["summary"]
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"], ""


ALL = list(questions())


@pytest.mark.parametrize(("where", "expression", "told"), ALL, ids=[one[0] for one in ALL])
def test_an_expression_asks_for_what_is_exported(where: str, expression: str, told: str) -> None:
    names = exported()
    used = METRIC.findall(expression)
    assert used or expression.startswith("up{"), where
    assert sorted(set(used) - names.keys()) == []
    known = set().union(*(names[name] for name in used)) | OF_PROMETHEUS
    for name, matchers in SELECTOR.findall(expression):
        assert {label for label, _ in MATCHER.findall(matchers)} <= names[name] | OF_PROMETHEUS
    grouped = {label.strip() for labels in GROUPING.findall(expression) for label in labels.split(",")}
    assert grouped <= known
    shown = set(LEGEND.findall(told))
    assert shown <= (grouped or known), f"{where} names a label that its result does not have"


@pytest.mark.parametrize("expression", [one[1] for one in ALL if not one[1].startswith("label_values(")])
def test_an_expression_is_promql(expression: str) -> None:
    promql_parser.parse(expression.replace("$__rate_interval", "5m"))


def test_what_is_not_promql_is_noticed() -> None:
    with pytest.raises(ValueError, match="parenthesis"):
        promql_parser.parse("sum by (rate(x[5m])")


def test_verdicts_that_are_asked_for_are_verdicts() -> None:
    asked = {
        verdict
        for _, expression, _ in ALL
        for label, value in MATCHER.findall(expression)
        if label == "verdict"
        for verdict in value.split("|")
    }
    assert asked
    assert asked <= {str(ending) for ending in Ending}


def test_every_family_but_the_start_of_a_process_is_on_the_dashboard() -> None:
    asked = {re.sub(r"_(bucket|count|sum)$", "", name) for _, text, _ in ALL for name in METRIC.findall(text)}
    families = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in exported()}
    assert families - asked == {"process_start_time_seconds", "toolgate_processes"}


def test_panels_do_not_overlap_and_fit_the_width() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (column, line)
            for column in range(place["x"], place["x"] + place["w"])
            for line in range(place["y"], place["y"] + place["h"])
        }
        assert max(column for column, _ in cells) < 24
        assert not taken & cells, panel["title"]
        taken |= cells


def test_every_alert_has_a_severity_and_a_line_in_the_guide() -> None:
    guide = (ROOT / "docs" / "guides" / "observing.md").read_text()
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert f"`{rule['alert']}`" in guide
