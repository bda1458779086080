"""A gate report as short Markdown, for a job summary or a pull request.

Names come from gate files and manifests, so everything is escaped; nothing can become a link, a
mention or a table cell of its own.
"""

from analysis.gate import cells
from analysis.gate.comparability import show
from analysis.gate.verdict import MOST_IDS, GateReport, PredicateResult
from analysis.markdown import escape, table

_IDS_SHOWN = 10
_MOST_CHARACTERS = 4000  # of one sentence; names in it are bounded already


def report_markdown(report: GateReport, report_sha256: str) -> str:
    """The whole document, ending in a newline."""
    lines = [
        f"# {report.verdict}: {_words(report.gate_name)}",
        "",
        f"**{_words(report.sentence)}**",
        "",
        *_context(report),
        *_checks(report),
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
            cells.per_run(p.baseline, p.statistic),
            cells.per_run(p.candidate, p.statistic),
            cells.number(p.estimate, p.statistic),
            cells.DASH
            if p.low is None and p.high is None
            else f"{cells.number(p.low, p.statistic)} to {cells.number(p.high, p.statistic)}",
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
