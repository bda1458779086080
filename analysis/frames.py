"""Ledgers and runs as rows of the store's tables.

Data in, data out; nothing here touches a database. A ledger whose hashes do not hold, or whose rows
cannot be what its receipt says, raises `InputError`: an id must not stand for other content.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from collectors.run import ARRIVALS, Run, manifest_schema, run_workload, value_at
from replay.canonical import canonical_json, sha256
from replay.config import Config, Limits
from replay.errors import InputError, describe
from replay.events import COLUMN, NEVER_NULL, NULL, names_by_code, to_frame
from replay.ledger import AnyLedger, LedgerColumns
from replay.receipt import HASHES
from replay.requests_table import COLUMNS as REQUEST_TABLE
from replay.requests_table import TIMED_COLUMNS
from replay.strict import choice, identifier, integer
from replay.timing import Timing

TOTALS = (
    "requests",
    "pressure_events",
    "preemptions",
    "freed_blocks",
    "charged_tokens",
    "replayed_tokens",
    "swap_out_bytes",
    "swap_in_bytes",
    "queue_ticks",
    "completions",
    "censored",
    "generated_tokens",
    "executed_tokens",
)
_FRACTION = "recompute_tax_frac"
_NULL_UNTIL_REACHED = {
    "first_admit_tick",
    "first_token_tick",
    "completion_tick",
    "tenant",
    "modelled_ttft_ticks",
    "modelled_tpot_ticks",
} | set(TIMED_COLUMNS)
_TYPES = {"string": pl.String, "integer": pl.Int64, "boolean": pl.Boolean, "float": pl.Float64}
_VERIFY = "; preempt verify says which equation fails"


def ledger_row(ledger: AnyLedger, place: str) -> dict[str, Any]:
    """Row of `modelled_ledgers`; every hash of the receipt is checked first."""
    receipt = ledger.receipt
    _check_hashes(ledger, place)
    config = ledger.config
    tables = dataclasses.asdict(config)
    del tables["calibration"]
    timing = tables.pop("timing") or dict.fromkeys(f.name for f in dataclasses.fields(Timing))
    limits = {f.name: tables["limits"][f.name] for f in dataclasses.fields(Limits)}
    tool = receipt.get("tool")
    version = tool.get("version") if isinstance(tool, dict) else None
    _check_sentences(receipt.get("limitations"), place, "limitations")
    _check_sentences(receipt.get("what_ifs", []), place, "what_ifs")  # the lab has none
    ledger_id, run_id = ledger_key(ledger, place)
    row: dict[str, Any] = (
        {"ledger_id": ledger_id, "run_id": run_id}
        | {"workload_name": ledger.workload.name}
        | tables["engine"]
        | {"assumed_from": config.assumed_from}
        | tables["policy"]
        | tables["fairness"]
        | limits
        | timing
        | _calibration(config, receipt, place)
        | {name: receipt[name] for name in HASHES}
        | _totals(receipt.get("totals"), place)
        | {"tool_version": None if version is None else identifier(version, place, "tool.version")}
        | {"receipt": canonical_json(receipt).decode()}
    )
    return row


def _calibration(config: Config, receipt: Mapping[str, Any], place: str) -> dict[str, Any]:
    """What the durations rest on, and how far the replay's steps left it."""
    found = config.calibration
    timing = receipt.get("timing")
    steps = timing.get("steps") if isinstance(timing, dict) else None
    counts = steps if isinstance(steps, dict) else {}
    return {
        "calibration_run_id": None if found is None else found.run_id,
        "calibration_source": None if found is None else found.source,
        "modelled_timed_steps": _count(counts.get("steps"), place, "timing.steps.steps"),
        "modelled_steps_outside": _count(counts.get("outside"), place, "timing.steps.outside"),
    }


def _count(value: object, place: str, name: str) -> int | None:
    return None if value is None else integer(value, place, name)


def ledger_key(ledger: AnyLedger, place: str) -> tuple[str, str | None]:
    """`ledger_id`, and the `run_id` of the run that the workload came from or None."""
    found = (ledger.workload.provenance or {}).get("run_id")
    run_id = None if found is None else identifier(found, place, "workload provenance.run_id")
    return ledger.receipt["receipt_sha256"], run_id


def request_frame(ledger: AnyLedger, place: str) -> pl.DataFrame:
    """Rows of `modelled_requests` without its two keys, in workload order."""
    columns = REQUEST_TABLE | TIMED_COLUMNS
    absent = [pl.lit(None).alias(c) for c in TIMED_COLUMNS if c not in ledger.requests.columns]
    try:
        frame = ledger.requests.with_columns(absent).select(
            pl.col(name).cast(_TYPES[kind]) for name, kind in columns.items()
        )
    except pl.exceptions.PolarsError as exc:
        raise InputError(place, "requests", "must hold the contract's types") from exc
    if not frame["request_id"].equals(ledger.workload.column("request_id"), null_equal=True):
        raise InputError(place, "requests", "must be those of the workload, in its order" + _VERIFY)
    for status in frame["status"].unique().to_list():
        choice(status, place, "requests.status", ("complete", "censored"))
    floats = pl.selectors.float()
    frame = frame.with_columns(pl.when(floats.is_finite()).then(floats).name.keep())
    _refuse_nulls(frame, [c for c in columns if c not in _NULL_UNTIL_REACHED], place, "requests")
    return frame


def event_frame(ledger: AnyLedger, place: str) -> pl.DataFrame:
    """Rows of `modelled_events` without the two keys, codes and indexes as names."""
    rows, ids = ledger.events, ledger.request_ids
    for name, options in names_by_code(ids).items():
        codes = rows[:, COLUMN[name]]
        known = (codes == NULL) | ((codes >= 0) & (codes < len(options)))
        if not known.all():
            rule = "must be a name that the workload or the contract knows"
            raise InputError(place, f"events.{name}", rule + _VERIFY)
    frame = ledger.named_events if isinstance(ledger, LedgerColumns) else to_frame(rows, ids)
    _refuse_nulls(frame, NEVER_NULL, place, "events")
    return frame


def run_row(run: Run, *, workloads: bool = True) -> dict[str, Any]:
    """Row of `measured_runs`: the manifest flattened, and what was derived from the run.

    Without `workloads` nobody asks which workload its requests are, which takes longest.
    """
    place = str(run.path)
    row = {path.replace(".", "_"): _flat(run.manifest, path) for path in manifest_fields()}
    offered = run.offered
    stated = {k: value_at(run.manifest, f"workload.{k}") for k in ("requests", "workload_sha256")}
    manifest = canonical_json(dict(run.manifest))
    if row["start"] is not None:
        row["start"] = _instant(row["start"], place)
    if stated["requests"] is None and offered is not None:
        stated["requests"] = len(offered)
    if stated["workload_sha256"] is None and offered is not None:
        stated["workload_sha256"] = offered.sha256
    return row | {
        "offered_requests": stated["requests"],
        "offered_workload_sha256": stated["workload_sha256"],
        "run_workload_sha256": _run_workload_sha256(run) if workloads else None,
        "manifest_sha256": sha256(manifest),
        "manifest": manifest.decode(),
    }


def workload_rows(run: Run, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of `measured_workloads`; `row` is the run's of `measured_runs`.

    Of equal hashes the first stays: all requests before one engine's, the clock before steps.
    """
    forms: list[tuple[str, int | None, str | None]] = [
        ("time", None, row[f"{form}_workload_sha256"]) for form in ("offered", "run")
    ]
    engines = pl.concat([run.events["engine"], run.requests["engine"]]).drop_nulls().unique().sort()
    for engine in engines.to_list():
        forms += [(a, engine, _sha256(run, arrivals=a, engine=engine)) for a in ARRIVALS]
    found: dict[str, tuple[str, int | None]] = {}
    for arrivals, engine, digest in forms:
        if digest is not None:
            found.setdefault(digest, (arrivals, engine))
    return [
        {"run_id": run.run_id, "arrivals": arrivals, "engine": engine, "workload_sha256": digest}
        for digest, (arrivals, engine) in found.items()
    ]


def manifest_fields() -> tuple[str, ...]:
    """Dotted names of everything a manifest can say, lists and maps counted as one."""

    def leaves(schema: Mapping[str, Any], prefix: str) -> Iterator[str]:
        for key, inner in schema["properties"].items():
            if "properties" in inner:
                yield from leaves(inner, f"{prefix}{key}.")
            else:
                yield prefix + key

    return tuple(leaves(manifest_schema(), ""))


def _run_workload_sha256(run: Run) -> str | None:
    """Hash of the workload that an import of the whole run gives; None where it gives none."""
    offered = run.offered
    if offered is not None and offered.requests[0].arrival_us == 0:
        return offered.sha256  # the import only moves the first arrival to 0
    return _sha256(run)


def _sha256(run: Run, **chosen: Any) -> str | None:
    try:
        return run_workload(run, **chosen).sha256
    except InputError:
        return None


def _flat(manifest: Mapping[str, Any], path: str) -> Any:
    value = value_at(manifest, path)
    return canonical_json(value).decode() if isinstance(value, list | dict) else value


def _instant(text: str, place: str) -> str:
    """UTC without its letter, cut to microseconds, as TIMESTAMP takes it."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    found = pl.Series([whole]).str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False)
    if found.null_count():
        raise InputError(place, "start", "must be a date and time that exist", describe(text))
    return f"{whole}.{fraction[:6] or '0'}"


def _totals(found: Any, place: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise InputError(place, "receipt.totals", "must be an object", describe(found))
    row: dict[str, Any] = {}
    for name in TOTALS:
        value = found.get(name)
        row[f"modelled_{name}"] = (
            None if value is None else integer(value, place, f"receipt.totals.{name}")
        )
    value = found.get(_FRACTION)
    if value is not None and (type(value) not in (int, float) or not 0 <= value <= 1):
        rule = "must be a fraction from 0 to 1"
        raise InputError(place, f"receipt.totals.{_FRACTION}", rule, describe(value))
    return row | {f"modelled_{_FRACTION}": None if value is None else float(value)}


def _check_sentences(found: Any, place: str, name: str) -> None:
    if not isinstance(found, list) or not all(isinstance(s, str) for s in found):
        rule = "must be a list of sentences"
        raise InputError(place, f"receipt.{name}", rule, describe(found))


def _check_hashes(ledger: AnyLedger, place: str) -> None:
    receipt, workload = ledger.receipt, ledger.workload
    for name in HASHES:
        found = receipt.get(name)
        if not isinstance(found, str) or not re.fullmatch("[0-9a-f]{64}", found):
            rule = "must be 64 lower-case hex digits"
            raise InputError(place, f"receipt.{name}", rule, describe(found))
    try:
        own = ledger.receipt_sha256
    except ValueError as exc:
        raise InputError(place, "receipt", "must be JSON of safe numbers") from exc
    expected = {
        "receipt_sha256": own,
        "workload_sha256": workload.sha256,
        "input_sha256": ledger.config.input_sha256(workload.sha256),
        "event_sha256": ledger.event_sha256,
    }
    for name, value in expected.items():
        if receipt[name] != value:
            rule = f"must be the hash of what the ledger holds, {value}"
            raise InputError(place, f"receipt.{name}", rule + _VERIFY, receipt[name])


def _refuse_nulls(frame: pl.DataFrame, columns: Any, place: str, table: str) -> None:
    counts = frame.null_count().row(0, named=True)
    for name in columns:
        if counts[name]:
            raise InputError(place, f"{table}.{name}", "must not be null", f"{counts[name]} nulls")
