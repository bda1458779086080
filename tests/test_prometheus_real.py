"""A real Prometheus has scraped an engine's pages: what it gives is what scraping them gives."""

import gzip
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest
from scrape_tools import collect

from collectors.prometheus import backfill
from collectors.run import Run, read_run
from collectors.scrape.outcome import Fetched, Outcome
from preempt.main import main

pytestmark = pytest.mark.prometheus

PAGES = Path(__file__).parent.parent / "fixtures" / "pages"
INTERVAL_MS = 250
COUNT = 40
DOWN = (12, 13)  # pages that are a 503
RESTART = 25  # from here on another process answers, whose counters began again
ORDER = ["scrape", "engine", "model", "name", "labels", "le"]


def pages() -> list[bytes | None]:
    """A recorded page, again and again, its counters rising; None where there is an error."""
    text = gzip.decompress((PAGES / "0.32.0.txt.gz").read_bytes()).decode()
    counter = re.compile(
        r"^(vllm:\w+_(?:total|bucket|sum|count)(?:\{[^}]*\})?) (\S+)$", re.MULTILINE
    )
    started = re.compile(r"^process_start_time_seconds .*$", re.MULTILINE)
    found: list[bytes | None] = []
    for k in range(COUNT):
        risen = k if k < RESTART else k - RESTART
        page = counter.sub(lambda m, risen=risen: f"{m[1]} {float(m[2]) + risen}", text)
        if k >= RESTART:
            page = counter.sub(lambda m, risen=risen: f"{m[1]} {float(risen)}", text)
            page = started.sub("process_start_time_seconds 1.9e+09", page)
        found.append(None if k in DOWN else page.encode())
    return found


class Replay(BaseHTTPRequestHandler):
    """The pages in order, one a request, and then nothing any more; `served` has their times."""

    pages: list[bytes | None]
    served: list[float]

    def do_GET(self) -> None:
        """The next page, or the connection's end."""
        if len(self.served) >= len(self.pages):
            self.close_connection = True
            return
        page = self.pages[len(self.served)]
        self.served.append(time.time())
        body = b"no" if page is None else page
        self.send_response(503 if page is None else 200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def replaying(served: list[float]) -> Iterator[int]:
    """A server of the pages; gives its port."""
    handler = type("Handler", (Replay,), {"pages": pages(), "served": served})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[str]:
    """Debian's Prometheus on loopback, scraping one port; gives its URL."""
    program = shutil.which("prometheus")
    assert program, "needs the program prometheus, of Debian's package of that name"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "prometheus.yml"
    config.write_text(
        f"global: {{scrape_interval: {INTERVAL_MS}ms, scrape_timeout: {INTERVAL_MS}ms}}\n"
        "scrape_configs:\n"
        "  - job_name: vllm\n"
        "    static_configs:\n"
        f"      - targets: ['127.0.0.1:{target}']\n"
        "        labels: {pod: vllm-0, namespace: serving, rack: b-17}\n"
    )
    arguments = [
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, *arguments], stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def stored(url: str, query: str) -> bool:
    """Whether a query finds anything now."""
    asked = f"{url}/api/v1/query?query={query}"
    with urllib.request.urlopen(asked) as answer:  # noqa: S310 (loopback)
        return b'"result":[]' not in answer.read()


def undisturbed(url: str, served: list[float]) -> bool:
    """Whether Prometheus took every page that it was served, and left out no moment for one.

    It gives a scrape no longer than the interval, which a busy machine may well do.
    """
    longest_s = max(later - earlier for earlier, later in pairwise(served))
    taken = stored(url, quote(f"sum_over_time(up[1h]) == {COUNT - len(DOWN)}"))
    return taken and longest_s < 1.8 * INTERVAL_MS / 1000


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """The same pages scraped directly, and out of Prometheus both ways, in tiny windows."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(backfill, "_FIRST_MS", 700)
        patched.setattr(backfill, "_LONGEST_MS", 1_700)
        for _ in range(10):
            if found := recorded(tmp_path_factory.mktemp("real")):
                return found
    pytest.fail("this machine was never free for the seconds that it takes")


def recorded(folder: Path) -> dict[str, Run] | None:
    """These runs; None where the machine kept Prometheus from a scrape."""
    served, start = list[float](), datetime.now(UTC)
    with replaying(served) as target, prometheus(folder, target) as url:
        wait_for(lambda: len(served) == COUNT)
        # It is down after its last page, and that is stored.
        wait_for(lambda: stored(url, "up==0"))
        if not undisturbed(url, served):
            return None
        end = datetime.now(UTC)
        asked = ["collect", "prometheus", "--url", url, "--selector", '{job="vllm"}', "--quiet"]
        asked += ["--query-range", f"{start.isoformat()}/{end.isoformat()}"]
        for name, more in (("raw", []), ("steps", ["--step", "100ms"])):
            with pytest.raises(SystemExit) as left:
                main([*asked, "--out", str(folder / name), *more])
            assert not left.value.code
    answers = [
        Fetched(Outcome.HTTP_503, 503)
        if page is None
        else Fetched(Outcome.OK, 200, "text/plain; version=0.0.4", page)
        for page in pages()
    ]
    collect(folder / "direct", list(answers))
    found = {name: read_run(folder / name) for name in ("direct", "raw", "steps")}
    times = found["raw"].samples.group_by("scrape").agg(pl.col("time_us").first()).sort("scrape")
    for scrape, time_us in times.iter_rows():
        assert abs(start.timestamp() + time_us / 1e6 - served[scrape]) < 1
    return found


def comparable(run: Run) -> pl.DataFrame:
    """Samples without what differs by nature: the run's name and when the scrapes were made."""
    return run.samples.drop("run_id", "time_us").sort(ORDER)


@pytest.mark.parametrize("way", ["raw", "steps"])
def test_samples_are_those_of_a_direct_scrape(runs: dict[str, Run], way: str) -> None:
    """Every value of every series of every scrape, under the same number."""
    expected, found = comparable(runs["direct"]), comparable(runs[way])
    assert COUNT - len(DOWN) == found["scrape"].n_unique()
    assert expected.height == found.height > 10_000
    assert expected.equals(found)


@pytest.mark.parametrize("way", ["raw", "steps"])
def test_the_manifest_says_the_same(runs: dict[str, Run], way: str) -> None:
    """Names, cache, resets and failed scrapes are the same; nothing of Prometheus's labels."""
    direct, found = runs["direct"].manifest, runs[way].manifest
    for key in ("metric_names", "cache", "scrapes"):
        assert direct[key] == found[key], key
    keys = ("scrape", "engine", "name", "before", "after")
    resets = [
        [tuple(reset[key] for key in keys) for reset in one["counter_resets"]]
        for one in (direct, found)
    ]
    assert resets[0] == resets[1] != []
    assert {RESTART} == {reset[0] for reset in resets[0]}
    missed = [gap["scrapes_missed"] for gap in found["gaps"] if "unreachable" in gap["reason"]]
    assert [len(DOWN)] == missed[:1]
    assert INTERVAL_MS * 1000 == found["scrape_interval_us"]
    text = (runs[way].path / "manifest.json").read_text()
    assert [] == [word for word in ("b-17", "vllm-0", "serving", "127.0.0.1") if word in text]
