"""Loading ledgers into a store and asking it everything, and how both grow.

    python benchmarks/store.py make DIR [--trace AzureLLMInferenceTrace_conv.csv] [--ledgers 100]
    python benchmarks/store.py run DIR

`make` replays a conversation trace of Azure (CC-BY), by default the slice in fixtures/, tiled to
100,000 requests, once for each ledger: each has a capacity and a run of its own. `run` loads 1, 10
and 100 of them with `preempt load`, loads again, gives each ledger's run measured requests (rows of
the recorded run in fixtures/, tiled: what is timed are queries), and asks the whole per-request
join and every named query, in one process. Printed are seconds and the peak of resident memory.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from analysis.database import connect  # noqa: E402
from analysis.named import named_queries  # noqa: E402
from analysis.query import open_query  # noqa: E402
from analysis.store import load_path  # noqa: E402
from collectors.traces import azure  # noqa: E402
from replay.config import parse_config  # noqa: E402
from replay.ledger import write_ledger  # noqa: E402
from replay.run import replay  # noqa: E402
from replay.shape import tiled  # noqa: E402
from replay.workload_frame import batches_of, window_batches, workload_of  # noqa: E402

SLICE = ROOT / "fixtures" / "traces" / "azure-2023-conv-head.csv"
RECORDED = ROOT / "fixtures" / "runs" / "base-1"
REQUESTS = 100_000
ENGINE = {
    "profile": "vllm-v1",
    "rule": "vllm-0.32.0",
    "tick_us": 25_000,
    "block_size": 16,
    "max_num_batched_tokens": 8_192,
    "max_model_len": 16_384,
    "enable_prefix_caching": False,
    "async_scheduling": False,
}
JOIN = "SELECT count(*), sum(measured_ttft_us), sum(modelled_preemptions) FROM joined_requests"


def make(directory: Path, trace: Path, capacity: int, number: int) -> None:
    """One ledger of 100,000 requests."""
    batches = batches_of(azure.read(trace).workload)
    times = -(-REQUESTS // batches.requests)
    whole = tiled(batches, str(trace), times, period_us=None, same_prefixes=False)
    workload = workload_of(window_batches(whole, 0, REQUESTS, str(trace)), str(trace))
    workload = replace(workload, provenance={"run_id": f"run-{number:03}"})
    config = parse_config({"engine": ENGINE | {"capacity_blocks": capacity + number}}, "benchmark")
    write_ledger(replay(workload, config), directory / f"ledger-{number:03}")


def load(directory: Path, database: Path) -> tuple[float, float, float]:
    """Wall and processor seconds and peak MiB of `preempt load`."""
    code = "import sys; from preempt.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "load", str(directory), "--db", str(database), "-q"]
    start = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit("preempt load failed")
    took = time.perf_counter() - start
    return took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measure(database: Path) -> None:
    """Give every ledger's run a manifest and measured requests, those of the recorded run."""
    with connect(database) as db:
        (run,) = load_path(db, RECORDED)
        for table in ("measured_runs", "measured_workloads"):
            db.execute(
                f"INSERT INTO {table} SELECT found.* REPLACE (l.run_id AS run_id)"  # noqa: S608
                f" FROM {table} AS found, (SELECT DISTINCT run_id FROM modelled_ledgers) AS l"
                " WHERE found.run_id = $1",
                [run.id],
            )
        db.execute(
            "INSERT INTO measured_requests BY NAME"
            " WITH recorded AS (SELECT *, row_number() OVER () - 1 AS place FROM measured_requests"
            "  WHERE run_id = $1),"
            " wanted AS (SELECT run_id, request_id,"
            "  (row_number() OVER (PARTITION BY run_id ORDER BY request_id) - 1)"
            "  % (SELECT count(*) FROM recorded) AS place FROM modelled_requests)"
            " SELECT recorded.* EXCLUDE (place)"
            "  REPLACE (wanted.run_id AS run_id, wanted.request_id AS request_id)"
            " FROM wanted JOIN recorded USING (place)",
            [run.id],
        )


def ask(database: Path) -> None:
    """Seconds of the join and of each named query, and of all; in a process of its own.

    Until the first rows come: each is ordered, so that all have been found by then.
    """
    total, slowest = 0.0, []
    for name, text in [("join", JOIN), *((q.name, q.text) for q in named_queries())]:
        start = time.perf_counter()
        with open_query(database, text, timeout_seconds=600) as result:
            next(result.chunks(), None)
        took = time.perf_counter() - start
        total += took
        slowest.append((took, name))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"    {len(slowest)} queries {total:.1f} s, {peak:,.0f} MiB; the slowest:", end="")
    print(", ".join(f" {name} {took:.1f}" for took, name in sorted(slowest, reverse=True)[:8]))


def main() -> None:
    """Make ledgers, or measure with those that were made."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("make", "run", "ask"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--trace", type=Path, default=SLICE)
    parser.add_argument("--ledgers", type=int, default=100)
    parser.add_argument("--capacity", type=int, default=2_200)
    given = parser.parse_args()
    if given.what == "ask":
        ask(given.directory)
        return
    if given.what == "make":
        given.directory.mkdir(exist_ok=True)
        done = partial(make, given.directory, given.trace, given.capacity)
        with ProcessPoolExecutor(2) as pool:
            for number, _ in enumerate(pool.map(done, range(given.ledgers)), 1):
                print(f"\r{number} ledgers", end="", flush=True)
        print()
        return
    ledgers = sorted(given.directory.glob("ledger-*"))
    for count in (1, 10, 100):
        if count > len(ledgers):
            break
        with tempfile.TemporaryDirectory(dir=given.directory) as folder:
            database, some = Path(folder) / "store.duckdb", Path(folder) / "ledgers"
            some.mkdir()
            for path in ledgers[:count]:
                (some / path.name).symlink_to(path.resolve())
            events = sum(
                json.loads((p / "receipt.json").read_text())["totals"]["preemptions"]
                for p in ledgers[:count]
            )
            print(f"{count * REQUESTS:,} requests, {events:,} preemptions")
            for what in ("load", "again"):
                took, processor, peak = load(some, database)
                print(f"    {what:5} {took:6.1f} s ({processor:.1f} cpu), {peak:,.0f} MiB")
            measure(database)
            subprocess.run([sys.executable, __file__, "ask", str(database)], check=True)


if __name__ == "__main__":
    main()
