"""`preempt fidelity`: a ledger beside the run it claims to describe, request by request."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from preempt.commands import options
from preempt.commands.options import say
from preempt.commands.progress import progress_shown

if TYPE_CHECKING:
    from analysis.errors import NotComparable

Row: TypeAlias = dict[str, Any]
# What a person looks at first, where there is room and where there is not; --json has every column.
_WIDE = (
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
_NARROW = (
    "request_id",
    "join_kind",
    "modelled_preemptions",
    "measured_num_preemptions",
    "modelled_queue_ticks",
    "measured_requeue_time_us",
)
_WIDE_COLUMNS = 130
_ARRIVALS = {"steps": "the engine's own steps", "time": "the clock"}


@click.command("fidelity")
@click.argument("ledger", type=options.PATH)
@click.argument("run", type=options.PATH)
@options.quiet
@options.as_json
@click.pass_context
def fidelity_command(
    context: click.Context, ledger: Path, run: Path, quiet: bool, as_json: bool
) -> None:
    """Join the LEDGER directory with the RUN directory, request by request, labelled fidelity.

    Fidelity asks whether the model is right, so like is compared with like only. Another engine
    version, cache or scheduler configuration, policy or workload is refused with exit code 4 and
    the differing fields named, and so is what is unknown; a ledger of the lab profile describes no
    engine and is always refused. To see the same requests under another policy or capacity, load
    both and query joined_requests, where every row says it is a what-if.

    The ledger's requests may arrive when the clock says, or in the engine's own steps, which is
    what a replay of a run takes; only from its own steps should an exact model preempt exactly as
    the engine did. A rule that was assumed for the run's own release is compared, and said: whether
    the assumption holds is what this shows.

    Modelled ticks stand beside measured microseconds and are no latency. The full fidelity report,
    with modelled times beside measured ones, comes with timed replay.

    \b
    Examples:
      preempt replay runs/base-1 --out base-1-ledger
      preempt fidelity base-1-ledger runs/base-1
      preempt fidelity base-1-ledger runs/base-1 --json | jq '.rows[0]'
    """
    from analysis.counter import counter_line, counter_rows
    from analysis.errors import NotComparable
    from analysis.join import fidelity_join
    from analysis.store import connect, load_ledger, load_run
    from collectors.run import read_run
    from collectors.run_config import not_replayed
    from replay.ledger import read_ledger

    refusal: NotComparable | None = None
    with progress_shown(quiet=quiet) as progress, connect(None) as db:
        progress.phase(f"reading {ledger} and {run}")
        modelled, measured = read_ledger(ledger), read_run(run)
        load_run(db, measured)
        load_ledger(db, modelled, str(ledger), progress.events(f"verifying {ledger}"))
        counter = next(iter(counter_rows(db)), None)
        try:
            rows = fidelity_join(db, modelled.receipt["receipt_sha256"], measured.run_id)
        except NotComparable as exc:
            refusal = exc
            rows = []
    if refusal is not None:
        for line in _refused(refusal):
            say(line)
        context.exit(refusal.exit_code)
    facts = {
        "join_kind": "fidelity",
        "ledger_id": modelled.receipt["receipt_sha256"],
        "run_id": measured.run_id,
        "arrivals": rows[0]["join_arrivals"],
        "what_ifs": modelled.receipt["what_ifs"],
        "not_exact": not_replayed(measured),
        "counter": counter,
        "limitations": modelled.receipt["limitations"],
    }
    if as_json:
        options.print_json({**facts, "rows": rows})
    else:
        _print_table(rows)
    for line in _summary(facts, rows):
        say(line, quiet=quiet)
    if counter is not None:
        say(counter_line(counter), quiet=quiet)


def _refused(refusal: "NotComparable") -> list[str]:
    """What keeps the two apart, a field to a line."""
    lines = [f"preempt: {refusal.what}: not comparable"]
    for heading, texts in (
        ("they differ in", refusal.differ),
        ("not known on one side, which is not equal", refusal.not_known),
    ):
        if texts:
            lines += [f"  {heading}:", *(f"    {text}" for text in texts)]
    return lines


def _summary(facts: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    both = [row for row in rows if row["join_side"] == "both"]
    counts = [(row["modelled_preemptions"], row["measured_num_preemptions"]) for row in both]
    known = all(None not in pair for pair in counts)
    equal = str(sum(one == other for one, other in counts)) if known else "an unknown number of"
    return [
        f"fidelity: {len(rows)} requests, {len(both)} on both sides; preemptions of those:"
        f" modelled {_total(both, 'modelled_preemptions')},"
        f" measured {_total(both, 'measured_num_preemptions')},"
        f" equal for {equal} requests",
        f"arrivals: {_ARRIVALS[facts['arrivals']]}",
        *facts["what_ifs"],
        *(f"not exact: {what}" for what in facts["not_exact"]),
    ]


def _print_table(rows: Sequence[Row]) -> None:
    from analysis.query import Column
    from analysis.render import print_rows

    console = options.console()
    shown = _WIDE if console.width >= _WIDE_COLUMNS else _NARROW
    columns = [
        Column(name, "BIGINT" if name.endswith(("preemptions", "_ticks", "_us")) else "VARCHAR")
        for name in shown
    ]
    print_rows(columns, [tuple(row[name] for name in shown) for row in rows], console)


def _total(rows: Sequence[Row], name: str) -> str:
    """Sum of what is known; a request nobody counted makes it unknown."""
    values = [row[name] for row in rows]
    return "unknown" if None in values else str(sum(values))
