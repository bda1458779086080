"""A gate report as JUnit XML, for a CI that shows test results.

A suite is a slice of the traffic, a case a check. Fail is a failure. Inconclusive and refused are
errors: what could not be decided must not look like something that was skipped or passed.
"""

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree as ET

from analysis.gate import cells
from analysis.gate.verdict import FAIL, INCONCLUSIVE, PASS, REFUSED, GateReport, PredicateResult
from replay.strict import printable

ALL = "all requests"
COMPARABLE = "comparable"
_MOST_CHARACTERS = 4000
_TAGS = {FAIL: "failure", INCONCLUSIVE: "error", REFUSED: "error"}


def report_junit(report: GateReport) -> bytes:
    """The document, in UTF-8; it holds no time, so equal reports are equal bytes."""
    suites: dict[str, list[ET.Element]] = {ALL: [_comparable(report)]}
    for result in report.predicates:
        suites.setdefault(result.slice or ALL, []).append(_case(report, result))
    name = f"{report.gate_name} (observational)" if report.observational else report.gate_name
    root = ET.Element("testsuites", {"name": _words(name), **_counts(suites.values())})
    for name, cases in suites.items():
        suite = ET.SubElement(root, "testsuite", {"name": _words(name), **_counts([cases])})
        suite.extend(cases)
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _comparable(report: GateReport) -> ET.Element:
    case = ET.Element("testcase", classname=_words(report.gate_name), name=COMPARABLE)
    compared = report.comparability
    if compared.refused:
        lines = [f"{d.label}: {d.text}" for d in compared.differing]
        _told(case, REFUSED, report.sentence, compared.reasons, lines)
    return case


def _case(report: GateReport, result: PredicateResult) -> ET.Element:
    what = cells.what(result)
    name = result.id if what == cells.DASH else f"{result.id} ({what})"
    case = ET.Element("testcase", classname=_words(report.gate_name), name=_words(name))
    numbers = {
        "evidence": result.evidence,
        "baseline": cells.per_run(result, "baseline"),
        "candidate": cells.per_run(result, "candidate"),
        "pairs": cells.effects(result),
        "estimate": cells.in_unit(result.estimate, result),
        "interval": cells.interval(result),
        "limit": cells.limit(result),
    }
    lines = [f"{key}: {value}" for key, value in numbers.items()]
    if report.observational:
        lines.insert(0, f"the gate's verdict: {report.stated}")
    if result.ids:
        named = ", ".join(f"{r.run_id} {r.request_id}" for r in result.ids)
        lines.append(f"requests ({len(result.ids)} of {result.ids_total}): {named}")
    if result.verdict == PASS:
        ET.SubElement(case, "system-out").text = _text([result.why, *lines])
    else:
        _told(case, result.verdict, f"{result.id} {result.why}", result.reasons, lines)
    return case


def _told(
    case: ET.Element, verdict: str, why: str, reasons: Sequence[str], lines: Sequence[str]
) -> None:
    told = ET.SubElement(case, _TAGS[verdict], type=verdict, message=_words(why))
    told.text = _text([", ".join(reasons), *lines])


def _counts(suites: Iterable[Sequence[ET.Element]]) -> dict[str, str]:
    cases = [case for suite in suites for case in suite]
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
    }


def _text(lines: Iterable[str]) -> str:
    return "\n".join(_words(line) for line in lines)


def _words(text: str) -> str:
    """On one line what XML can hold: no control character, nothing that is no character."""
    return printable(text, _MOST_CHARACTERS)
