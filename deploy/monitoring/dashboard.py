#!/usr/bin/env python3
"""Writes grafana.json, the dashboard: deploy/monitoring/dashboard.py >deploy/monitoring/grafana.json"""

import json


def quantile(share, name):
    return f"histogram_quantile({share}, sum by (le) (rate(lockstep_{name}_bucket[$__rate_interval])))"


def rate(name, by=""):
    return f"sum{by} (rate(lockstep_{name}[$__rate_interval]))"


# Figures of the run are the same at every gateway: the largest of them; those of HTTP are each gateway's own: their sum.
ROWS = [
    ("Now", [
        ("Ready", "stat", "none", {"": "max(lockstep_ready)"}),
        ("Tokens per second", "stat", "none", {"": "max by (job) (sum by (instance, job) (rate(lockstep_sampler_turns_total[$__rate_interval])))"}),
        ("Running", "stat", "none", {"": "max by (job) (sum by (instance, job) (lockstep_worker_running))"}),
        ("Waiting", "stat", "none", {"": 'max(lockstep_slots{stage="compute"}) - max by (job) (sum by (instance, job) (lockstep_worker_running))'}),
    ]),
    ("What clients see", [
        ("Time to the first token", "timeseries", "s", {f"{100 * q:g} %": quantile(q, "time_to_first_token_seconds") for q in (0.5, 0.95, 0.99)}),
        ("Time between tokens", "timeseries", "s", {f"{100 * q:g} %": quantile(q, "time_between_tokens_seconds") for q in (0.5, 0.95, 0.99)}),
        ("Whole request", "timeseries", "s", {f"{100 * q:g} %": quantile(q, "request_seconds") for q in (0.5, 0.95)}),
        ("Results", "timeseries", "reqps", {"{{code}}": rate("results_total", " by (code)")}),
    ]),
    ("Work", [
        ("Positions computed per second", "timeseries", "none", {
            "prefill": "max by (job) (sum by (instance, job) (rate(lockstep_prefill_tokens_total[$__rate_interval])))",
            "decode": "max by (job) (sum by (instance, job) (rate(lockstep_decode_tokens_total[$__rate_interval])))"}),
        ("Where a request's time goes (95 %)", "timeseries", "s", {
            part: quantile(0.95, f"{part}_seconds") for part in ("queue", "prefill", "decode")}),
        ("Prompt tokens from the cache", "timeseries", "percentunit", {"share": f"{rate('cached_tokens_total')} / {rate('prompt_tokens_total')}"}),
        ("Slots by stage", "timeseries", "none", {"{{stage}}": 'max by (stage) (lockstep_slots{stage!="free"})'}),
        ("Connections and requests", "timeseries", "none", {
            "connections": "sum(lockstep_http_connections)", "requests": "sum(lockstep_http_requests_running)"}),
    ]),
    ("What went wrong, and went on", [
        ("Deaths, freezes, take-overs", "timeseries", "none", {
            name: f"max(increase(lockstep_{name}_total[$__rate_interval]))" for name in ("deaths", "stalls", "takeovers")}),
        ("From the last beat to the take-over", "timeseries", "s", {f"{100 * q:g} %": f"histogram_quantile({q}, max by (le) (rate(lockstep_recovery_seconds_bucket[$__rate_interval])))" for q in (0.5, 0.99)}),
        ("Streams gone on with", "timeseries", "none", {"resumed": "sum(increase(lockstep_resumed_total[$__rate_interval]))"}),
        ("Refused and dropped", "timeseries", "none", {
            "over a limit": rate("http_refused_total"), "malformed": rate("http_faults_total"), "did not read": rate("http_dropped_slow_total")}),
    ]),
]
SOURCE = {"type": "prometheus", "uid": "${source}"}


def panel(number, title, kind, unit, queries, place):
    targets = [{"refId": chr(65 + i), "expr": expr, "legendFormat": legend, "datasource": SOURCE}
               for i, (legend, expr) in enumerate(queries.items())]
    return {"id": number, "title": title, "type": kind, "datasource": SOURCE, "gridPos": place, "targets": targets,
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []}}


def dashboard():
    panels, y = [], 0
    for title, row in ROWS:
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        height, width = (4 if row[0][1] == "stat" else 8), 24 // len(row)
        for i, (name, kind, unit, queries) in enumerate(row):
            panels.append(panel(len(panels) + 1, name, kind, unit, queries, {"x": i * width, "y": y + 1, "w": width, "h": height}))
        y += height + 1
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {"title": "Lockstep", "uid": "lockstep", "schemaVersion": 39, "refresh": "5s", "time": {"from": "now-30m", "to": "now"},
            "timezone": "browser", "tags": ["lockstep"], "templating": {"list": [source]}, "panels": panels}


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=1))
