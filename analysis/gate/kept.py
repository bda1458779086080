"""A gate's report that was written, read again: whole, unchanged, and of this contract."""

from collections.abc import Mapping
from typing import Any

from analysis.gate.verdict import REPORT_SCHEMA, WORST_FIRST
from replay.canonical import canonical_json, sha256
from replay.errors import InputError, describe
from replay.strict import check_schema, choice


def check_kept(report: Mapping[str, Any], place: str) -> None:
    """Refuse what is no report, has no verdict, or was changed since (`InputError`)."""
    check_schema(report.get("schema"), REPORT_SCHEMA, place)
    own = {k: v for k, v in report.items() if k != "report_sha256"}
    try:
        expected = sha256(canonical_json(own))
    except ValueError as exc:
        raise InputError(place, "", "must be JSON of safe numbers") from exc
    if report.get("report_sha256") != expected:
        rule = f"must be the hash of the report, {expected}"
        raise InputError(place, "report_sha256", rule, describe(report.get("report_sha256")))
    choice(report.get("verdict"), place, "verdict", WORST_FIRST)
