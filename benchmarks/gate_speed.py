"""What `preempt gate run` costs as its runs grow: time and peak memory of the whole command.

    python -m benchmarks.gate_speed [--requests 10000 100000 1000000] [--page] [--keep DIR]

Six pairs of synthetic runs (columns drawn at random, nothing simulated) are written as run
directories and loaded into a store; the command judges either, in a process of its own. `--page`
also writes the HTML report, which has queries of its own and bundles a charting library. Processor
seconds are there because others may use the machine, too.
Goal G12: 12 runs of 1,000,000 requests within 10 s and 1 GiB.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from analysis import store
from analysis.gate.pairing import abba_order
from collectors.manifest import read_manifest
from collectors.run import read_run
from collectors.writer import RunWriter
from replay.canonical import sha256

ROOT = Path(__file__).parents[1]
MANIFEST = ROOT / "fixtures" / "runs" / "base-1" / "manifest.json"
PAIRS = 6
SIDES = ("baseline", "candidate")
GATE = """
schema = "preemption-gate/1"
name = "speed"
[change]
fields = []
[design]
pairs = 6
warmup_us = 1_000_000
follow_up_us = 1_000_000
[slices.short]
where = { prompt_tokens = { max = 512 } }
[[predicate]]
id = "repeat"
kind = "repeated_preemption"
max_preemptions = 2
[[predicate]]
id = "queue"
kind = "regression"
field = "queue_time_us"
statistic = "p95"
max_regression = 0.1
floor_us = 50_000
[[predicate]]
id = "ttft"
kind = "regression"
field = "ttft_us"
statistic = "p95"
slice = "short"
max_regression = 0.1
floor_us = 50_000
[[predicate]]
id = "tpot"
kind = "regression"
field = "tpot_us"
statistic = "mean"
max_regression = 0.05
[[predicate]]
id = "goodput"
kind = "goodput"
slo = { ttft_us = 300_000, tpot_us = 40_000 }
max_drop = 0.02
[[predicate]]
id = "failures"
kind = "failures"
max_failed_fraction = 0.02
max_censored_fraction = 0.02
max_increase = 0.01
"""


def make_run(directory: Path, side: str, pair: int, requests: int) -> Path:
    """One run of a pair, in ABBA order; both runs of a pair have the same arrivals."""
    place = abba_order(side, pair)
    end = 1_000 * requests + 2_000_000
    name = f"{side}-{pair}"
    base = read_manifest(MANIFEST)
    manifest = base | {
        "run_id": name,
        "workload": base["workload"]
        | {"requests": requests, "workload_sha256": sha256(str(pair).encode())},
        "comparison": {"side": side, "pair": pair, "order": place, "arrival_seed": pair},
        "send_end_us": end - 1_500_000,
        "drain_end_us": end,
    }
    with RunWriter.create(directory / name, manifest) as writer:
        writer.write_part("measured_requests", _rows(pair, place, requests))
    return directory / name


def _rows(pair: int, place: int, requests: int) -> pl.DataFrame:
    offered, measured = np.random.default_rng([1, pair]), np.random.default_rng([2, place])
    prompt = offered.integers(16, 1024, requests)
    output = offered.integers(2, 512, requests)
    queue = measured.exponential(20_000, requests).astype(np.int64)
    ttft = queue + 100 * prompt
    tpot = measured.integers(15_000, 25_000, requests)
    decode = tpot * (output - 1)
    return pl.DataFrame(
        {
            "engine": np.zeros(requests, np.int64),
            "request_id": [f"request-{k}" for k in range(requests)],
            "arrival_us": 1_000 * np.arange(requests),
            "prompt_tokens": prompt,
            "generated_tokens": output,
            "max_tokens": output,
            "priority": np.zeros(requests, np.int64),
            "queue_time_us": queue,
            "requeue_time_us": np.zeros(requests, np.int64),
            "prefill_time_us": ttft - queue,
            "decode_time_us": decode,
            "ttft_us": ttft,
            "tpot_us": tpot,
            "e2e_us": ttft + decode,
            "num_preemptions": np.zeros(requests, np.int64),
        }
    ).with_columns(status=pl.lit("ok"), finish_reason=pl.lit("length"))


def measured(arguments: Sequence[str]) -> str:
    """Cells of Markdown: wall and processor seconds, peak MiB of `preempt` with these arguments."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "preempt", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1, 3):
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    took, processor = time.perf_counter() - start, used.ru_utime + used.ru_stime
    return f"{took:.1f} s | {processor:.1f} s | {used.ru_maxrss / 1024:,.0f} MiB"


def prepare(directory: Path, requests: int) -> None:
    """Write the gate, the runs and a store of them."""
    (directory / "gate.toml").write_text(GATE)
    with store.connect(directory / "store.duckdb") as db:
        for side in SIDES:
            for pair in range(PAIRS):
                path = make_run(directory / "runs", side, pair, requests)
                # Not `preempt load`: what it hashes is no matter here.
                store.load_run(db, read_run(path), workloads=False)


def measure(directory: Path, requests: int, *, page: bool) -> Iterator[str]:
    """Rows of Markdown: the gate from the store and from directories."""
    gate, database = directory / "gate.toml", directory / "store.duckdb"
    # In a process of its own: what is started by a large one counts that one's peak as its own.
    preparing = get_context("spawn").Process(target=prepare, args=(directory, requests))
    preparing.start()
    preparing.join()
    if preparing.exitcode:
        raise SystemExit(f"preparing the runs ended with {preparing.exitcode}")
    runs = {s: [directory / "runs" / f"{s}-{pair}" for pair in range(PAIRS)] for s in SIDES}
    places = [w for side, paths in runs.items() for p in paths for w in (f"--{side}", str(p))]
    names = [w for side, paths in runs.items() for p in paths for w in (f"--{side}", p.name)]
    stored = ["gate", "run", str(gate), *names, "--db", str(database), "-q"]
    commands = {
        "`gate run --db`": stored,
        "`gate run`, run directories": ["gate", "run", str(gate), *places, "-q"],
    }
    if page:
        commands["`gate run --db --out`"] = [*stored, "--out", str(directory / "out")]
    for what, arguments in commands.items():
        yield f"| {requests:,} | {what} | {measured(arguments)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--page", action="store_true", help="also the HTML report")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the runs are left")
    options: Any = parser.parse_args(arguments)
    print("| requests a run, 12 runs | command | wall time | processor | peak memory |")
    print("| --- | --- | --- | --- | --- |")
    for requests in options.requests:
        place = nullcontext(options.keep / str(requests)) if options.keep else None
        with place or tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "runs").mkdir(parents=True)
            for line in measure(Path(directory), requests, page=options.page):
                print(line, flush=True)


if __name__ == "__main__":
    main()
