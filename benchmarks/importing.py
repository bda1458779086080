"""Time and memory of importing and sanitizing a trace, and how both grow with its rows.

    python benchmarks/importing.py [TRACE] [--rows 16803695]

TRACE is an Azure trace of 2023, by default the slice in fixtures/; it is tiled, in the format of
2024, to 1, 10 and 100 times 19,366 rows, and with --rows to that many (16,803,695: the code trace
of 2024). Every command is a process of its own. Printed are wall and processor seconds and the peak
of resident memory of both commands, and processor time a row as a ratio to the smallest trace's.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parents[1]
SLICE = ROOT / "fixtures" / "traces" / "azure-2023-conv-head.csv"
SMALL = 19_366
_CUT = 26  # microseconds: the seventh digit of 2023 is always 0


def rows(trace: Path) -> Iterator[str]:
    """Lines in the format of 2024, for ever: the trace again and again, a mean gap apart."""
    cells = [line.split(",") for line in trace.read_text().splitlines()[1:] if line]
    times = [datetime.fromisoformat(time[:_CUT]) for time, *_ in cells]
    period = (times[-1] - times[0]) * len(times) / (len(times) - 1)
    copy = timedelta()
    while True:
        for at, (_, prompt, output) in zip(times, cells, strict=True):
            yield f"{(at + copy).isoformat(' ')}+00:00,{prompt},{output}\n"
        copy += period


def measured(arguments: list[str]) -> tuple[float, float, int]:
    """Wall and processor seconds and peak resident bytes of one command."""
    code = "import sys; from preempt.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, *arguments, "--quiet"]
    start = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"preempt {arguments[0]} failed")
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def main() -> None:
    """Print one line a size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", nargs="?", type=Path, default=SLICE)
    parser.add_argument("--rows", type=int, help="one more size, e.g. 16803695")
    options = parser.parse_args()
    sizes = [SMALL, 10 * SMALL, 100 * SMALL, *([options.rows] if options.rows else [])]
    print("      rows   import s (cpu)  MiB   sanitize s (cpu)  MiB   cpu a row, ratio")
    first = 0.0
    with tempfile.TemporaryDirectory(prefix="importing-") as folder:
        place = Path(folder)
        for size in sizes:
            trace, workload = place / "trace.csv", place / "workload.parquet"
            with trace.open("w") as file:
                file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
                file.writelines(islice(rows(options.trace), size))
            most = ["--max-requests", str(size), "--force"]
            took = measured(["import", "azure", str(trace), "-o", str(workload), *most])
            shared = place / "shared.parquet"
            key = ["--key-file", str(place / "key")]
            again = measured(["sanitize", str(workload), "-o", str(shared), *key, *most])
            each = (took[1] + again[1]) / size
            first = first or each
            print(
                f"{size:>10,}  {took[0]:8.1f} ({took[1]:.1f})  {took[2] / 2**20:5.0f}"
                f"  {again[0]:10.1f} ({again[1]:.1f})  {again[2] / 2**20:5.0f}"
                f"   {each / first:8.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
