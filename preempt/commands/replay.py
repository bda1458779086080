"""`preempt replay` and `preempt verify`: a workload becomes a ledger, and a ledger is checked."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preempt.commands import options
from preempt.commands.options import say
from preempt.commands.progress import progress_shown
from preempt.commands.timing_lines import timing_lines
from replay.config import RECOVERIES, Config, Policy
from replay.output import check_new_directory
from replay.strict import printable
from replay.victims import VICTIMS

if TYPE_CHECKING:
    from replay.ledger import Ledger

MOST_SHOWN = 20  # violations of one ledger, for a person


@click.command("replay")
@click.argument("workload", type=options.PATH)
@click.option(
    "--config",
    "config_path",
    type=options.PATH,
    help="Configuration (TOML); a run directory brings its engine's own.",
)
@click.option(
    "--timing",
    type=options.PATH,
    help="File of `preempt calibrate`: modelled step durations in place of engine.tick_us.",
)
@click.option("--out", type=options.PATH, required=True, help="Ledger directory to create.")
@click.option("--recovery", type=click.Choice(RECOVERIES), help="Instead of policy.recovery.")
@click.option("--victim", help=f"Instead of policy.victim: {', '.join(VICTIMS)}.")
@click.option(
    "--assume-rule",
    is_flag=True,
    help="Replay a release that nobody checked by a checked one near it, labelled as assumed.",
)
@options.arrivals
@options.engine
@click.option(
    "--on-oversize",
    type=click.Choice(["refuse", "drop"]),
    default="refuse",
    show_default=True,
    help="What to do with requests that could never fit the pool or max_model_len.",
)
@click.option(
    "--keep-censored",
    is_flag=True,
    help="Write the ledger even if requests are unfinished at max_ticks (else exit 1).",
)
@click.option(
    "--jsonl/--no-jsonl",
    default=None,
    help="Whether to write events.jsonl too; left out, only the lab does.",
)
@options.force
@options.quiet
@options.as_json
def replay_command(
    workload: Path,
    config_path: Path | None,
    timing: Path | None,
    out: Path,
    recovery: str | None,
    victim: str | None,
    assume_rule: bool,
    arrivals: str | None,
    engine: int | None,
    on_oversize: str,
    keep_censored: bool,
    jsonl: bool | None,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Replay WORKLOAD through one policy and write the ledger to --out.

    WORKLOAD is a .parquet, .jsonl or .json workload, - for JSON Lines on standard input, or the
    directory of a collected run. A run brings its engine's configuration, and the steps in which
    its requests arrived where they were recorded; --config and --arrivals time replace them.
    The ledger directory holds the workload, the configuration, every event, a row per request
    and the receipt with the four hashes; `preempt verify` checks it alone.

    \b
    A configuration of the lab needs only two keys:
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
    vLLM's own decisions, one tick for each step of the engine, need:
        [engine]
        profile = "vllm-v1"
        rule = "vllm-0.32.0"
        capacity_blocks = 2499
        max_num_batched_tokens = 8192
        max_model_len = 16384
    and take all of the above besides; of vLLM 0.32.0's own, with its defaults:
        [engine]    scheduling_policy = "fcfs" (or "priority"),
                    enable_chunked_prefill = true, scheduler_reserve_full_isl = true,
                    watermark = 0.0, long_prefill_token_threshold = 0,
                    enable_prefix_caching = true, async_scheduling = true
        [policy]    victim = "rule"
        [limits]    max_requests = 10000000, max_ticks = 1000000000
    Another victim, and any recovery but "recompute", is a what-if: no vLLM does it.

    \b
    With modelled durations in place of constant ticks, and times in microseconds, by --timing or
        [timing]    step_ns, prefill_token_ps, decode_request_ps, kv_token_ps (default 0 each)
    with engine.tick_us left out. Requests arrive by the clock then.

    \b
    Examples:
        preempt replay workload.parquet --config lab.toml --recovery swap --out swap/
        preempt replay conv.parquet --config vllm.toml --victim least-computed --out what-if/
        preempt replay my-run --out as-it-was/
    """
    from preempt.inputs import Choices, replay_inputs
    from replay.ledger import FILES, write_ledger
    from replay.run import replay

    check_new_directory(out, force=force, owned=FILES)
    drop = on_oversize == "drop"
    choices = Choices(recovery, victim, assume_rule, drop, arrivals, engine, timing)
    with progress_shown(quiet=quiet) as progress:
        progress.phase(f"reading {workload}")
        inputs = replay_inputs(workload, config_path, choices)
        ledger = replay(
            inputs.workload,
            inputs.config,
            str(workload),
            keep_censored=keep_censored,
            progress=progress.requests("replaying"),
            notice=progress.phase,
        )
        progress.phase(f"writing {out}")
        write_ledger(ledger, out, force=force, jsonl=jsonl)
    for note in inputs.notes:
        say(f"{workload}: {note}", quiet=quiet)
    if inputs.oversize:
        names = ", ".join(printable(name) for name in inputs.oversize)
        say(f"left out as oversize: {len(inputs.oversize)} ({names})", quiet=quiet)
    if as_json:
        options.print_json(ledger.receipt)
    for line in _summary(ledger):
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
    from replay.oracle.verify import verify_ledger

    results: dict[str, Any] = {}
    for path in ledgers:
        with progress_shown(quiet=quiet) as progress:
            progress.phase(f"reading {path}")
            ledger = read_ledger(path)
            violations = verify_ledger(ledger, progress.events(f"verifying {path}"))
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


def _summary(ledger: "Ledger") -> list[str]:
    receipt, config = ledger.receipt, ledger.config
    totals, fairness, engine = receipt["totals"], receipt["fairness"], receipt["engine"]
    policy, tax = receipt["policy"], receipt["totals"]["recompute_tax_frac"]
    return [
        f"modelled by {engine['profile']} ({engine['rule']}),"
        f" recovery {policy['recovery']}, victim by"
        f" {'its own rule' if policy['victim'] == 'rule' else policy['victim']}:"
        f" {totals['requests']} requests,"
        f" {totals['completions']} complete, {totals['censored']} censored",
        *receipt.get("what_ifs", ()),
        *_rates(config),
        *timing_lines(ledger),
        f"{totals['pressure_events']} pressure events, {totals['preemptions']} preemptions,"
        f" {totals['freed_blocks']} blocks freed, {totals['charged_tokens']} tokens to replay,"
        f" {totals['swap_out_bytes']} bytes out, {totals['swap_in_bytes']} bytes in",
        "recompute tax: no token was executed"
        if tax is None
        else f"recompute tax: {tax:.2%} of {totals['executed_tokens']} executed tokens",
        f"▲ {len(fairness['flagged_wait'])} waited too long,"
        f" ✕ {len(fairness['flagged_repeat'])} displaced too often",
        f"input_sha256 {receipt['input_sha256']}",
        f"event_sha256 {receipt['event_sha256']}",
    ]


def _rates(config: Config) -> list[str]:
    """What a swap was charged by, and a warning where nobody stated it for this engine's steps."""
    policy, defaults = config.policy, Policy()
    if policy.recovery == "recompute":
        return []
    host = policy.host_capacity_bytes
    lines = [
        f"rates per tick: {policy.prefill_tokens_per_tick} tokens prefilled,"
        f" {policy.transfer_bytes_per_tick} bytes moved; {policy.kv_bytes_per_token} bytes of KV a"
        f" token, host memory {f'{host} bytes' if host else 'unlimited'}"
    ]
    stated = ("prefill_tokens_per_tick", "transfer_bytes_per_tick")
    if config.engine.profile != "lab" and all(
        getattr(policy, rate) == getattr(defaults, rate) for rate in stated
    ):
        lines.append(
            "these rates are defaults, not this engine's: state what one step of it prefills and"
            f" moves ([policy] {', '.join(stated)})"
        )
    return lines
