"""What a `vllm-v1` replay costs, as ratios within one run on one machine.

    python benchmarks/replay.py --trace AzureLLMInferenceTrace_conv.csv \
        [--vllm-python VENV/bin/python] [--requests 10000000] [--json FILE]

The trace is the Azure 2023 LLM inference conversation trace (CC-BY,
https://github.com/Azure/AzurePublicDataset); 25 ms ticks, 2,499 usable blocks of 16 tokens, budget
8,192, fcfs, recompute. With --vllm-python vLLM's own scheduler class takes the same steps first (a
minute), and every time is also shown as how many times faster than that.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from collectors.traces import FORMATS  # noqa: E402
from replay.config import Config, parse_config  # noqa: E402
from replay.events import COLUMN, Kind  # noqa: E402
from replay.oracle.verify import verify_ledger  # noqa: E402
from replay.run import replay  # noqa: E402
from replay.vllm_v1.columns import Columns, columns_of  # noqa: E402
from replay.vllm_v1.simulation import Simulation  # noqa: E402
from replay.workload import Workload  # noqa: E402
from replay.workload_file import write_workload  # noqa: E402

REPEATS = 7
ENGINE = {
    "profile": "vllm-v1",
    "rule": "vllm-0.32.0",
    "tick_us": 25_000,
    "block_size": 16,
    "capacity_blocks": 2_499,
    "max_num_batched_tokens": 8_192,
    "max_model_len": 16_384,
    "enable_prefix_caching": False,
    "async_scheduling": False,
}


def config(**changes: Any) -> Config:
    """The benchmark's configuration with some engine keys changed."""
    return parse_config({"engine": ENGINE | changes}, "benchmark")


def seconds(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Median wall time of several runs, after one that compiles."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def scheduled(columns: Columns, chosen: Config, *, record: bool) -> int:
    """Replay without anything around it; gives the preemptions."""
    simulation = Simulation(columns, chosen, record=record, interpreted=False)
    rows = list(simulation.run())
    return sum(int((part[:, COLUMN["kind"]] == Kind.PREEMPT).sum()) for part in rows)


def tiled(columns: Columns, requests: int) -> Columns:
    """The trace again and again, one copy after the other."""
    copies = -(-requests // len(columns))
    period = int(columns.arrival_us[-1]) + 1_000_000

    def repeat(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.tile(values, copies)[:requests]

    later = np.repeat(np.arange(copies, dtype=np.int64) * period, len(columns))[:requests]
    return replace(
        columns,
        arrival_us=repeat(columns.arrival_us) + later,
        prompt_tokens=repeat(columns.prompt_tokens),
        output_tokens=repeat(columns.output_tokens),
        priority=repeat(columns.priority),
    )


def peak_bytes() -> int:
    """Most memory this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_seconds(columns: Columns) -> float:
    """One replay without a ledger, from its first step to its last."""
    simulation = Simulation(columns, config(), record=False, interpreted=False)
    start = time.perf_counter()
    for _ in simulation.run():
        pass
    return time.perf_counter() - start


def tiled_replay(columns: Columns, requests: int) -> dict[str, Any]:
    """One replay of so many requests: its memory, and its time beside that of the trace alone."""
    small = statistics.median(run_seconds(columns) for _ in range(REPEATS)) / len(columns)
    before = peak_bytes()
    took = run_seconds(tiled(columns, requests))
    return {
        "requests": requests,
        "seconds": took,
        "bytes_per_request": round((peak_bytes() - before) / requests),
        "ns_per_request": round(took / requests * 1e9),
        "time_over_small": round(took / requests / small, 2),
    }


def in_a_process(arguments: list[str]) -> tuple[float, int, str]:
    """Wall seconds, peak bytes and output of a program of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )
    output = child.stdout.read() if child.stdout else ""
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"failed: {arguments}")
    return time.perf_counter() - start, usage.ru_maxrss * 1024, output


def whole_command(workload: Workload, chosen: Config, directory: Path) -> dict[str, Any]:
    """`preempt replay` of a workload: Parquet in, ledger and receipt out, warm."""
    write_workload(workload, directory / "w.parquet", ".parquet")
    (directory / "c.toml").write_text(chosen.toml())
    runs = []
    for k in range(4):
        out = str(directory / f"ledger-{k}")
        line = ["-m", "preempt", "replay", str(directory / "w.parquet"), "--quiet"]
        line += ["--config", str(directory / "c.toml"), "--out", out]
        runs.append(in_a_process(line)[:2])
    warm = runs[1:]  # the first may have had to compile
    return {
        "seconds": statistics.median(took for took, _ in warm),
        "peak_mib": max(peak for _, peak in warm) // 2**20,
    }


def engine_seconds(python: Path, workload: Workload, chosen: Config) -> float:
    """What vLLM's own scheduler class takes for the same steps."""
    case = {
        "name": "benchmark",
        "config": {"engine": chosen.tables()["engine"]},
        "prefix_block_tokens": None,
        "requests": [
            {
                "request_id": r.request_id,
                "arrival_us": r.arrival_us,
                "prompt_tokens": r.prompt_tokens,
                "output_tokens": r.output_tokens,
            }
            for r in workload.requests
        ],
    }
    done = subprocess.run(
        [str(python), str(ROOT / "conformance" / "engine.py")],
        input=json.dumps(case) + "\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return float(result["seconds"])


def rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The table: what was measured, in seconds, and what else is worth knowing of it."""
    workload = FORMATS["azure"].read(options.trace, 10_000_000).workload
    columns = columns_of(workload)
    table: list[dict[str, Any]] = []
    engine = None
    if options.vllm_python:
        engine = engine_seconds(options.vllm_python, workload, config())
        table.append({"what": "vLLM's own scheduler class, watched", "seconds": engine})
    for what, chosen, record in (
        ("replay itself", config(), False),
        ("with the full ledger in memory", config(), True),
        ("prefix caching", config(enable_prefix_caching=True), False),
        ("asynchronous", config(async_scheduling=True), False),
        ("priority", config(scheduling_policy="priority"), False),
    ):
        took = seconds(lambda c=chosen, r=record: scheduled(columns, c, record=r))
        table.append({"what": what, "seconds": took})
    ledger = replay(workload, config())
    took = seconds(lambda: replay(workload, config()), 3)
    table.append({"what": "ledger with checks and receipt", "seconds": took})
    took = seconds(lambda: verify_ledger(ledger), 1)
    table.append({"what": "verify (the oracle)", "seconds": took})
    with tempfile.TemporaryDirectory() as directory:
        whole = whole_command(workload, config(), Path(directory))
        table.append({"what": "whole command, warm", **whole})
    line = [__file__, "--trace", str(options.trace), "--tiled", str(options.requests)]
    large = json.loads(in_a_process(line)[2])
    table.append({"what": "tiled, no ledger", **large})
    if engine is not None:
        for row in table[1:-1]:
            row["times_faster"] = round(engine / row["seconds"])
    return table


def main() -> None:
    """Print the table, and write it as JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, required=True, help="Azure 2023 conversation CSV.")
    parser.add_argument("--vllm-python", type=Path, help="Python of a vLLM environment.")
    parser.add_argument("--requests", type=int, default=10_000_000, help="Of the tiled trace.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tiled", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tiled:
        columns = columns_of(FORMATS["azure"].read(options.trace, 10_000_000).workload)
        print(json.dumps(tiled_replay(columns, options.tiled)))
        return
    table = rows(options)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(machine)
    for row in table:
        rest = {k: v for k, v in row.items() if k not in ("what", "seconds")}
        notes = ", ".join(f"{name} {value}" for name, value in rest.items())
        print(f"{row['what']:<32} {row['seconds']:>10.4f} s  {notes}".rstrip())
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "rows": table}, indent=1))


if __name__ == "__main__":
    main()
