"""Dashboard, alerts and the workflow that operators copy: they ask for what there is."""

import re
import shlex
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import yaml
from dashboards import ROOT, alerts, asked, dashboard, pages, panels

from analysis.gate.github import outputs
from analysis.gate.verdict import PASS
from preempt.commands.gate import run_command

METRIC = re.compile(r"\b(?:vllm:|preempt_collector_|process_)\w+")
WORKFLOW = ROOT / "deploy" / "github" / "preemption-gate.yaml"


def workflow() -> dict[str, Any]:
    """The reusable workflow; YAML 1.1 reads its key `on` as true."""
    found = yaml.safe_load(WORKFLOW.read_text())
    return {"on" if key is True else str(key): value for key, value in found.items()}


def steps() -> list[dict[str, Any]]:
    """What its only job does."""
    return list(workflow()["jobs"]["gate"]["steps"])


def test_every_metric_that_is_asked_for_is_on_a_page() -> None:
    """Of a vLLM that was recorded, or of the collector; a renamed one would be an empty panel."""
    there = {sample.name for sample in pages()}
    queries = asked() | alerts()
    wanted = {name for query in queries.values() for name in METRIC.findall(query)}
    assert set() == wanted - there
    assert all(METRIC.search(query) for query in queries.values())
    assert len(wanted) >= 20


def test_every_label_that_is_shown_is_one_of_the_query() -> None:
    """A legend of a label that the query adds up would be empty."""
    labels = {sample.name: set(sample.labels) for sample in pages()}
    target_labels = {"job", "instance", "exported_instance"}
    for panel in panels():
        for target in panel["targets"]:
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            kept = re.search(r"sum by \(([^)]*)\)", target["expr"])
            (name, *_) = METRIC.findall(target["expr"])
            there = set(kept[1].split(", ")) if kept else labels[name] | target_labels
            assert set() == shown - there, panel["title"]


def test_panels_have_a_source_an_explanation_and_a_place_of_their_own() -> None:
    """Grafana draws panels that overlap over each other, and takes the id for the same panel."""
    every = dashboard()["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    for panel in panels():
        assert "${datasource}" == panel["datasource"]["uid"]
        assert len(panel["description"]) > 10
    for one, two in combinations((panel["gridPos"] for panel in every), 2):
        beside = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
        below = one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"]
        assert beside or below
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in every)


def test_the_dashboard_has_every_variable_it_uses() -> None:
    """And none of a name that Grafana does not fill in."""
    named = {variable["name"] for variable in dashboard()["templating"]["list"]}
    text = (ROOT / "deploy" / "grafana" / "preemption-ledger.json").read_text()
    assert named | {"__rate_interval"} == set(re.findall(r"\$\{?(\w+)\}?", text)) - {"__all"}


def test_the_workflow_puts_nothing_that_a_caller_gives_into_a_script() -> None:
    """`${{ }}` in a script would run what is written there."""
    scripts = [step["run"] for step in steps() if "run" in step]
    assert 2 == len(scripts)
    assert [] == [script for script in scripts if "${{" in script]
    assert {"contents": "read"} == workflow()["permissions"]


def test_the_workflow_asks_for_what_the_command_line_takes() -> None:
    """Its call parses, with the outputs and the artifact that it passes on."""
    (script,) = (step["run"] for step in steps() if step.get("id") == "gate")
    (call,) = (line for line in script.splitlines() if "preempt gate run" in line)
    pairs = ["--baseline", "b", "--candidate", "c"]
    arguments = shlex.split(call.replace('"${arguments[@]}"', shlex.join(pairs)))[3:]
    context = run_command.make_context("run", arguments)
    assert {"github": True, "out": "verdict"} == {
        name: str(value) if name == "out" else value
        for name, value in context.params.items()
        if name in {"github", "out"}
    }
    exit_map = re.search(r"(--exit-map) ", script)
    assert exit_map is not None
    assert exit_map[1] in [opt for param in run_command.params for opt in param.opts]


def test_the_workflow_passes_on_outputs_that_the_gate_sets() -> None:
    """Verdict and reasons; its inputs are all used."""
    set_by_us = outputs(SimpleNamespace(verdict=PASS, reasons=(), observational=False), None)  # type: ignore[arg-type]
    names = {line.split("=")[0] for line in set_by_us.splitlines()}
    trigger = workflow()["on"]["workflow_call"]
    assert set(trigger["outputs"]) <= names
    text = WORKFLOW.read_text()
    assert all(f"${{{{ inputs.{name} }}}}" in text for name in trigger["inputs"])
