"""What a Prometheus would have of an engine and of its collector, and what is asked of it."""

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from collectors.scrape.loop import Counters
from collectors.service.meters import State, registry_of
from collectors.service.supervise import Supervisor

ROOT = Path(__file__).parent.parent
RULES = ROOT / "deploy" / "prometheus" / "pressure.rules.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "preemption-ledger.json"
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def pages() -> list[Sample]:
    """A page of vLLM 0.32.0, and of a collector that had every kind of trouble with one engine."""
    vllm = gzip.decompress((ROOT / "fixtures" / "pages" / "0.32.0.txt.gz").read_bytes())
    counters = Counters(last_ok_unix_ns=10**18, runs=1)
    counters.outcomes.update(ok=3, timeout=1)
    counters.tally.trouble("full")
    worker = SimpleNamespace(
        job=SimpleNamespace(instance=SimpleNamespace(target="chat", name="10.0.0.7_8000")),
        over=False,
        collector=SimpleNamespace(counters=counters),
    )
    supervisor = cast("Supervisor", SimpleNamespace(workers={"chat": worker}, begun=1))
    state = State(instances={"chat": 1}, discovery_failures={"chat": 2}, output_bytes=3)
    ours = generate_latest(registry_of(supervisor, state))
    return [
        sample
        for page in (vllm, ours)
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    ]


def dashboard() -> dict[str, Any]:
    """The file that Grafana imports."""
    return cast("dict[str, Any]", json.loads(DASHBOARD.read_text()))


def panels() -> list[dict[str, Any]]:
    """Those that show something; rows do not."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def asked() -> dict[str, str]:
    """Every query of the dashboard as Grafana sends it when all is chosen."""
    values = {"__rate_interval": "5m", "job": ".*", "instance": ".*", "collector": ".*"}
    return {
        f"{panel['title']}, {target['refId']}": _VARIABLE.sub(
            lambda found: values[found[1]], target["expr"]
        )
        for panel in panels()
        for target in panel["targets"]
    }


def alerts() -> dict[str, str]:
    """Expression of every alert."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}
