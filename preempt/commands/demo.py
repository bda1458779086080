"""`preempt demo`: the whole pipeline on recorded data, printed short."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preempt.commands import options
from preempt.commands.options import say
from replay.strict import printable

if TYPE_CHECKING:
    from preempt.demo import Demo


@click.command("demo")
@click.option(
    "--out",
    type=options.PATH,
    default=Path("demo-out"),
    show_default=True,
    help="Directory to create.",
)
@click.option("--baseline", type=options.PATH, help="Another recorded run as the baseline.")
@click.option("--candidate", type=options.PATH, help="Another recorded run as the candidate.")
@options.force
@options.quiet
@options.as_json
def demo_command(
    out: Path,
    baseline: Path | None,
    candidate: Path | None,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Take recorded runs of a real vLLM through the whole pipeline.

    Two runs of vLLM 0.32.0 on a CPU come with the package: 240 requests of a public trace against
    48 and against 80 KV-cache blocks. The most preempted window of the first becomes a workload;
    it is replayed under recompute, swap and adaptive; each ledger is verified; modelled and
    measured rows are joined per request in DuckDB; and a gate judges the change from 48 to 80
    blocks. Exits 0 whatever the verdict.

    \b
    Writes to --out:
        ledgers/RECOVERY/   events, rows per request, receipt with hashes
        preempt.duckdb      the store
        report.md           the report, verdict first
        lab.toml, gate.toml what was declared; edit and try again
    """
    from preempt.demo import run_demo
    from preempt.recorded import BASELINE, CANDIDATE, GATE, recorded

    demo = run_demo(
        out,
        baseline or recorded("runs", BASELINE),
        candidate or recorded("runs", CANDIDATE),
        recorded("configs", "demo.toml"),
        recorded("gates", GATE),
        force=force,
        progress=lambda text: say(f"… {text}", quiet=quiet or not sys.stderr.isatty()),
    )
    if as_json:
        options.print_json(_as_json(demo))
    elif not quiet:
        _print(demo, out)


def _as_json(demo: "Demo") -> Mapping[str, Any]:
    return {
        "workload": demo.workload.name,
        "joined_requests": demo.joined_requests,
        "receipts": {name: ledger.receipt for name, ledger in demo.ledgers.items()},
        "gate": {"verdict": demo.gate.verdict, "sentence": demo.gate.sentence},
    }


def _print(demo: "Demo", out: Path) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = options.console()
    table = Table(
        title=f"Modelled: {len(demo.workload)} requests of {escape(str(demo.workload.name))}",
        caption="Modelled ticks are not latency. ▲ waited too long, ✕ displaced too often.",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("recovery")
    for heading in ("preemptions", "charged tokens", "bytes moved", "queue ticks", "▲", "✕"):
        table.add_column(heading, justify="right")
    for name, ledger in demo.ledgers.items():
        totals, fairness = ledger.receipt["totals"], ledger.receipt["fairness"]
        table.add_row(
            name,
            f"{totals['preemptions']:,}",
            f"{totals['charged_tokens']:,}",
            f"{totals['swap_out_bytes'] + totals['swap_in_bytes']:,}",
            f"{totals['queue_ticks']:,}",
            str(len(fairness["flagged_wait"])),
            str(len(fairness["flagged_repeat"])),
        )
    console.print(table)
    console.print(
        f"3 ledgers verified, {demo.joined_requests} rows joined with measured ones"
        " (what-if: the lab is not vLLM's scheduler)."
    )
    console.print(f"\nGate (measured): [bold]{escape(demo.gate.sentence)}[/bold]\n")
    console.print(
        f"Read {escape(printable(str(out / 'report.md'), 1000))}, then try:", soft_wrap=True
    )
    workload = str(out / "ledgers" / "swap" / "workload.parquet")
    for command in (
        ["sql", "--named", "worst_requests", "--rows", "5", "--db", str(out / "preempt.duckdb")],
        ["replay", workload, "--config", str(out / "lab.toml"), "--out", "mine"],
        ["gate", "explain", str(out / "gate.toml")],
    ):
        line = shlex.join(["preempt", *command])
        console.print(f"  {escape(printable(line, 1000))}", soft_wrap=True)
