"""`preempt gate noise`: how much equal runs differ, kept for gates that have few pairs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from preempt.commands import options
from preempt.commands.gate_store import evidence
from preempt.commands.options import say

_REFUSED = 4


@click.command("noise", short_help="Keep how much ten equal runs or more differ.")
@click.argument("gate_path", metavar="GATE.toml", type=options.PATH)
@click.option("--run", metavar="RUN", multiple=True, required=True, help="One of the equal runs.")
@click.option("--db", metavar="FILE", type=options.PATH, help="Store to read; RUN is a run_id.")
@click.option("-o", "--output", metavar="FILE", type=options.PATH, required=True, help="Profile.")
@options.force
@options.quiet
@options.as_json
@click.pass_context
def noise_command(
    context: click.Context,
    gate_path: Path,
    run: tuple[str, ...],
    db: Path | None,
    output: Path,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write how much equal runs differ in what GATE.toml asks: a noise profile.

    Ten runs or more, equal in everything that a gate compares, the declared change included, and of
    one workload; what is not equal is refused by name. For each statistic over pairs it keeps every
    run's number, their mean and their standard deviation, of latencies that of ln(value + floor).

    A gate whose evidence.noise_profile is optional or required takes it: with fewer pairs than
    statistics need, preempt gate run --noise can then fail a change, and never pass one.

    \b
    Exit codes:  0 written, 2 bad input or usage, 4 refused: the runs are not equal.
    \b
    Example:
        preempt gate noise gate.toml --run run-1 --run run-2 -o noise.json
    """
    from analysis.gate.gate_file import read_gate
    from analysis.gate.noise import make_profile
    from replay.canonical import canonical_json
    from replay.output import new_file

    gate = read_gate(gate_path)
    with evidence(db, run, ()) as (store, (ids, _)):
        made = make_profile(store, gate, ids)
    if made.record is None:
        say(f"refused: {made.refusal}")
        context.exit(_REFUSED)
    with new_file(output, force=force) as temporary:
        temporary.write_bytes(canonical_json(dict(made.record)) + b"\n")
    if as_json:
        options.print_json(made.record)
    for entry in made.record["entries"]:
        say(_line(entry), quiet=quiet or as_json)
    say(f"{len(made.record['runs'])} equal runs; profile in {output}", quiet=quiet or as_json)


def _line(entry: Mapping[str, Any]) -> str:
    what = entry["statistic"]
    if entry["kind"] == "regression":
        what += f" of {entry['field']}"
    if entry["where"]:
        what += f" (where {', '.join(entry['where'])})"
    if entry["reason"] is not None:
        return f"{what}: no number ({entry['reason']})"
    scale = "the share" if entry["floor_us"] is None else f"ln(us + {entry['floor_us']})"
    return f"{what}: SD {entry['sd']:.3g} from run to run, mean {entry['mean']:.4g}, of {scale}"
