"""How numbers of a gate report look to people, in a terminal and in Markdown alike."""

from typing import Any

from analysis.gate.contract import STATISTICS
from analysis.gate.verdict import GateReport, PredicateResult
from analysis.markdown import milliseconds
from collectors.columns import STATUSES
from replay.strict import printable

_MOST_RUNS = 6
_SHARES = ("_fraction", "_drop", "_increase")
DASH = "\u2013"  # a value nobody has, which is not zero


def number(value: float | None, statistic: str | None = None) -> str:
    """A number in its statistic's unit; a dash for unknown, shares as percent."""
    if value is None:
        return DASH
    if statistic is not None and statistic.endswith(_SHARES):
        return f"{value * 100:.3g} %"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def per_run(result: PredicateResult, side: str) -> str:
    """One number per run of a side, in pair order; a quantile that was cut off says so."""
    values = getattr(result, side)
    shown = ", ".join(_cut_off(v, result) for v in values[:_MOST_RUNS])
    return f"{shown}, …" if len(values) > _MOST_RUNS else shown or DASH


def in_unit(value: float | None, result: PredicateResult) -> str:
    """An estimate or a bound; of a regression a relative change."""
    if value is not None and result.kind == "regression":
        return f"{value * 100:+.3g} %"
    return number(value, result.statistic)


def interval(result: PredicateResult) -> str:
    """Both bounds."""
    if result.low is None or result.high is None:
        return DASH
    return f"{in_unit(result.low, result)} to {in_unit(result.high, result)}"


def effects(result: PredicateResult) -> str:
    """The pairs' own differences."""
    shown = ", ".join(in_unit(v, result) for v in result.effects[:_MOST_RUNS])
    return f"{shown}, …" if len(result.effects) > _MOST_RUNS else shown or DASH


def what(result: PredicateResult) -> str:
    """What a check looks at: statistic, field and slice in one phrase."""
    parts = [result.statistic or result.kind]
    if result.field and result.field != "status":
        parts.append(f"of {result.field}")
    if result.slice:
        parts.append(f"in {printable(result.slice)}")
    return " ".join(parts)


def limit(result: PredicateResult) -> str:
    """The limit a check is judged by."""
    return in_unit(result.limit, result)


def _cut_off(value: float | None, result: PredicateResult) -> str:
    if value is not None and result.cap is not None and value >= result.cap:
        return f">= {milliseconds(result.cap)} ms"
    if value is not None and result.kind == "regression":
        return f"{milliseconds(value)} ms"
    return number(value, result.statistic)


ROLLBACK = ("check", "what is watched", "goes back beyond", "action")


def way_back(report: GateReport) -> str:
    """Where to and how fast the gate goes back, in one sentence."""
    found = report.rollback
    if found is None:
        return "This gate lays down no way back."
    to = "the baseline" if found["to"] == "baseline" else f"configuration {found['to']}"
    return (
        f"Back to {to}, as soon as one of these holds over the newest"
        f" {found['window_us'] / 1e6:g} s of the rolled out engine."
    )


def rollback_rows(report: GateReport) -> list[tuple[str, ...]]:
    """A row a rule, in the order of `ROLLBACK`."""
    by_id = {p.id: p for p in reversed(report.predicates)}
    return [
        (
            printable(rule["predicate"]),
            what(by_id[rule["predicate"]]) if rule["predicate"] in by_id else DASH,
            ", ".join(f"{name} {value:g}" for name, value in rule["limits"]) or DASH,
            rule["action"],
        )
        for rule in (report.rollback or {"when": ()})["when"]
    ]


OUTCOMES = (
    ("requests", "requests"),
    ("only_baseline", "in the baseline alone"),
    ("only_candidate", "in the candidate alone"),
    ("answered_baseline_only", "answered by the baseline alone"),
    ("answered_candidate_only", "answered by the candidate alone"),
    ("answered_neither", "answered by neither"),
    ("good_to_bad", "good, then bad"),
    ("bad_to_good", "bad, then good"),
    ("unknown", "not known"),
)


def outcomes_of(report: GateReport) -> dict[str, Any] | None:
    """What became of requests on the other side; None where nothing of it was looked at."""
    found: dict[str, Any] | None = (report.descriptive or {}).get("outcomes")
    return found


def outcome_rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """A row a pair, in the order of `OUTCOMES`."""
    return [
        (str(pair["pair"] + 1), *(number(pair[name]) for name, _ in OUTCOMES))
        for pair in found["pairs"]
    ]


def good_by(found: dict[str, Any]) -> str:
    """By whose objectives a request is good."""
    if found["good_by"] is None:
        return "good is answered, as the gate has no goodput check"
    within = f" in {printable(found['slice'])}" if found["slice"] else ""
    return f"good as {printable(found['good_by'])} has it, of eligible requests{within}"


GAPS = (
    ("requests", "eligible requests"),
    ("known", "with a known gap"),
    ("tpot_p95_us", "TPOT p95, ms"),
    ("tpot_max_us", "TPOT greatest, ms"),
    ("gap_p95_us", "longest gap p95, ms"),
    ("gap_max_us", "longest gap greatest, ms"),
)


def gap_rows(report: GateReport) -> list[tuple[str, ...]]:
    """A row a side, its name first; none where no gap is known on either side."""
    found = (report.descriptive or {}).get("token_gaps") or []
    if not any(row["known"] for row in found):
        return []
    return [
        (
            row["side"],
            *(
                (milliseconds(row[name]) or DASH) if name.endswith("_us") else number(row[name])
                for name, _ in GAPS
            ),
        )
        for row in found
    ]


BANDS = ("check", "statistic", "side", "pair", "run", "band", "block, requests")


def bands_of(report: GateReport) -> dict[str, Any] | None:
    """Each run's own band; None where none were looked for."""
    found: dict[str, Any] | None = (report.descriptive or {}).get("bands")
    return found


def band_rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """A row a test and run, in the order of `BANDS`."""
    return [
        (
            printable(row["predicate"]),
            row["statistic"],
            row["side"],
            str(row["pair"] + 1),
            printable(row["run_id"]),
            row["reason"].replace("_", " ")
            if row["reason"]
            else " to ".join(_of_run(row[bound], row["statistic"]) for bound in ("low", "high")),
            number(row["block_length"]),
        )
        for row in found["rows"]
    ]


def _of_run(value: float, statistic: str) -> str:
    """One run's number by the name of its statistic: those of latencies are in milliseconds."""
    return f"{milliseconds(value)} ms" if statistic in STATISTICS else number(value, statistic)


def bands_made(found: dict[str, Any]) -> str:
    """How the bands were made, or why there are none."""
    if found["left_out"]:
        return f"Bands within runs are {found['left_out']}."
    return (
        f"{found['level'] * 100:.3g} % of {found['draws']:,} circular block bootstraps of each"
        " run's own requests, in order of arrival: how far its number could have come out"
        " otherwise, and nothing of another run."
    )


def status_rows(report: GateReport) -> list[tuple[str, int | None, int | None]]:
    """Offered requests and each status, summed over either side; None where nobody knows."""
    rows = []
    for name in ("offered", *STATUSES):
        sums = []
        for side in ("baseline", "candidate"):
            values = [getattr(r, name) for r in report.runs if r.side == side]
            sums.append(None if not values or None in values else sum(values))
        rows.append((name, sums[0], sums[1]))
    return rows
