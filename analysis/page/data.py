"""What the figures of a page show, taken by SQL from the store the gate was judged on.

Every number here is a row of a query in `analysis/sql/page`; Python only binds values, cuts names
and says what was left out.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analysis.gate.contract import Gate
from analysis.gate.evidence import bounds
from analysis.gate.outcomes import worst
from analysis.gate.verdict import GateReport, RunSummary
from analysis.sqlfiles import sql
from replay.strict import printable

if TYPE_CHECKING:
    import duckdb

MOST_REQUESTS = 3000  # points of the fairness figure
MOST_POINTS = 300  # of one run's or ledger's timeline
MOST_EVENTS = 60  # preemptions to choose from, measured and modelled each
MOST_LEDGERS = 4
MOST_RUNS = 24  # to choose from; the sides hold every run
MOST_CURVE_POINTS = 20_000  # of all choices together
_CURVES = 6  # of one choice: two latencies by three groups of preemptions
MOST_SCORES = 200
ALL = "all requests"
_NAME = 64

Row = dict[str, Any]


def page_data(db: "duckdb.DuckDBPyConnection", gate: Gate, report: GateReport) -> Row:
    """JSON values for the page's script and figures; lists are empty where nothing is known."""
    runs, shown = [r.run_id for r in report.runs], report.runs[:MOST_RUNS]
    design, limits = gate.design, fairness_limits(db, gate, report)
    places = {"run_ids": runs, "sides": [r.side for r in report.runs]}
    parts = [bounds(part) for part in (None, *gate.slices)]
    asked = {name: [part[name] for part in parts] for name in parts[0]}
    eligible = {"warmup_us": design.warmup_us, "follow_up_us": design.follow_up_us}
    marks = {k: limits[k] for k in ("max_preemptions", "wait_limit_us")}
    shown_ids = [r.run_id for r in shown]
    ledgers = {"ledger_ids": [x for x in report.ledgers if x], "run_ids": shown_ids}
    curves = MOST_CURVE_POINTS // ((2 + len(shown)) * (1 + len(gate.slices)) * _CURVES)

    def numbered(name: str, **values: Any) -> list[Row]:
        return _by_scope(db, gate, report, name, **eligible, **values)

    def rows(name: str, **values: Any) -> list[Row]:
        return _rows(db, name, **values)

    return {
        "runs": [
            {"name": printable(r.run_id, _NAME), "side": r.side, "pair": r.pair} for r in shown
        ],
        "runs_total": len(runs),
        "sides": [r.side for r in report.runs],
        "slices": [ALL, *(printable(part.name, _NAME) for part in gate.slices)],
        "follow_up_us": design.follow_up_us,
        "observational": report.observational,
        "limits": limits,
        "numbers": numbered("numbers", **marks),
        "curves": numbered("curves", most_points=max(8, min(100, curves))),
        "requests": rows("requests", **places, **asked, **marks, most_rows=MOST_REQUESTS),
        "pressure": rows("pressure", run_ids=shown_ids, most_points=MOST_POINTS),
        "modelled_pressure": rows(
            "modelled_pressure", **ledgers, most_points=MOST_POINTS, most_ledgers=MOST_LEDGERS
        ),
        "measured_preemptions": rows(
            "measured_preemptions", run_ids=shown_ids, most_rows=MOST_EVENTS
        ),
        "modelled_preemptions": rows("modelled_preemptions", **ledgers, most_rows=MOST_EVENTS),
        "worst": [_plain(row) for row in worst(db, design, _pairs(report))],
        "fidelity": rows("fidelity", run_ids=shown_ids, most_rows=MOST_SCORES),
    }


def _pairs(report: GateReport) -> list[tuple[RunSummary, RunSummary]]:
    """Runs pair by pair; live runs were offered nothing together, and are none."""
    runs = () if report.observational else report.runs
    by_side = [[r for r in runs if r.side == side] for side in ("baseline", "candidate")]
    return list(zip(*by_side, strict=True))


def columnar(data: Row) -> Row:
    """The same values with each list of rows as one list per column, a third of the size."""
    return {
        key: {name: [row[name] for row in value] for name in value[0]}
        if isinstance(value, list) and value and isinstance(value[0], dict)
        else value
        for key, value in data.items()
    }


def fairness_limits(db: "duckdb.DuckDBPyConnection", gate: Gate, report: GateReport) -> Row:
    """From where on a request is marked, and whose limit that is.

    The gate's own where it has one. A gate without says nothing of fairness; then it is more than
    one preemption, and more waiting than 99 % of the baseline's requests had.
    """
    repeated = [p.max_preemptions for p in gate.predicates if p.max_preemptions is not None]
    slo = [us for p in gate.predicates for name, us in p.slo or () if name == "ttft_us"]
    if slo:
        wait, why = min(slo), "waiting alone exceeds the gate's limit for TTFT"
    else:
        baseline = [r.run_id for r in report.runs if r.side == "baseline"]
        wait = _rows(db, "wait_limit", run_ids=baseline)[0]["wait_us"]
        why = "waited longer than 99 % of the baseline's requests"
    return {
        "max_preemptions": min(repeated, default=1),
        "preemptions_why": "the gate's limit" if repeated else "the gate has no limit",
        "wait_limit_us": wait,
        "wait_why": why,
    }


def _by_scope(
    db: "duckdb.DuckDBPyConnection", gate: Gate, report: GateReport, name: str, **values: Any
) -> list[Row]:
    """Rows of a query for all requests and each slice, of each side and of each run to choose."""
    sides = ("baseline", "candidate")
    scopes = {side: [r.run_id for r in report.runs if r.side == side] for side in sides}
    scopes |= {str(place): [r.run_id] for place, r in enumerate(report.runs[:MOST_RUNS])}
    db.execute(sql("page", "scope_requests"))
    return [
        {"slice": place, "scope": scope, **row}
        for place, part in enumerate((None, *gate.slices))
        for scope, ids in scopes.items()
        for row in _rows(db, name, run_ids=ids, part=bounds(part), **values)
    ]


def _rows(db: "duckdb.DuckDBPyConnection", name: str, **values: Any) -> list[Row]:
    result = db.execute(sql("page", name), values)
    columns = [c[0] for c in result.description]
    return [_plain(dict(zip(columns, row, strict=True))) for row in result.fetchall()]


def _plain(row: Mapping[str, Any]) -> Row:
    """JSON values: names cut, infinity as the text that a reader sees for it."""
    return {key: _value(value) for key, value in row.items()}


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value, _NAME)
    if isinstance(value, float):
        return "never" if value == float("inf") else round(value, 6)
    return value
