"""How well timed replays describe a real engine: runs recorded here, fitted, replayed, compared.

    python benchmarks/fidelity.py record RUNS        # some 15 minutes: servers on loopback, pinned
    python benchmarks/fidelity.py judge RUNS         # the tables, from the runs alone

`record` starts vLLM on the first core, drives it from the second, and keeps one run a drive: one
configuration eight times, then other workloads, capacities and scheduling once each. `judge`
measures the spread of the eight, fits each run's step durations, and sets modelled beside measured:
calibrated on the run itself, and on the first of the eight (the forecast), whose drift of the step
cost against each run is measured from that run's steps and told apart from what remains.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
sys.path[0] = str(ROOT)  # this folder has a replay.py of its own

from collectors.traces import azure  # noqa: E402
from conformance.install import Machine, environment, find_python, tools  # noqa: E402
from conformance.serve import Options, Server  # noqa: E402
from replay.workload import Workload  # noqa: E402
from replay.workload_file import write_workload  # noqa: E402

TRACES = ROOT / "fixtures" / "traces"
RELEASE = "0.32.0"
REPEATS = 8


@dataclass(frozen=True)
class Drive:
    """One workload, offered so fast, to one configuration."""

    name: str
    trace: str
    first: int
    requests: int
    speed: float
    blocks: int
    policy: str = "fcfs"
    repeats: int = 1


DRIVES = (
    Drive("repeat", "conv", 0, 120, 5, 48, repeats=REPEATS),
    # Half its requests wait in a queue: which ones, a hair decides.
    Drive("edge", "conv", 0, 120, 3, 48),
    Drive("faster", "conv", 0, 120, 6, 48),
    Drive("other", "conv", 80, 110, 2.5, 48),
    Drive("larger", "conv", 0, 120, 4, 64),
    Drive("smaller", "conv", 0, 120, 2.5, 40),
    Drive("code", "code", 0, 90, 8, 48),
    Drive("priority", "conv", 0, 120, 3, 48, "priority"),
)


def workload(drive: Drive) -> Workload:
    """Requests of the public trace, made small enough for a model of two layers."""
    trace = azure.read(TRACES / f"azure-2023-{drive.trace}-head.csv").workload
    chosen = trace.requests[drive.first : drive.first + drive.requests]
    start = chosen[0].arrival_us
    return Workload(
        tuple(
            replace(
                request,
                request_id=f"r{k:04d}",
                arrival_us=request.arrival_us - start,
                prompt_tokens=max(24, min(request.prompt_tokens // 8, 480)),
                output_tokens=max(2, min(request.output_tokens, 300)),
                priority=k % 3 % 2 if drive.policy == "priority" else 0,
            )
            for k, request in enumerate(chosen)
        )
    )


def record(out: Path, names: list[str]) -> None:
    """Drive each configuration and keep the runs in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    found = environment(RELEASE, machine=Machine(say=click.echo))
    recorder = _recorder(out, found.python)
    for (blocks, policy), drives in _servers(names):
        folder = out / "servers" / f"{policy}-{blocks}"
        (folder / "spool").mkdir(parents=True, mode=0o700)
        options = Options(
            blocks=blocks,
            scheduling_policy=policy,
            core=0,
            environ={"PREEMPTION_LEDGER_SPOOL": str(folder / "spool"), "OMP_NUM_THREADS": "1"},
            pythonpath=(recorder,),
        )
        with Server(found, options, folder, ready_s=600) as server:
            warm = Drive("warm", "conv", 0, 40, 20, blocks, policy)
            _drive(server, folder, folder / "warm", warm)
            for drive in drives:
                for k in range(drive.repeats):
                    run = out / (f"{drive.name}-{k}" if drive.repeats > 1 else drive.name)
                    _drive(server, folder, run, drive)
                    click.echo(f"{run.name}: load of the machine {os.getloadavg()[0]:.1f}")


def _servers(names: list[str]) -> Iterator[tuple[tuple[int, str], list[Drive]]]:
    chosen = [drive for drive in DRIVES if not names or drive.name in names]
    for key in dict.fromkeys((drive.blocks, drive.policy) for drive in chosen):
        yield key, [drive for drive in chosen if (drive.blocks, drive.policy) == key]


def _recorder(out: Path, python: Path) -> Path:
    """The recorder in a directory of its own."""
    target = out / "recorder"
    if not target.exists():
        machine = Machine()
        _, base = find_python(machine)
        uv = [str(tools(base, machine) / "uv"), "--no-config", "pip", "install", "--quiet"]
        source = ROOT / "collectors" / "recorder"
        command = [*uv, "--target", str(target), "--python", str(python), str(source)]
        subprocess.run(command, env=machine.calm, check=True)
    return target


def _drive(server: Server, folder: Path, run: Path, drive: Drive) -> None:
    file = folder / f"{run.name}.jsonl"
    write_workload(workload(drive), file, ".jsonl")
    command = ["taskset", "-c", "1", sys.executable, "-m", "preempt", "collect", "drive"]
    command += [str(file), "--url", server.url, "--out", str(run), "--speed", str(drive.speed)]
    command += ["--interval", "1s", "--spool", str(folder / "spool"), "--quiet"]
    subprocess.run(command, cwd=ROOT, check=True)


def judge(runs: Path, *, as_json: bool) -> None:
    """Print the spread, the two calibrated levels and the drift."""
    from analysis.fidelity.study import study
    from replay.run import replay

    found = study(runs, "repeat-", replay)
    if as_json:
        click.echo(json.dumps(found.record(), indent=1, sort_keys=True))
    else:
        click.echo(found.markdown())


def main() -> None:
    """Record, or judge what was recorded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["record", "judge"])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--only", action="append", default=[], help="record: only these drives")
    parser.add_argument("--json", action="store_true", help="judge: every number")
    options = parser.parse_args()
    if options.what == "record":
        record(options.runs.resolve(), options.only)
    else:
        judge(options.runs, as_json=options.json)


if __name__ == "__main__":
    main()
