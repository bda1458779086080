"""The alerts and the dashboard's queries, asked of Prometheus's own engine by promtool."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from dashboards import RULES, asked, pages

pytestmark = pytest.mark.prometheus


def promtool(*arguments: object, folder: Path) -> str:
    """What it prints; it has to be content."""
    program = shutil.which("promtool")
    assert program, "needs the program promtool, of Debian's package prometheus"
    done = subprocess.run(
        [program, *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert 0 == done.returncode, said
    return said


def test_the_alerts_fire_when_they_should_and_not_when_they_should_not() -> None:
    """As the file beside them says."""
    assert "SUCCESS" in promtool("check", "rules", RULES.name, folder=RULES.parent)
    assert "SUCCESS" in promtool("test", "rules", "pressure.test.yaml", folder=RULES.parent)


def test_every_alert_has_a_test_that_makes_it_fire() -> None:
    """An alert that nobody saw fire is a hope."""
    tests = (RULES.parent / "pressure.test.yaml").read_text()
    names = [line.split()[-1] for line in RULES.read_text().splitlines() if "- alert:" in line]
    assert 8 == len(names)
    assert [] == [name for name in names if name not in tests]


def test_every_query_of_the_dashboard_finds_something(tmp_path: Path) -> None:
    """In ten minutes of a recorded vLLM's page and of the collector's, all counters rising."""
    series = []
    for sample in pages():
        labels = {"job": "vllm", "instance": "gpu-1:8000"} | sample.labels
        if "instance" in sample.labels:  # as Prometheus does where a target has a label of its own
            labels |= {"instance": "host:9108", "exported_instance": sample.labels["instance"]}
        text = ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
        series.append({"series": f"{sample.name}{{{text}}}", "values": f"{sample.value}+1x20"})
    expected = [
        {
            "expr": f"clamp_max(count({query}), 1)",
            "eval_time": "15m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for query in asked().values()
    ]
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": expected}]
    # JSON is YAML.
    (tmp_path / "queries.yaml").write_text(json.dumps({"rule_files": [], "tests": tests}))
    assert "SUCCESS" in promtool("test", "rules", "queries.yaml", folder=tmp_path)
    assert len(expected) >= 20
