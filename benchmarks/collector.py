"""Memory of a collector after a day at one scrape a second, on a clock that does not wait.

    python benchmarks/collector.py PAGE [--scrapes 86400]

PAGE is a metrics page of a vLLM. Its counters move with every scrape. Pages and samples go to a
temporary directory, as they would in a day: parsing, journal, rotation, Parquet and xz included.
"""

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[0] = str(ROOT)  # not this directory: its replay.py is another one

from collectors.scrape.footprint import keep_small  # noqa: E402

keep_small()
from collectors.scrape.loop import Collector, Settings  # noqa: E402
from collectors.scrape.outcome import Fetched, Outcome  # noqa: E402
from collectors.scrape.probe import Probed  # noqa: E402

START_NS = 1_795_986_000_000_000_000
MOVING = re.compile(rb"^(vllm:\w+_(?:total|sum|count)\{.*\}) [0-9.e+]+$", re.MULTILINE)


class FastClock:
    """Time passes when somebody sleeps; the disk is waited for, which real time would do."""

    def __init__(self) -> None:
        self.passed_ns = 0
        self.collector: Collector | None = None

    def unix_ns(self) -> int:
        """Wall clock."""
        return START_NS + self.passed_ns

    def monotonic_ns(self) -> int:
        """Monotonic clock."""
        return self.passed_ns

    async def sleep_until(self, monotonic_ns: int, stop: asyncio.Event) -> None:
        """Be there at once."""
        del stop
        self.passed_ns = max(self.passed_ns, monotonic_ns)
        if self.collector is not None:
            await self.collector.settled()


def memory(name: str) -> int:
    """MiB of one line of the process's status."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.split(f"{name}:")[1].split()[0]) // 1024


async def collect(template: bytes, scrapes: int, out: Path) -> dict[str, object]:
    """Collect; memory after each tenth."""
    clock, stop, done, seen = FastClock(), asyncio.Event(), 0, list[int]()

    async def fetch() -> Fetched:
        nonlocal done
        done += 1
        if done % max(1, scrapes // 10) == 0:
            seen.append(memory("VmRSS"))
            print(f"{done} scrapes, {seen[-1]} MiB resident", file=sys.stderr, flush=True)
        if done >= scrapes:
            stop.set()
        page = MOVING.sub(lambda m: b"%s %d.0" % (m[1], 1000 + done), template)
        return Fetched(Outcome.OK, 200, "text/plain; version=0.0.4", page)

    async def ask() -> Probed:
        return Probed("0.32.0", "tinymodel", 960)

    start = time.perf_counter()
    with ThreadPoolExecutor(1) as disk, ThreadPoolExecutor(1) as reader:
        collector = Collector(Settings(out), fetch, ask, clock, disk, reader=reader)
        clock.collector = collector
        await collector.run(stop)
    seconds = time.perf_counter() - start
    return {
        "scrapes": done,
        "outcomes": dict(collector.counters.outcomes),
        "resident_mib_by_tenth": seen,
        "resident_mib": memory("VmRSS"),
        "peak_mib": memory("VmHWM"),
        "seconds": round(seconds, 1),
        "ms_per_scrape": round(1000 * seconds / done, 2),
        "page_bytes": len(template),
    }


def main() -> None:
    """Print what was measured, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--scrapes", type=int, default=86_400)
    arguments = parser.parse_args()
    import aiohttp  # noqa: F401 (a collector that scrapes has it in memory)

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        found = asyncio.run(collect(arguments.page.read_bytes(), arguments.scrapes, out))
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    found["run_mib"] = round(size / 2**20, 1)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
