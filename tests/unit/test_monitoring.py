"""What watches Lockstep asks for metrics that there are: dashboard, alerts, autoscaler."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml

REPO = Path(__file__).resolve().parents[2]
MONITORING = REPO / "deploy/monitoring"
SUFFIX = re.compile(r"_(bucket|sum|count)$")


def metrics_there_are():
    source = "".join(path.read_text() for path in (REPO / "gateway").rglob("*.c"))
    return set(re.findall(r'"(lockstep_[a-z_]+)"', source))


@pytest.mark.parametrize("name", ["grafana.json", "alerts.yml"])
def test_every_metric_exists(name):
    asked = {SUFFIX.sub("", found) for found in re.findall(r"lockstep_[a-z_]+", (MONITORING / name).read_text())}
    assert len(asked) >= 4 and asked - metrics_there_are() == set()


def test_every_metric_is_documented():
    section = re.search(r"### Metrics\n(.*?)\n## ", (REPO / "docs/operations.md").read_text(), re.S)[1]
    documented = re.findall(r"`(lockstep_[a-z_]+)`", section)
    assert len(documented) == len(set(documented)) and set(documented) == metrics_there_are()


def test_the_dashboard_is_what_its_program_writes():
    spec = importlib.util.spec_from_file_location("dashboard", MONITORING / "dashboard.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    written = json.loads((MONITORING / "grafana.json").read_text())
    assert written == program.dashboard()
    ids = [panel["id"] for panel in written["panels"]]
    assert len(ids) == len(set(ids)) > 15


def test_prometheus_reads_the_alerts():
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    rules = yaml.safe_load((MONITORING / config["rule_files"][0]).read_text())
    assert all({"alert", "expr", "annotations"} <= set(rule) for group in rules["groups"] for rule in group["rules"])
    assert config["scrape_configs"][0]["static_configs"]
