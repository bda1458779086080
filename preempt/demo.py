"""The whole pipeline, once: a recorded run becomes a workload, ledgers, a store, a gate, a report.

`run_demo` writes one directory, whole or not at all. It is the shortest complete example of the
library: every step is one call that a subcommand makes too.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis import store
from analysis.gate.gate_file import read_gate
from analysis.gate.run import evaluate
from analysis.gate.verdict import GateReport, report_json
from analysis.report import markdown_report
from analysis.report_data import report_data
from collectors.run import Run, read_run, run_workload
from replay.config import RECOVERIES, read_config
from replay.ledger import FILES, Ledger, read_ledger, write_ledger
from replay.output import new_directory
from replay.run import replay
from replay.workload import Workload

OWNED = (
    "gate.toml",
    "lab.toml",
    "preempt.duckdb",
    "report.md",
    *(f"ledgers/{recovery}/{name}" for recovery in RECOVERIES for name in FILES),
)


@dataclass(frozen=True)
class Demo:
    """What the demo did: the window it replayed, its ledgers by recovery, and the gate's answer."""

    workload: Workload
    ledgers: Mapping[str, Ledger]
    joined_requests: int
    gate: GateReport


def run_demo(
    out: Path,
    baseline: Path,
    candidate: Path,
    config_path: Path,
    gate_path: Path,
    *,
    force: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Demo:
    """Take `baseline` through the whole pipeline and gate `candidate` against it."""
    with new_directory(out, force=force, owned=OWNED) as directory:
        progress("reading two recorded runs")
        runs = [read_run(baseline), read_run(candidate)]
        config = read_config(config_path)
        start, count = busiest_window(runs[0], config.limits.max_requests)
        workload = run_workload(runs[0], start, count)
        shutil.copyfile(config_path, directory / "lab.toml")
        shutil.copyfile(gate_path, directory / "gate.toml")
        ledgers = {}
        for recovery in RECOVERIES:
            progress(f"replaying {len(workload)} requests, recovery {recovery}")
            ledger = replay(workload, config.with_policy(recovery, None), str(baseline))
            place = directory / "ledgers" / recovery
            write_ledger(ledger, place)
            ledgers[recovery] = read_ledger(place)
        progress("verifying and loading the ledgers, joining, judging the gate")
        with store.connect(directory / "preempt.duckdb") as db:
            for run in runs:
                store.load_run(db, run)
            for ledger in ledgers.values():  # the store takes only what the oracle accepts
                store.load_ledger(db, ledger)
            gate = evaluate(
                db,
                read_gate(gate_path),
                [runs[0].run_id],
                [runs[1].run_id],
                list(ledgers.values()),
            )
            store.load_gate_report(db, report_json(gate))
            joined = _joined(db)
            (directory / "report.md").write_text(markdown_report(report_data(db)), encoding="utf-8")
    return Demo(workload, ledgers, joined, gate)


def busiest_window(run: Run, count: int) -> tuple[int, int]:
    """Start and length of the most preempted window of offered requests, the first of equals."""
    seen: dict[str, int] = dict(run.requests.select("request_id", "num_preemptions").iter_rows())
    whole = run_workload(run)
    preemptions = [seen.get(r.request_id) or 0 for r in whole.requests]
    count = min(count, len(preemptions))
    starts = range(len(preemptions) - count + 1)
    return max(starts, key=lambda k: (sum(preemptions[k : k + count]), -k)), count


def _joined(db: Any) -> int:
    query = "SELECT count(*) FROM joined_requests WHERE join_side = 'both'"
    rows: Sequence[int] = db.execute(query).fetchone()
    return rows[0]
