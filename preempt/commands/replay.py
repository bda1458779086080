"""`preempt replay` and `preempt verify`: a workload becomes a ledger, and a ledger is checked."""

import shlex
from pathlib import Path
from typing import Any

import click

from preempt.commands import options
from preempt.commands.options import say
from replay.config import RECOVERIES
from replay.strict import printable

MOST_SHOWN = 20  # violations of one ledger, for a person


@click.command("replay")
@click.argument("workload", type=options.PATH)
@click.option(
    "--config", "config_path", type=options.PATH, required=True, help="Configuration (TOML)."
)
@click.option("--out", type=options.PATH, required=True, help="Ledger directory to create.")
@click.option("--recovery", type=click.Choice(RECOVERIES), help="Instead of policy.recovery.")
@click.option("--victim", help="Instead of policy.victim; the lab knows only its own 'rule'.")
@click.option(
    "--on-oversize",
    type=click.Choice(["refuse", "drop"]),
    default="refuse",
    show_default=True,
    help="What to do with requests that could never fit the pool.",
)
@click.option(
    "--keep-censored",
    is_flag=True,
    help="Write the ledger even if requests are unfinished at max_ticks (else exit 1).",
)
@click.option(
    "--jsonl/--no-jsonl", default=True, show_default=True, help="Also write events.jsonl."
)
@options.force
@options.quiet
@options.as_json
def replay_command(
    workload: Path,
    config_path: Path,
    out: Path,
    recovery: str | None,
    victim: str | None,
    on_oversize: str,
    keep_censored: bool,
    jsonl: bool,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Replay WORKLOAD through one policy and write the ledger to --out.

    WORKLOAD is a .parquet, .jsonl or .json workload, or - for JSON Lines on standard input.
    The ledger directory holds the workload, the configuration, every event, a row per request
    and the receipt with the four hashes; `preempt verify` checks it alone.

    \b
    A configuration needs only two keys:
        [engine]
        profile = "lab"
        capacity_blocks = 12
    and takes, with the defaults shown:
        [engine]    tick_us = 1, block_size = 8, max_num_seqs = 256
        [policy]    recovery = "recompute", kv_bytes_per_token = 512,
                    prefill_tokens_per_tick = 16, transfer_bytes_per_tick = 8192,
                    host_capacity_bytes = 0 (unlimited)
        [fairness]  max_queue_ticks = 200, max_preemptions = 2
        [limits]    max_requests = 64, max_ticks = 20000
    Rates and thresholds are per tick: scale them with tick_us.

    \b
    Example:
        preempt replay workload.parquet --config lab.toml --recovery swap --out swap/
    """
    from replay.config import read_config
    from replay.fit import drop_oversize, request_check
    from replay.ledger import write_ledger
    from replay.run import replay
    from replay.workload_file import read_workload

    config = read_config(config_path).with_policy(recovery, victim)
    check = request_check(config, keep_oversize=on_oversize == "drop")
    loaded = read_workload(workload, config.limits.max_requests, check)
    if on_oversize == "drop":
        loaded, dropped = drop_oversize(loaded, config, str(workload))
        if dropped:
            names = ", ".join(printable(name) for name in dropped)
            say(f"left out as oversize: {len(dropped)} ({names})", quiet=quiet)
    ledger = replay(loaded, config, str(workload), keep_censored=keep_censored)
    write_ledger(ledger, out, force=force, jsonl=jsonl)
    if as_json:
        options.print_json(ledger.receipt)
    for line in _summary(ledger.receipt):
        say(line, quiet=quiet or as_json)
    check_with = shlex.join(["preempt", "verify", "--", str(out)])
    say(f"ledger in {out}; check it with: {check_with}", quiet=quiet or as_json)


@click.command("verify")
@click.argument("ledgers", metavar="DIR...", type=options.PATH, nargs=-1, required=True)
@options.quiet
@options.as_json
@click.pass_context
def verify_command(
    context: click.Context, ledgers: tuple[Path, ...], quiet: bool, as_json: bool
) -> None:
    """Check ledger directories with the conservation oracle.

    Derives every event again from the directory's own workload and configuration, compares the
    other files with the events, and recomputes the hashes. Each violated equation is named with
    the event's seq. Exit code 1 if any is violated.

    \b
    Example:
        preempt verify recompute/ swap/
    """
    from dataclasses import asdict

    from replay.ledger import read_ledger
    from replay.oracle import verify_ledger

    results: dict[str, Any] = {}
    for path in ledgers:
        ledger = read_ledger(path)
        violations = verify_ledger(ledger)
        results[str(path)] = [asdict(v) for v in violations]
        for v in violations[:MOST_SHOWN]:
            where = "" if v.seq is None else f"seq {v.seq}: "
            say(f"{path}: {where}{v.equation}: {v.detail}", quiet=as_json)
        if len(violations) > MOST_SHOWN:
            say(f"{path}: … {len(violations) - MOST_SHOWN} more, --json has all", quiet=as_json)
        verdict = f"{len(violations)} violations" if violations else "every equation holds"
        say(f"{path}: {len(ledger.events)} events, {verdict}", quiet=quiet or as_json)
    if as_json:
        options.print_json({"violations": results, "holds": not any(results.values())})
    context.exit(1 if any(results.values()) else 0)


def _summary(receipt: dict[str, Any]) -> list[str]:
    totals, fairness, engine = receipt["totals"], receipt["fairness"], receipt["engine"]
    return [
        f"modelled by {engine['profile']} ({engine['rule']}),"
        f" recovery {receipt['policy']['recovery']}: {totals['requests']} requests,"
        f" {totals['completions']} complete, {totals['censored']} censored",
        f"{totals['pressure_events']} pressure events, {totals['preemptions']} preemptions,"
        f" {totals['freed_blocks']} blocks freed, {totals['charged_tokens']} tokens to replay,"
        f" {totals['swap_out_bytes']} bytes out, {totals['swap_in_bytes']} bytes in",
        f"▲ {len(fairness['flagged_wait'])} waited too long,"
        f" ✕ {len(fairness['flagged_repeat'])} displaced too often",
        f"input_sha256 {receipt['input_sha256']}",
        f"event_sha256 {receipt['event_sha256']}",
    ]
