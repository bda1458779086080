"""`preempt compare`: drive a baseline and a candidate in turn, and judge the change."""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preempt.commands import options
from preempt.commands.collect_drive import chosen_of, driven_of, report, settings
from preempt.commands.gate import run_command
from preempt.commands.gate_store import evidence
from preempt.commands.options import say
from replay.canonical import canonical_json, sha256
from replay.errors import InputError

if TYPE_CHECKING:
    from analysis.gate.contract import Gate
    from collectors.compare.turns import Turn
    from collectors.drive.command import Chosen
    from replay.workload import Workload

SPOOL_VARIABLE = "PREEMPTION_LEDGER_SPOOL"
VERDICT = "verdict"
_STOPPED, _REFUSED, _INTERRUPTED = 1, 4, 130
# What changes a run; the rest of a drive's options may differ when a comparison goes on.
_KEPT = ("model", "speed", "max_gap", "concurrency", "token_ids", "interval", "timeout")
_OVERHEAD_S = 10.0  # of a drive, until one has shown it


@dataclass(frozen=True)
class Side:
    """Where a side is driven: its address, and the command that starts it or None."""

    url: str
    command: tuple[str, ...] | None
    spool: Path | None


@click.command("compare")
@click.argument("gate_path", metavar="GATE.toml", type=options.PATH)
@click.argument("workloads", metavar="WORKLOAD...", type=options.PATH, nargs=-1, required=True)
@click.option("--out", type=options.PATH, required=True, help="Directory of the comparison.")
@click.option("--baseline-url", help="Server of today, running.")
@click.option("--candidate-url", help="Server with the change, running.")
@click.option("--baseline-spool", type=options.PATH, help="What its recorder writes.")
@click.option("--candidate-spool", type=options.PATH, help="What its recorder writes.")
@click.option("--url", help="Where a started server answers, e.g. http://127.0.0.1:8000.")
@click.option("--baseline-start", metavar="COMMAND", help="Starts the server of today.")
@click.option("--candidate-start", metavar="COMMAND", help="Starts the server with the change.")
@click.option(
    "--recorder",
    is_flag=True,
    help="Started servers have the recorder installed: each drive gets a spool of its own.",
)
@click.option("--ready", default="10m", show_default=True, help="Longest start of a server.")
@click.option("--ledger", metavar="DIR", type=options.PATH, multiple=True, help="Modelled ledger.")
@click.option("--github", is_flag=True, help="As preempt gate run --github does.")
@settings
@click.option("--dry-run", is_flag=True, help="Say who would be driven when, and drive nobody.")
@options.quiet
@options.as_json
@click.pass_context
def compare_command(
    context: click.Context,
    /,
    gate_path: Path,
    workloads: tuple[Path, ...],
    out: Path,
    ledger: tuple[Path, ...],
    github: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Drive both sides of a change in pairs, and end with the verdict of GATE.toml.

    Each pair offers one WORKLOAD to both sides, one right after the other; which begins changes
    from pair to pair (ABBA), so that what drifts with time falls on both alike. There are as many
    pairs as the gate plans and as many WORKLOADs as its arrival_seeds; pairs take them in turn.
    Prompts differ from pair to pair, so that no cache knows them.

    Either both servers are running (--baseline-url, --candidate-url), or each drive starts one with
    a COMMAND, waits until it answers at --url, and ends it; its output is kept in OUT/logs. No
    shell runs the command. A gate needs to know every option of the scheduler: without the
    recorder inside vLLM, which tells them (--recorder, or the spools), it refuses. After the first
    pair it is asked whether the runs can be compared at all.

    What is done stays in OUT/pair-NN-SIDE: a comparison that was stopped goes on where the same
    command is given again, with the pair it was stopped in. A drive whose client fell behind, or
    that was given up, stops it. The report is in OUT/verdict.

    \b
    Exit codes:  0 pass, 1 fail or a drive was given up, 2 bad input or usage, 3 inconclusive,
                 4 refused, 130 interrupted.
    \b
    Examples:
        preempt compare gate.toml a.parquet --out n64 --baseline-url http://a --candidate-url http://b
        preempt compare gate.toml a.parquet --out n64 --url http://127.0.0.1:8000 --recorder
            --baseline-start "vllm serve M" --candidate-start "vllm serve M --max-num-seqs 64"
    """
    from analysis.gate.gate_file import read_gate
    from collectors.compare.turns import check_plan, check_workloads, done_turns, driving, turns
    from collectors.durations import duration_us
    from replay.workload_file import read_workload

    gate = read_gate(gate_path)
    if gate.design.kind != "driven":
        raise InputError(str(gate_path), "design.kind", "must be driven to be compared here")
    sides, ready_s = _sides(given), duration_us(given["ready"], "--ready") / 1e6
    read = [read_workload(path) for path in workloads]
    check_workloads(read, gate.design.arrival_seeds, workloads)
    planned = turns(gate.design.pairs, len(workloads))
    drives = {turn: _drive(turn, sides, read[turn.workload], out, given) for turn in planned}
    clock = Clock({turn: chosen.plan.due_us[-1] / 1e6 for turn, chosen in drives.items()})
    if dry_run:
        for turn in planned:
            say(
                f"{turn.order + 1}. {_named(turn, planned)}: {workloads[turn.workload]}",
                quiet=quiet,
            )
        say(f"some {_minutes(clock.left_s(planned))} in all; nobody was driven", quiet=quiet)
        return
    check_plan(
        out,
        {
            "gate_sha256": gate.sha256,
            "workload_sha256": [workload.sha256 for workload in read],
            # Commands may hold a key, and are kept as a hash.
            "servers_sha256": sha256(canonical_json([[s.url, s.command] for s in sides.values()])),
            "settings": {name: given[name] for name in _KEPT},
        },
    )
    done = done_turns(out, planned)
    if done:
        say(f"{len(done)} of {len(planned)} drives are there already", quiet=quiet)
    for turn in planned:
        if turn not in done:
            left = clock.left_s(planned[turn.order :])
            ends = time.strftime("%H:%M", time.localtime(time.time() + left))
            line = f"drive {turn.order + 1} of {len(planned)}, {_named(turn, planned)}"
            say(f"{line}; all will be done about {ends}", quiet=quiet)
            server = _server(turn, sides[turn.side], drives[turn], out, ready_s)
            began = time.monotonic()
            if (code := _driven(drives[turn], server, quiet=quiet)) is not None:
                context.exit(code)
            clock.took(turn, time.monotonic() - began)
            driving(out, turn).rename(out / turn.name)
        if turn.order == 1 and (why := _refusal(gate, out)) is not None:
            say(f"{why} (after the first pair; no other is driven)")
            context.exit(_REFUSED)
    runs = {side: tuple(str(out / t.name) for t in planned if t.side == side) for side in sides}
    context.invoke(
        run_command,
        gate_path=gate_path,
        **{side: tuple(sorted(names)) for side, names in runs.items()},
        ledger=ledger,
        boundary_baseline=(),
        boundary_candidate=(),
        noise=None,
        db=None,
        out=out / VERDICT,
        exit_map=(),
        github=github,
        no_selftest=False,
        force=True,
        quiet=quiet,
        as_json=as_json,
    )


class Clock:
    """How long drives take, by their workloads and by those that were done."""

    def __init__(self, planned_s: Mapping["Turn", float]) -> None:
        self._planned_s, self._overheads_s = planned_s, list[float]()

    def took(self, turn: "Turn", seconds: float) -> None:
        """Take in one drive."""
        self._overheads_s.append(seconds - self._planned_s[turn])

    def left_s(self, turns: "list[Turn] | tuple[Turn, ...]") -> float:
        """Seconds that these will take."""
        known = self._overheads_s
        each = sum(known) / len(known) if known else _OVERHEAD_S
        return sum(self._planned_s[turn] + each for turn in turns)


def _minutes(seconds: float) -> str:
    return f"{-(-seconds // 60):.0f} minutes"


def _named(turn: "Turn", planned: "tuple[Turn, ...]") -> str:
    return f"pair {turn.pair + 1} of {len(planned) // 2}, {turn.side}"


def _sides(given: Mapping[str, Any]) -> dict[str, Side]:
    """Where each side is driven; `UsageError` unless the options name one way for both."""
    from collectors.compare.server import command_of
    from collectors.compare.turns import SIDES

    urls = {side: given[f"{side}_url"] for side in SIDES}
    commands = {side: given[f"{side}_start"] for side in SIDES}
    running, starting = all(urls.values()), all((*commands.values(), given["url"]))
    if running == starting or any(
        ({**commands, "url": given["url"]} if running else urls).values()
    ):
        rule = (
            "Give both running servers (--baseline-url and --candidate-url), or how to start"
            " both (--url, --baseline-start and --candidate-start)."
        )
        raise click.UsageError(rule, click.get_current_context())
    if running:
        if given["recorder"]:
            rule = "--recorder is for servers that are started; running ones have spools."
            raise click.UsageError(rule, click.get_current_context())
        return {side: Side(urls[side], None, given[f"{side}_spool"]) for side in SIDES}
    if given["baseline_spool"] or given["candidate_spool"]:
        rule = "Spools are of running servers; started ones get their own with --recorder."
        raise click.UsageError(rule, click.get_current_context())
    spools = Path("spools") if given["recorder"] else None
    return {
        side: Side(given["url"], tuple(command_of(commands[side], f"--{side}-start")), spools)
        for side in SIDES
    }


def _drive(
    turn: "Turn",
    sides: Mapping[str, Side],
    workload: "Workload",
    out: Path,
    given: Mapping[str, Any],
) -> "Chosen":
    from collectors.compare.turns import driving

    side, spool = sides[turn.side], sides[turn.side].spool
    if side.command is not None and spool is not None:
        spool = out / spool / turn.name
    return chosen_of(
        workload,
        {
            **given,
            "url": side.url,
            "out": driving(out, turn),
            "spool": spool,
            "token_seed": turn.pair,
            "side": turn.side,
            "pair": turn.pair,
            "order": turn.order,
            "arrival_seed": turn.workload,
            "own_server": side.command is not None,
        },
    )


def _driven(chosen: "Chosen", server: AbstractContextManager[None], *, quiet: bool) -> int | None:
    """Drive one side once; the exit code of what stops the comparison, or None."""
    with server:
        driven = driven_of(chosen, lambda text: say(text, quiet=quiet), quiet=quiet)
    report(driven, quiet=quiet, as_json=False)
    again = "; the same command goes on with this pair"
    if driven.interrupted:
        say(f"stopped{again}", quiet=quiet)
        return _INTERRUPTED
    if driven.stopped is not None:
        say(f"given up{again}")
        return _STOPPED
    if driven.summary.behind:
        say(f"refused: the client fell behind, so these are other arrivals{again}")
        return _REFUSED
    return None


@contextmanager
def _server(
    turn: "Turn", side: Side, chosen: "Chosen", out: Path, ready_s: float
) -> Iterator[None]:
    """The side's server while it is driven: started for it, or one that is running anyway."""
    if side.command is None:
        yield
        return
    import shutil

    from collectors.compare.server import started
    from collectors.drive.command import ask

    def answers() -> bool:
        try:
            ask(chosen.urls, chosen.credentials, chosen.model)
        except InputError:
            return False
        return True

    log = out / "logs" / f"{turn.name}.log"
    log.parent.mkdir(mode=0o700, exist_ok=True)
    environ = {}
    if chosen.spool is not None:
        shutil.rmtree(chosen.spool, ignore_errors=True)  # of a drive that was stopped
        chosen.spool.mkdir(mode=0o700, parents=True)
        environ[SPOOL_VARIABLE] = str(chosen.spool.resolve())
    option = f"--{turn.side}-start"
    with started(side.command, option, environ, log, answers, ready_s):
        yield


def _refusal(gate: "Gate", out: Path) -> str | None:
    """Why the gate cannot compare the first pair, None if it can."""
    from analysis.gate.run import evaluate
    from collectors.compare.turns import SIDES

    baseline, candidate = ([str(out / f"pair-00-{side}")] for side in SIDES)
    with evidence(None, baseline, candidate) as (db, sides):
        found = evaluate(db, gate, *sides)
    return found.sentence if found.verdict == "refused" else None
