"""What a gate's report says to a rollout controller that asks over HTTP.

Argo Rollouts' web metric takes an answer of 200 and looks into it, so whatever is neither pass nor
fail pauses the rollout. Flagger's webhooks look at the status alone: 200 goes on, and anything of
500 or more would be asked again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.gate.kept import check_kept
from analysis.gate.verdict import FAIL, INCONCLUSIVE, PASS, REFUSED
from replay.errors import InputError
from replay.strict import parse_json, printable, read_text, table

MOST_BYTES = 64 * 2**20
_MOST_CHARACTERS = 4000
OK, CONFLICT, PRECONDITION_FAILED = 200, 409, 412


@dataclass(frozen=True)
class Answer:
    """A gate's verdict for one configuration of the candidate, and why, in one line."""

    verdict: str
    reasons: tuple[str, ...]
    sentence: str

    def argo(self) -> dict[str, Any]:
        """For a web metric: success is `result == "pass"`, failure `result == "fail"`."""
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "sentence": self.sentence,
        }

    def promotion(self) -> int:
        """Status for confirm-promotion: 200 on a pass alone, so that inconclusive waits."""
        return self._status(PASS)

    def rollback(self) -> int:
        """Status for the rollback hook: 200 on a fail alone."""
        return self._status(FAIL)

    def _status(self, wanted: str) -> int:
        if self.verdict == REFUSED:
            return PRECONDITION_FAILED
        return OK if self.verdict == wanted else CONFLICT


def answer(path: Path, configuration_sha256: str) -> Answer:
    """Answer of the report in a file to whoever is about to roll out this configuration.

    A report that is not there yet leaves it open; one that cannot be read or was changed, and one
    of another candidate, is refused.
    """
    if not path.exists():
        return Answer(INCONCLUSIVE, ("no_data",), f"{INCONCLUSIVE}: there is no report yet")
    try:
        report = _read(path)
    except (InputError, OSError):
        return Answer(REFUSED, ("bad_report",), f"{REFUSED}: the report cannot be read")
    found = {r.get("configuration_sha256") for r in report["runs"] if r.get("side") == "candidate"}
    if found != {configuration_sha256}:
        why = "the report is of another candidate, or does not know its configuration"
        return Answer(REFUSED, ("other_candidate",), f"{REFUSED}: {why}")
    sentence = printable(str(report.get("sentence")), _MOST_CHARACTERS)
    return Answer(report["verdict"], tuple(map(str, report.get("reasons") or ())), sentence)


def _read(path: Path) -> Mapping[str, Any]:
    place = str(path)
    report = table(parse_json(read_text(path, MOST_BYTES), place), place, "")
    check_kept(report, place)
    runs = report.get("runs")
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise InputError(place, "runs", "must be a list of objects")
    return report
