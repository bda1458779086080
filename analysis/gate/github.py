"""A gate's answer in the words of GitHub Actions: job summary, outputs, annotations.

Names come from gate files and manifests: in a command or an output every character that could end
it or begin another is escaped, as the runner reads it back.
"""

from pathlib import Path

from analysis.gate.verdict import FAIL, PASS, REFUSED, GateReport
from replay.strict import printable

MOST_SUMMARY_BYTES = 2**20  # of one step; the runner drops a longer one whole
_CUT = "\n\n*The rest is in report.md: a job summary holds 1 MiB.*\n"
_MOST_CHARACTERS = 4000


def summary(markdown: str, room_bytes: int = MOST_SUMMARY_BYTES) -> str:
    """What of a report fits into a step's summary, cut at a line's end and saying so."""
    if len(markdown.encode()) <= room_bytes:
        return markdown
    room = room_bytes - len(_CUT.encode())
    part = markdown.encode()[: max(room, 0)].decode(errors="ignore")
    return (part[: part.rfind("\n")] if "\n" in part else "") + _CUT


def outputs(report: GateReport, path: Path | None) -> str:
    """Lines for the file of the step's outputs: verdict, reasons, and where the report is."""
    values = {
        "verdict": report.verdict,
        "observational": str(report.observational).lower(),
        "reasons": ",".join(report.reasons),
        "report": "" if path is None else str(path),
    }
    return "".join(f"{name}={_one_line(value)}\n" for name, value in values.items())


def annotations(report: GateReport) -> list[str]:
    """A workflow command per check that failed, or one for a verdict that is neither."""
    failed = [p for p in report.predicates if p.verdict == FAIL]
    if failed and report.verdict == FAIL:
        told = report.stated.removeprefix(report.verdict)
        return [_command("error", f"{p.id}: {p.verdict}{told}", f"{p.id} {p.why}") for p in failed]
    if report.verdict == PASS:
        return []
    level = "error" if report.verdict == REFUSED else "warning"
    return [_command(level, f"{report.gate_name}: {report.stated}", report.sentence)]


def _command(level: str, title: str, message: str) -> str:
    shown = _escaped(_one_line(title)).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={shown}::{_escaped(_one_line(message))}"


def _one_line(text: str) -> str:
    return printable(text, _MOST_CHARACTERS)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
