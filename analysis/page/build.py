"""A gate's answer as one HTML file that needs no network: text first, then figures of its store.

The same report and store give the same bytes with the same release of the charting library.
"""

import base64
import hashlib
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from analysis.gate.contract import Gate
from analysis.gate.verdict import GateReport
from analysis.page import answer, panels
from analysis.page.bundle import charts_script
from analysis.page.data import columnar, page_data
from analysis.page.escape import json_script, text
from analysis.page.figures import boundary
from analysis.page.figures.effects import is_percent, shown

if TYPE_CHECKING:
    import duckdb

# Its licence wants to be told wherever its code is.
_CREDIT = (
    "Charts are drawn by Vega, Vega-Lite and vega-embed, copyright University of Washington"
    " Interactive Data Lab and contributors, under the BSD 3-Clause License; no warranty."
)


def report_page(
    db: "duckdb.DuckDBPyConnection", gate: Gate, report: GateReport, report_sha256: str
) -> str:
    """The whole document; `db` is the store that `report` was judged on."""
    return page_of(page_data(db, gate, report), report, report_sha256)


def page_of(data: dict[str, Any], report: GateReport, report_sha256: str) -> str:
    """The document of figures' data that was read already (`page_data`)."""
    style, script, charts = _asset("page.css"), _asset("page.js"), charts_script()
    effects = [{"percent": is_percent(result), "rows": rows} for result, rows in shown(report)]
    values = columnar(data) | {"effects": effects, "rows_of_numbers": panels.NUMBERS}
    values |= {"boundary": [rows for _, rows in boundary.shown(report)]}
    return Template(_asset("page.html")).substitute(
        policy=_policy(style, (charts, script)),
        title=text(f"{report.verdict}: {report.gate_name}"),
        style=style,
        body=_body(data, report, report_sha256),
        data=json_script(values),
        specs=json_script(panels.specs(report)),
        charts=charts,
        script=script,
    )


def _body(data: dict[str, Any], report: GateReport, report_sha256: str) -> str:
    sections = (
        ("changes", "What changed, what was equal", answer.comparison(report)),
        ("checks", "Checks", answer.checks(report)),
        ("effects", "Effects against limits", panels.effects_figure(report)),
        ("boundary", "Boundary, at other rates", panels.boundary_figure(report)),
        ("numbers-of", "Numbers by slice and run", panels.choices(data)),
        ("statuses", "Requests by status", panels.statuses_figure(data)),
        ("latency", "Latency by preemptions, measured", panels.curves_figure(data)),
        ("pressure", "Pressure over time", panels.pressure_figure(data)),
        ("fairness", "Who paid", panels.fairness_figure(data)),
        ("conservation", "What a preemption costs", panels.conservation_figure(data)),
        ("worst", "Ten worst requests", panels.worst_table(data)),
        ("fidelity", "How right the model is", panels.fidelity_table(data)),
        ("runs", "Runs", answer.runs(report)),
        ("limitations", "Limitations", answer.limitations(report)),
        ("hashes", "Hashes", answer.hashes(report, report_sha256)),
    )
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title, _ in sections)
    parts = "".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>'
        f"{content}</section>\n"
        for name, title, content in sections
    )
    return (
        f'<main id="main" tabindex="-1">{answer.verdict(report)}'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>'
        '<noscript><p class="absent">Charts and choices need JavaScript; tables and text do not.'
        f"</p></noscript>\n{parts}</main>\n"
        f'<footer><p class="soft">{_CREDIT}</p></footer>'
    )


def _policy(style: str, scripts: tuple[str, ...]) -> str:
    """Nothing is loaded, and nothing runs or styles but what the page was written with."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(_hash, scripts))}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _asset(name: str) -> str:
    return files("analysis").joinpath("page", "assets", name).read_text("utf-8")
