"""`preempt fidelity`: a ledger beside the run it claims to describe, and how far they are apart."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from preempt.commands import options
from preempt.commands.options import say
from preempt.commands.progress import progress_shown

if TYPE_CHECKING:
    from analysis.errors import NotComparable
    from analysis.fidelity.compare import Fidelity
    from analysis.fidelity.scores import Score

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
_MOST_EVENTS = 6


@click.command("fidelity")
@click.argument("ledger", type=options.PATH)
@click.argument("run", type=options.PATH)
@click.option("--requests", is_flag=True, help="Print every request of both sides, too.")
@options.quiet
@options.as_json
@click.pass_context
def fidelity_command(
    context: click.Context, ledger: Path, run: Path, requests: bool, quiet: bool, as_json: bool
) -> None:
    """Say how well the LEDGER directory describes the RUN directory: scores, modelled and measured.

    Like is compared with like only. Another engine version, cache or scheduler configuration,
    policy or workload is refused with exit code 4 and the differing fields named, and so is what is
    unknown; a ledger of the lab profile describes no engine and is always refused. To see the same
    requests under another policy or capacity, load both and query joined_requests.

    \b
    What the comparison is worth is its level:
      stepped                          arrivals in the engine's own steps, what a replay
                                       of a run takes: every preempt event must be there
      timed, calibrated on this run    --timing fitted to this very run
      timed, calibrated on another run the honest forecast; the drift of the step cost is
                                       measured from this run's steps and scaled out of a
                                       second replay, so that what remains is the model's
      timed, uncalibrated              durations of no known engine
      constant ticks                   ticks are no latency: only preemptions are scored

    Measured times are the engine's own (queue, prefill and decode time) where it recorded them:
    a replay models no client. error is (modelled - measured) / measured.

    \b
    Examples:
      preempt replay runs/base-1 --out stepped
      preempt fidelity stepped runs/base-1
      preempt calibrate runs/base-1 -o timing.toml
      preempt replay runs/base-2 --timing timing.toml --out forecast
      preempt fidelity forecast runs/base-2 --json | jq .scores
    """
    from analysis.counter import counter_line
    from analysis.errors import NotComparable
    from analysis.fidelity.compare import compare, of_run
    from analysis.store import connect, load_ledger, load_run
    from collectors.run import read_run
    from replay.ledger import read_ledger
    from replay.run import replay

    with progress_shown(quiet=quiet) as progress, connect(None) as db:
        progress.phase(f"reading {ledger} and {run}")
        measured = read_run(run)
        modelled = of_run(read_ledger(ledger), measured)
        load_run(db, measured)
        load_ledger(db, modelled, str(ledger), progress.events(f"verifying {ledger}"))
        progress.phase("comparing")
        found: Fidelity | NotComparable
        try:
            found = compare(db, modelled, measured, partial(replay, keep_censored=True))
        except NotComparable as exc:
            found = exc
    if isinstance(found, NotComparable):
        for line in _refused(found):
            say(line)
        context.exit(found.exit_code)
    if as_json:
        options.print_json({**found.record, "rows": found.rows})
    else:
        _print_scores("scores", found.scores)
        if found.remainder:
            _print_scores("what remains once the drift is scaled out", found.remainder)
        if requests:
            _print_table(found.rows, timed=found.record["timing"] is not None)
    for line in _summary(found):
        say(line, quiet=quiet)
    if (counter := found.record["counter"]) is not None:
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


def _summary(found: "Fidelity") -> list[str]:
    facts, rows = found.record, found.rows
    both = [row for row in rows if row["join_side"] == "both"]
    counts = [(row["modelled_preemptions"], row["measured_num_preemptions"]) for row in both]
    known = all(None not in pair for pair in counts)
    equal = str(sum(one == other for one, other in counts)) if known else "an unknown number of"
    return [
        f"fidelity: {len(rows)} requests, {len(both)} on both sides; preemptions of those:"
        f" modelled {_total(both, 'modelled_preemptions')},"
        f" measured {_total(both, 'measured_num_preemptions')},"
        f" equal for {equal} requests",
        f"level: {found.level or 'nothing to compare'}; arrivals: {_ARRIVALS[facts['arrivals']]}",
        *_drift(facts),
        *_divergence(facts),
        *facts["what_ifs"],
        *(f"not exact: {what}" for what in facts["not_exact"]),
    ]


def _drift(facts: Mapping[str, Any]) -> list[str]:
    if facts["timing"] is None:
        return []
    if facts["drift"] is None:
        return ["drift of the step cost: unknown, the run tells no step's size and end"]
    lines = [f"drift: this run's steps took {facts['drift']:.3f} times what the durations say"]
    if (why := facts.get("not_remaining")) is not None:
        lines.append(f"drift not scaled out: {why}")
    return lines


def _divergence(facts: Mapping[str, Any]) -> list[str]:
    """Where a stepped replay and the run part, and what each side's engine was like then."""
    found = facts.get("divergence")
    if found is None:
        return []
    lines = [f"first difference in step {found['step']}:"]
    for side in ("modelled", "measured"):
        events = found[f"only_{side}"]
        named = ", ".join(f"{kind} of {request}" for kind, request in events[:_MOST_EVENTS])
        more = f" and {len(events) - _MOST_EVENTS} more" if len(events) > _MOST_EVENTS else ""
        state = found[f"{side}_state"]
        shown = ", ".join(
            f"{name.replace('_', ' ')} {'unknown' if value is None else value}"
            for name, value in state.items()
        )
        lines.append(f"  only {side}: {named or 'nothing'}{more} ({shown})")
    return lines


def _print_scores(title: str, scores: "Sequence[Score]") -> None:
    from rich.table import Table

    from analysis.fidelity.metrics import place

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("metric", "requests", "modelled", "measured", "error"):
        table.add_column(name, justify="left" if name == "metric" else "right")
    for one in sorted(scores, key=lambda score: place(score.metric)):
        error = "" if one.error_frac is None else f"{one.error_frac:+.1%}"
        table.add_row(
            one.metric,
            f"{one.requests:,}",
            _number(one.modelled_value),
            _number(one.measured_value),
            error,
        )
    options.console().print(table)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"


def _print_table(rows: Sequence[Row], *, timed: bool) -> None:
    from analysis.query import Column
    from analysis.render import print_rows

    console = options.console()
    shown: tuple[str, ...] = _WIDE if console.width >= _WIDE_COLUMNS else _NARROW
    if timed:  # a time beside a time
        shown = tuple(name.replace("queue_ticks", "queue_us") for name in shown)
    columns = [
        Column(name, "BIGINT" if name.endswith(("preemptions", "_ticks", "_us")) else "VARCHAR")
        for name in shown
    ]
    print_rows(columns, [tuple(row[name] for name in shown) for row in rows], console)


def _total(rows: Sequence[Row], name: str) -> str:
    """Sum of what is known; a request nobody counted makes it unknown."""
    values = [row[name] for row in rows]
    return "unknown" if None in values else str(sum(values))
