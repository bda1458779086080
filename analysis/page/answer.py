"""The verdict in words and tables: everything on the page that a report has without its store."""

from analysis.gate import cells
from analysis.gate.comparability import show
from analysis.gate.verdict import FAIL, INCONCLUSIVE, PASS, REFUSED, GateReport, PredicateResult
from analysis.page.escape import sentence, text
from analysis.page.tables import table

SIGNS = {PASS: "✓", FAIL: "✕", INCONCLUSIVE: "?", REFUSED: "⊘"}
_IDS_SHOWN = 10


def verdict(report: GateReport) -> str:
    """The first thing a reader sees: verdict, why, and what to do next."""
    _, _, why = report.sentence.partition(": ")
    following = (
        f"<p><strong>Next:</strong> {sentence(report.recommendation)}</p>"
        if report.recommendation
        else ""
    )
    return (
        f'<header class="{report.verdict}"><h1>{SIGNS[report.verdict]} {report.stated}:'
        f" {text(report.gate_name)}</h1>"
        f'<p class="why">{sentence(why)}</p>{following}'
        f'<p class="soft">Exit code {report.exit_code}{_mapped(report)}.</p></header>'
    )


def comparison(report: GateReport) -> str:
    """What changed, what keeps the sides from being compared, and what was equal."""
    compared = report.comparability
    items = [
        f"<strong>{sentence(c.field)}</strong>: {sentence(show(c.baseline))} →"
        f" {sentence(show(c.candidate))}{'' if c.differs else ' (the same on both sides)'}"
        for c in compared.changed
    ]
    items += [f"⊘ {sentence(d.label)}: {sentence(d.text)}" for d in compared.differing]
    items += [f"Note: {sentence(note)}" for note in report.notes]
    listed = "".join(f"<li>{item}</li>" for item in items) or "<li>No change is declared.</li>"
    known = [(f, show(v)) for f, v in compared.equal if v is not None]
    equal = (
        f"<details><summary>Equal on all runs: {len(known)} fields</summary>"
        f"{table('Fields that are known and equal on all runs', ('field', 'value'), known)}"
        "</details>"
        if known and not compared.refused
        else '<p class="absent">What was equal is not listed: the runs were not compared.</p>'
    )
    return f"<ul>{listed}</ul>{equal}"


def checks(report: GateReport) -> str:
    """The predicate table, and a sentence for each row."""
    if not report.predicates:
        return '<p class="absent">Nothing was judged: the runs were not compared.</p>'
    headings = (
        "check", "verdict", "evidence", "statistic", "baseline", "candidate", "estimate",
        "interval", "limit",
    )  # fmt: skip
    head = "".join(f'<th scope="col">{h}</th>' for h in headings)
    rows = "".join(_check(p) for p in report.predicates)
    told = "".join(
        f"<li>{_verdict(p.verdict)} {sentence(p.id)} {sentence(p.why)}{_ids(p)}</li>"
        for p in report.predicates
    )
    caption = "Each check with its numbers per run, and the limit it is judged by"
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}">'
        f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div><ul>{told}</ul>"
    )


def runs(report: GateReport) -> str:
    """Each run with its place in the comparison."""
    if not report.runs:
        return '<p class="absent">No run has a place in this comparison.</p>'
    rows = [
        (r.run_id, r.side, str(r.pair + 1), r.offered, r.eligible, r.failed, r.censored)
        for r in report.runs
    ]
    headings = ("run", "side", "pair", "offered", "eligible", "failed", "censored")
    return table("Runs and their requests, measured", headings, rows)


def limitations(report: GateReport) -> str:
    """What this answer must not be read as."""
    return f"<ul>{''.join(f'<li>{sentence(t)}</li>' for t in report.limitations)}</ul>"


def hashes(report: GateReport, report_sha256: str) -> str:
    """What this page was made from, to compare with other files."""
    pairs = [("report", report_sha256), ("gate", report.gate_sha256)]
    pairs += [(f"manifest of run {r.run_id}", r.manifest_sha256) for r in report.runs]
    pairs += [("receipt of a modelled ledger", x) for x in report.ledgers if x is not None]
    if report.comparability.key is not None:
        pairs.append(("comparability key", report.comparability.key))
    return table("SHA-256 of what this page was made from", ("of", "sha256"), pairs)


def _check(p: PredicateResult) -> str:
    values = (
        cells.per_run(p, "baseline"),
        cells.per_run(p, "candidate"),
        cells.in_unit(p.estimate, p),
        cells.interval(p),
        cells.limit(p),
    )
    numbers = "".join(f'<td class="number">{sentence(v)}</td>' for v in values)
    return (
        f'<tr><th scope="row">{sentence(p.id)}</th><td>{_verdict(p.verdict)}</td>'
        f"<td>{text(p.evidence)}</td><td>{sentence(cells.what(p))}</td>{numbers}</tr>"
    )


def _verdict(word: str) -> str:
    return f'<span class="verdict {word}">{SIGNS[word]} {word}</span>'


def _ids(p: PredicateResult) -> str:
    if not p.ids:
        return ""
    named = ", ".join(f"{text(r.run_id)} {text(r.request_id)}" for r in p.ids[:_IDS_SHOWN])
    more = p.ids_total - min(len(p.ids), _IDS_SHOWN)
    return f' <span class="soft">(requests: {named}{f" and {more:,} more" if more else ""})</span>'


def _mapped(report: GateReport) -> str:
    mapped = ", ".join(f"{v} = {code}" for v, code in report.exit_map)
    return f", mapped by the caller: {mapped}" if mapped else ""
