"""A gate report as short Markdown, for a job summary or a pull request.

Names come from gate files and manifests, so everything is escaped; nothing can become a link, a
mention or a table cell of its own.
"""

from analysis.gate import cells
from analysis.gate.boundary import tables as boundary
from analysis.gate.comparability import show
from analysis.gate.verdict import MOST_IDS, GateReport, PredicateResult
from analysis.markdown import escape, table

_IDS_SHOWN = 10
_MOST_CHARACTERS = 4000  # of one sentence; names in it are bounded already


def report_markdown(report: GateReport, report_sha256: str) -> str:
    """The whole document, ending in a newline."""
    lines = [
        f"# {report.stated}: {_words(report.gate_name)}",
        "",
        f"**{_words(report.sentence)}**",
        "",
        *_context(report),
        *_checks(report),
        *_effects(report),
        *_boundary(report),
        *_statuses(report),
        "## Limitations",
        "",
        *(f"- {_words(text)}" for text in report.limitations),
        "",
        f"gate {report.gate_sha256}, report {report_sha256}",
    ]
    return "\n".join(lines) + "\n"


def _context(report: GateReport) -> list[str]:
    compared = report.comparability
    lines = ["## What changed, what was equal", ""]
    lines += [
        f"- changed: {_words(c.field)} from {_words(show(c.baseline))} to"
        f" {_words(show(c.candidate))}"
        for c in compared.changed
    ]
    lines += [f"- **{d.label}: {_words(d.text)}**" for d in compared.differing]
    if compared.equal and not compared.refused:
        equal = ", ".join(
            f"{_words(f)} {_words(show(value))}" for f, value in compared.equal if value is not None
        )
        lines.append(f"- equal: {equal}")
    lines += [f"- note: {_words(text)}" for text in report.notes]
    if report.recommendation:
        lines.append(f"- next: {_words(report.recommendation)}")
    if report.exit_map:
        mapped = ", ".join(f"{verdict} = {code}" for verdict, code in report.exit_map)
        lines.append(f"- exit codes mapped: {mapped}")
    return [*lines, ""]


def _checks(report: GateReport) -> list[str]:
    if not report.predicates:
        return []
    headings = (
        "check",
        "verdict",
        "evidence",
        "statistic",
        "baseline",
        "candidate",
        "estimate",
        "interval",
        "limit",
    )
    rows = [
        (
            p.id,
            p.verdict,
            p.evidence,
            cells.what(p),
            cells.per_run(p, "baseline"),
            cells.per_run(p, "candidate"),
            cells.in_unit(p.estimate, p),
            cells.interval(p),
            cells.limit(p),
        )
        for p in report.predicates
    ]
    return [
        "## Checks",
        "",
        *table(headings, rows),
        "",
        *(f"- **{p.verdict}** {_words(p.id)} {_words(p.why)}{_ids(p)}" for p in report.predicates),
        "",
    ]


def _effects(report: GateReport) -> list[str]:
    rows = [
        (p.id, cells.what(p), cells.effects(p), cells.limit(p), p.method or "")
        for p in report.predicates
        if p.effects
    ]
    if not rows:
        return []
    headings = ("check", "statistic", "effect of each pair", "limit", "method")
    return ["## Pair effects", "", *table(headings, rows), ""]


def _boundary(report: GateReport) -> list[str]:
    rows, facts = boundary.rows(report), boundary.facts(report)
    if not rows and not facts:
        return []
    shown = table(boundary.HEADINGS, rows, _MOST_CHARACTERS) if rows else []
    told = [f"- {_words(text)}" for text in facts]
    return ["## Boundary", "", *shown, *([""] if shown else []), *told, *([""] if told else [])]


def _ids(result: PredicateResult) -> str:
    if not result.ids:
        return ""
    shown = ", ".join(_words(f"{r.run_id} {r.request_id}") for r in result.ids[:_IDS_SHOWN])
    more = result.ids_total - min(len(result.ids), _IDS_SHOWN)
    listed = f"; report.json lists {min(result.ids_total, MOST_IDS)}" if more > 0 else ""
    return f" (requests: {shown}{f' and {more} more{listed}' if more > 0 else ''})"


def _statuses(report: GateReport) -> list[str]:
    if not report.runs:
        return []
    headings = ("requests", "baseline", "candidate")
    return ["## Requests by status", "", *table(headings, cells.status_rows(report)), ""]


def _words(text: str) -> str:
    return escape(text, _MOST_CHARACTERS)
