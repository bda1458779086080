"""A gate over real servers: equal ones, fewer KV blocks, and equal ones that fight for the cores.

    python -m benchmarks.gate_live OUT [--pairs 6] [--requests 300] [--workloads 3]

Each case is one `preempt compare` that starts a server for every drive (vLLM 0.32.0, no GPU,
random weights) and leaves its pairs, verdict and report in OUT/CASE. Pinned: the server on the
first core, driver and collector on the second. Unpinned: wherever Linux puts them. Printed are the
verdicts, how much each of twelve equal runs differs (standard deviation of ln), and the same
between the two runs of a pair. Given again, it goes on where it was stopped. With one workload the
runs of `equal` make a noise profile (`preempt gate noise`). Some ten minutes a case and six pairs;
nothing else may work on the machine.
"""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np

from collectors.traces import azure
from conformance.install import Environment, Machine, environment
from conformance.serve import Options, free_port, start_line, write_model
from replay.workload import Request, Workload
from replay.workload_file import write_workload

ROOT = Path(__file__).parents[1]
RECORDER = ROOT / "collectors" / "recorder"
LENGTHS = ROOT / "fixtures" / "traces" / "azure-2023-conv-head.csv"
RELEASE = "0.32.0"
BLOCKS, FEWER = 56, 40
RATE_PER_S = 8.0
FOLLOW_UP_US, WARM_UP_US = 4_000_000, 1_000_000
CORES = ("0", "1")
GATE = """\
schema = "preemption-gate/1"
name = "{name}"
[change]
fields = ["cache.num_gpu_blocks"]
[design]
kind = "driven"
pairs = {pairs}
arrival_seeds = {workloads}
warmup_us = {warm_up_us}
follow_up_us = {follow_up_us}
[slices.all]
where = {{ prompt_tokens = {{ max = 480 }} }}
min_eligible = 100
[[predicate]]
id = "queue"
kind = "regression"
field = "queue_time_us"
statistic = "p95"
slice = "all"
max_regression = 0.10
floor_us = 50_000
[[predicate]]
id = "ttft"
kind = "regression"
field = "ttft_us"
statistic = "p95"
slice = "all"
max_regression = 0.10
floor_us = 50_000
[[predicate]]
id = "tpot"
kind = "regression"
field = "tpot_us"
statistic = "mean"
slice = "all"
max_regression = 0.05
[[predicate]]
id = "goodput"
kind = "goodput"
slice = "all"
slo = {{ ttft_us = 500_000, tpot_us = 50_000 }}
max_drop = 0.02
"""


@dataclass(frozen=True)
class Case:
    """What the two servers of a comparison differ in, and where they run."""

    name: str
    candidate_blocks: int
    pinned: bool


CASES = (
    Case("equal", BLOCKS, pinned=True),
    Case("fewer-blocks", FEWER, pinned=True),
    Case("equal-unpinned", BLOCKS, pinned=False),
)


def offered(seed: int, count: int) -> Workload:
    """Requests with lengths of a public trace, made small, that arrive at random."""
    rng = np.random.default_rng(seed)
    lengths = azure.read(LENGTHS).workload.requests
    picked = rng.integers(0, len(lengths), count)
    at_us = np.cumsum(rng.exponential(1e6 / RATE_PER_S, count)).astype(int)
    return Workload(
        tuple(
            Request(
                request_id=f"s{seed}r{k:04d}",
                arrival_us=int(at_us[k] - at_us[0]),
                prompt_tokens=max(24, min(lengths[index].prompt_tokens // 8, 480)),
                output_tokens=max(8, min(lengths[index].output_tokens // 2, 200)),
            )
            for k, index in enumerate(picked)
        )
    )


def compare(case: Case, files: Sequence[Path], installed: Environment, out: Path) -> int:
    """Exit code of `preempt compare`; what it says goes to the terminal."""
    model, port = write_model(out / "model"), _port(out / "port")
    sides = []
    for side, blocks in (("baseline", BLOCKS), ("candidate", case.candidate_blocks)):
        core = int(CORES[0]) if case.pinned else None
        options = Options(blocks=blocks, core=core, pythonpath=(out.parent / "recorder",))
        sides += [f"--{side}-start", start_line(installed, model, port, options)]
    pin = ["taskset", "-c", CORES[1]] if case.pinned else []
    command = [*pin, sys.executable, "-m", "preempt", "compare", *map(str, files)]
    where = ["--out", str(out / "pairs"), "--url", f"http://127.0.0.1:{port}", "--recorder"]
    # A client that fights for its core is late, too: that is what the case is about.
    late = [] if case.pinned else ["--lateness-limit", "1h"]
    running = subprocess.Popen([*command, *where, *sides, *late], cwd=ROOT)
    try:
        return running.wait()
    finally:
        # Asked, not killed: it ends the server that it has started.
        running.terminate()
        running.wait()


def _port(kept: Path) -> int:
    """The same port each time: a comparison goes on only with the same commands."""
    if not kept.exists():
        kept.write_text(str(free_port()))
    return int(kept.read_text())


def spreads(report: dict[str, Any]) -> Iterator[tuple[str, float | None, float | None]]:
    """Of each statistic: the spread of ln over all runs, and of a pair's differences."""
    for check in report["predicates"]:
        values = [value for side in ("baseline", "candidate") for value in check[side]]
        if check["effects"] and all(isinstance(value, int | float) for value in values):
            logs = [log(value) for value in values if value > 0]
            of_runs = stdev(logs) if len(logs) == len(values) > 1 else None
            yield check["id"], of_runs, stdev(check["effects"]) if len(values) > 2 else None  # noqa: PLR2004


def told(case: Case, report: dict[str, Any]) -> list[str]:
    """Lines of Markdown tables: the verdict, and what every check says."""
    found = {name: (runs, pairs) for name, runs, pairs in spreads(report)}
    lines = [f"| {case.name} | **{report['verdict']}** | {', '.join(report['reasons'])} | | | |"]
    for check in report["predicates"]:
        runs, pairs = found.get(check["id"], (None, None))
        lines.append(
            f"| | {check['verdict']} | {check['id']} | {shown(check['estimate'])} "
            f"[{shown(check['low'])}, {shown(check['high'])}] | {shown(runs)} | {shown(pairs)} |"
        )
    return lines


def shown(value: float | None) -> str:
    """Three digits; what is not known is empty."""
    return "" if value is None else f"{value:.3g}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every case that has no verdict yet, and print the tables."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    asked.add_argument("out", type=Path)
    asked.add_argument("--pairs", type=int, default=6)
    asked.add_argument("--requests", type=int, default=300)
    asked.add_argument("--case", action="append", choices=[case.name for case in CASES])
    asked.add_argument("--workloads", type=int, default=3)
    given = asked.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    given.out = given.out.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    recorder = given.out / "recorder"
    if not recorder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", str(recorder), str(RECORDER)], check=True)
    files = []
    for seed in range(min(given.workloads, given.pairs)):
        files.append(given.out / f"offered-{seed}.jsonl")
        write_workload(offered(seed, given.requests), files[-1], ".jsonl")
    installed = environment(RELEASE, machine=Machine(say=lambda text: print(text, file=sys.stderr)))
    rows = ["| case | verdict | check | estimate [interval] | SD of runs | SD of pairs |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        if given.case and case.name not in given.case:
            continue
        folder = given.out / case.name
        folder.mkdir(exist_ok=True)
        gate = folder / "gate.toml"
        values = {"warm_up_us": WARM_UP_US, "follow_up_us": FOLLOW_UP_US, "workloads": len(files)}
        gate.write_text(GATE.format(name=case.name, pairs=given.pairs, **values))
        verdict = folder / "pairs" / "verdict" / "report.json"
        if not verdict.exists():
            code = compare(case, [gate, *files], installed, folder)
            if not verdict.exists():
                raise SystemExit(f"{case.name}: preempt compare ended with {code}")
        rows += told(case, json.loads(verdict.read_text()))
    print("\n".join(rows))


if __name__ == "__main__":
    main()
