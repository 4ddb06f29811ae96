"""What is written about metrics, and what watches them, speaks of metrics and labels that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.observe.metric_catalogue import METRICS

ROOT = Path(__file__).parent.parent.parent
RULES = ROOT / "ops" / "prometheus" / "holdfast-alerts.yml"
DASHBOARD = ROOT / "ops" / "grafana" / "holdfast.json"
OPERATING = ROOT / "docs" / "operating.md"

PROCESS = {
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
}
"""Of the Prometheus client; `tests/runtime/http/test_http_door.py` reads them from a member."""
SCRAPED = {"job", "instance", "cluster"}
"""Labels that Prometheus itself gives, or its configuration (`ops/prometheus/prometheus.yml`)."""
WORDS = {
    *(
        "and",
        "avg",
        "by",
        "count",
        "count_values",
        "group_left",
        "group_right",
        "histogram_quantile",
        "ignoring",
    ),
    *("increase", "label_values", "max", "min", "on", "or", "rate", "sum", "topk", "unless", "without"),
}


def samples() -> dict[str, set[str]]:
    """Every name that a sample can have, with its labels."""
    found: dict[str, set[str]] = {name: set() for name in (*PROCESS, "up")}
    for name, metric in METRICS.items():
        if metric.kind == "histogram":
            found[f"{name}_bucket"] = {*metric.labels, "le"}
            found[f"{name}_sum"] = found[f"{name}_count"] = set(metric.labels)
        else:
            found[name] = set(metric.labels)
    return found


def wrong_in(expression: str) -> list[str]:
    """Names and labels of a PromQL expression that there are not."""
    known = samples()
    bare = re.sub(r'"[^"]*"', '""', expression)
    wrong: list[str] = []
    named: set[str] = set()
    for name, matchers in re.findall(r"([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?", re.sub(r"\[[^\]]*\]", "", bare)):
        if name not in known:
            continue
        named.add(name)
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        wrong += [f"{name}{{{label}}}" for label in sorted(labels - known[name] - SCRAPED)]
    may = SCRAPED.union(*(known[name] for name in named)) | {"view"}
    grouped = re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", bare)
    wrong += [
        label for group in grouped for label in re.split(r"[,\s]+", group) if label and label not in may
    ]
    rest = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring)\s*\([^)]*\)", " ", bare)
    words = set(re.findall(r"[a-zA-Z_:][\w:]*", rest)) - WORDS - known.keys()
    return wrong + sorted(words - SCRAPED if "label_values" in bare else words)


def rules() -> Iterator[tuple[str, str]]:
    """Name and expression of each alert; each is one line."""
    name = ""
    for line in RULES.read_text(encoding="utf-8").splitlines():
        if found := re.match(r"\s+- alert: (\w+)$", line):
            name = found[1]
        elif found := re.match(r"\s+expr: (.+)$", line):
            yield name, found[1]


def panels() -> Iterator[tuple[str, str]]:
    """Title and expression of each panel of the dashboard."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]


@pytest.mark.parametrize(("name", "expression"), [*rules(), *panels()], ids=lambda text: text[:50])
def test_only_metrics_and_labels_that_there_are(name: str, expression: str) -> None:
    assert wrong_in(expression) == [], name


def test_what_there_is_not_is_found() -> None:
    assert wrong_in("holdfast_member == 0") == ["holdfast_member"]
    assert wrong_in('sum by (port) (holdfast_connections{prt="x"}) > 0') == ["holdfast_connections{prt}"]
    assert wrong_in("max without (zone) (holdfast_members)") == ["zone"]
    assert wrong_in("sum(rate(holdfast_operation_duration_seconds[5m]))") == [
        "holdfast_operation_duration_seconds"
    ]
    assert wrong_in('rate(holdfast_rejections_total{reason="logins refused"}[5m]) > 1') == []


def test_each_label_that_a_message_names_is_there() -> None:
    """`{{ $labels.zone }}` of an alert whose expression has summed that label away would be empty."""
    text = RULES.read_text(encoding="utf-8")
    for alert in text.split("- alert: ")[1:]:
        expression = re.search(r"expr: (.+)", alert)
        assert expression is not None
        named = set(re.findall(r"\$labels\.(\w+)", alert))
        gone = re.findall(r"without \(([^)]*)\)", expression[1])
        assert not named & {label.strip() for group in gone for label in group.split(",")}, alert
        assert "expr: " in alert and "summary: " in alert and "description: " in alert


def test_what_is_alerted_and_shown_is_enough() -> None:
    assert len(list(rules())) >= 10
    assert len({title for title, _ in panels()}) >= 20


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_rules_configuration_and_panels(tmp_path: Path) -> None:
    shown = {
        "groups": [
            {
                "name": "panels",
                "rules": [
                    {"record": f"panel_{number}", "expr": expression}
                    for number, (_, expression) in enumerate(panels())
                    if not expression.startswith("label_values")
                ],
            }
        ]
    }
    as_rules = tmp_path / "panels.yml"
    as_rules.write_text(json.dumps(shown), encoding="utf-8")
    for kind, path in (("rules", RULES), ("rules", as_rules), ("config", RULES.with_name("prometheus.yml"))):
        checked = subprocess.run(
            ["promtool", "check", kind, path], capture_output=True, text=True, check=False, timeout=60
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def row(name: str) -> str:
    """The line of a metric in the documentation."""
    metric = METRICS[name]
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{name}` | {metric.kind} | {labels} | {metric.meaning} |"


def test_every_metric_is_documented() -> None:
    told = [
        line for line in OPERATING.read_text(encoding="utf-8").splitlines() if line.startswith("| `holdfast_")
    ]
    assert told == [row(name) for name in METRICS]


def test_every_alert_is_documented() -> None:
    text = OPERATING.read_text(encoding="utf-8")
    assert [name for name, _ in rules() if f"`{name}`" not in text] == []
