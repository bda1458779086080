"""`preempt fidelity`: a ledger beside the run it claims to describe, request by request."""

from pathlib import Path
from typing import Any

import click

from preempt.commands import options
from preempt.commands.options import say

# What a person looks at first; --json has every column.
_SHOWN = (
    "request_id",
    "join_kind",
    "join_side",
    "modelled_status",
    "measured_status",
    "modelled_preemptions",
    "measured_num_preemptions",
    "modelled_queue_ticks",
    "measured_queue_time_us",
    "measured_requeue_time_us",
)


@click.command("fidelity")
@click.argument("ledger", type=options.PATH)
@click.argument("run", type=options.PATH)
@options.quiet
@options.as_json
def fidelity_command(ledger: Path, run: Path, quiet: bool, as_json: bool) -> None:
    """Join the LEDGER directory with the RUN directory, request by request, labelled fidelity.

    Fidelity asks whether the model is right, so like is compared with like only. Another engine
    version, cache or scheduler configuration, policy or workload is refused with exit code 4 and
    the differing fields named, and so is what is unknown; a ledger of the lab profile describes no
    engine and is always refused. To see the same requests under another policy or capacity, load
    both and query joined_requests, where every row says it is a what-if.

    Modelled ticks stand beside measured microseconds and are no latency. The full fidelity report,
    with modelled times beside measured ones, comes with timed replay.

    \b
    Example:
      preempt fidelity ledgers/vllm runs/base-1
      preempt fidelity ledgers/vllm runs/base-1 --json | jq '.rows[0]'
    """
    from analysis.join import fidelity_join
    from analysis.store import connect, load_ledger, load_run
    from collectors.run import read_run
    from replay.ledger import read_ledger

    modelled, measured = read_ledger(ledger), read_run(run)
    with connect(None) as db:
        load_run(db, measured)
        load_ledger(db, modelled, str(ledger))
        rows = fidelity_join(db, modelled.receipt["receipt_sha256"], measured.run_id)
    if as_json:
        options.print_json(
            {
                "join_kind": "fidelity",
                "ledger_id": modelled.receipt["receipt_sha256"],
                "run_id": measured.run_id,
                "limitations": modelled.receipt["limitations"],
                "rows": rows,
            }
        )
    else:
        _print_table(rows)
    both = [row for row in rows if row["join_side"] == "both"]
    say(
        f"fidelity: {len(rows)} requests, {len(both)} on both sides;"
        f" preemptions of those: modelled {_total(both, 'modelled_preemptions')},"
        f" measured {_total(both, 'measured_num_preemptions')}",
        quiet=quiet,
    )


def _print_table(rows: list[dict[str, Any]]) -> None:

    from analysis.query import Column
    from analysis.render import print_rows

    columns = [
        Column(name, "BIGINT" if name.endswith(("preemptions", "_ticks", "_us")) else "VARCHAR")
        for name in _SHOWN
    ]
    print_rows(columns, [tuple(row[name] for name in _SHOWN) for row in rows], options.console())


def _total(rows: list[dict[str, Any]], name: str) -> str:
    """Sum of what is known; a request nobody counted makes it unknown."""
    values = [row[name] for row in rows]
    return "unknown" if None in values else str(sum(values))
