"""What a lab replay costs, as ratios within one run on one machine.

    python benchmarks/lab.py [--json FILE]

Compares the scheduler with the tests' plain second implementation on the same inputs, the oracle
with the scheduler, and shows how the time grows with the number of requests and of ticks.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from lab_reference import reference_events  # noqa: E402
from workloads import contracts  # noqa: E402

from replay.events import Kind, to_rows  # noqa: E402
from replay.lab import replay_lab  # noqa: E402
from replay.oracle.verify import conservation  # noqa: E402
from replay.run import replay  # noqa: E402

REPEATS = 7


def inputs(requests: int, output_tokens: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Requests that arrive faster than a pool of about a fifth of them can serve."""
    records = [
        {
            "request_id": f"{k:08d}",
            "arrival_us": 3 * k,
            "prompt_tokens": 16 + 7 * k % 40,
            "output_tokens": output_tokens - 11 * k % (output_tokens // 2),
        }
        for k in range(requests)
    ]
    blocks = max(-(-(56 + output_tokens) // 8), requests * (40 + output_tokens) // 8 // 5)
    engine = {"profile": "lab", "capacity_blocks": blocks, "block_size": 8}
    return records, {"engine": engine, "policy": {"recovery": "adaptive"}}


def milliseconds(work: Callable[[], Any]) -> float:
    """Median processor time of several runs: other programs must not count."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time_ns()
        work()
        times.append((time.process_time_ns() - start) / 1e6)
    return statistics.median(times)


def measure(requests: int, output_tokens: int) -> dict[str, Any]:
    """One row: the same inputs through each way of working them out."""
    raw = inputs(requests, output_tokens)
    workload, config = contracts(*raw)
    events = replay_lab(workload, config)
    rows = to_rows(events)
    lab = milliseconds(lambda: replay_lab(workload, config))
    return {
        "requests": requests,
        "ticks": events[-1].tick + 1,
        "events": len(events),
        "preemptions": sum(e.kind == Kind.PREEMPT for e in events),
        "lab_ms": round(lab, 3),
        "plain_over_lab": round(milliseconds(lambda: reference_events(*raw)) / lab, 1),
        "oracle_over_lab": round(
            milliseconds(lambda: conservation(workload, config, rows)) / lab, 1
        ),
        "whole_ledger_over_lab": round(milliseconds(lambda: replay(workload, config)) / lab, 1),
    }


def main() -> None:
    """Print the table, and write it as JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = [measure(n, tokens) for tokens in (50, 400, 1500) for n in (16, 32, 64)]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(machine)
    print("  ".join(f"{name:>21}" for name in rows[0]))
    for row in rows:
        print("  ".join(f"{value:>21}" for value in row.values()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"peak resident memory {peak} MiB")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "rows": rows, "peak_mib": peak}))


if __name__ == "__main__":
    main()
