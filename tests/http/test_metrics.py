"""The metrics that pages name, dashboards draw and alarms watch are there, with the labels that these ask by."""

import json
import re
import time
from pathlib import Path

import yaml

REPO = Path(__file__).resolve().parents[2]
SUFFIX = re.compile(r"_(bucket|sum|count)$")
# Only with --models-file.
OPTIONAL = {"lockstep_handed_over_total", "lockstep_taken_in_total"}
# Prometheus' own.
GIVEN = {"instance", "job"}


def series_of(text):
    """{name: labels that each of its lines has}."""
    found = {}
    for line in text.splitlines():
        if match := re.match(r"(lockstep_\w+)(?:\{(.*)\})? \S+$", line):
            labels = set(re.findall(r'(\w+)="', match[2] or ""))
            found[match[1]] = found.get(match[1], labels) & labels
    return found


def asked_by(expression):
    """(name, labels it is asked by) of a PromQL expression; a `by` is about what stands in the brackets behind it."""
    by = {label for listed in re.findall(r"by \(([^)]*)\)", expression) for label in re.split(r"[, ]+", listed)}
    for name, selector in re.findall(r"(lockstep_\w+)(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r"(\w+)!?=", selector)) | by


def expressions():
    dashboard = json.loads((REPO / "deploy/monitoring/grafana.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    alerts = yaml.safe_load((REPO / "deploy/monitoring/alerts.yml").read_text())
    return found + [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]


def test_what_is_documented_and_watched_is_there(pipeline):
    pipeline.chat("Hello", max_tokens=4)
    time.sleep(0.1)
    text = pipeline.get("/metrics").data.decode()
    series = series_of(text)
    names = {SUFFIX.sub("", name) if f"# TYPE {SUFFIX.sub('', name)} histogram" in text else name for name in series}
    section = re.search(r"### Metrics\n(.*?)\n## ", (REPO / "docs/operations.md").read_text(), re.S)[1]
    documented = set(re.findall(r"`(lockstep_[a-z_]+)`", section))
    assert documented - names == OPTIONAL and names <= documented
    asked = [pair for expression in expressions() for pair in asked_by(expression)]
    assert len(asked) > 30
    for name, labels in asked:
        assert name in series and labels - series[name] - GIVEN == set(), (name, labels, series.get(name))
