"""A gate's pages for tests: recorded runs, small runs made by hand, and names that attack."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
from stored import recorded

from analysis.gate.boundary.scan import Replayer
from analysis.gate.contract import Gate
from analysis.gate.gate_file import parse_gate, read_gate
from analysis.gate.run import evaluate
from analysis.gate.verdict import GateReport, report_json
from analysis.page.data import page_data
from analysis.store import connect, load_ledger, load_run
from collectors.run import Run
from replay.config import parse_config
from replay.ledger import Ledger
from replay.run import replay
from replay.workload import Request, Workload

ROOT = Path(__file__).parent.parent
RTL = "\u202etxet\u05d0\u05d1"
ATTACKS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "\"' onload=alert(1) <!--",
    RTL,
    "x" * 4000,
    "${title} $data $$",
    "\u2028\u2029]]>&lt;",
)


@dataclass(frozen=True)
class Judged:
    """A store, the gate judged on it and its answer."""

    db: duckdb.DuckDBPyConnection
    gate: Gate
    report: GateReport

    @property
    def data(self) -> dict[str, Any]:
        """What the page's figures show."""
        return page_data(self.db, self.gate, self.report)

    @property
    def sha256(self) -> str:
        """Hash of the report's JSON."""
        found: str = report_json(self.report)["report_sha256"]
        return found


def judged(
    gate: Gate,
    runs: Sequence[Run],
    ledgers: Sequence[Ledger] = (),
    replayer: Replayer | None = None,
) -> Judged:
    """The answer over runs, baseline and candidate in turn, in a store of its own."""
    db = connect(None)
    for run in runs:
        load_run(db, run)
    ids = [r.run_id for r in runs]
    report = evaluate(db, gate, ids[::2], ids[1::2], ledgers, replayer)
    for ledger in ledgers:
        load_ledger(db, ledger)
    return Judged(db, gate, report)


@cache
def demo() -> Judged:
    """The recorded runs of both sides, and a small modelled ledger."""
    gate = read_gate(ROOT / "fixtures" / "gates" / "blocks-48-to-80.toml")
    return judged(gate, [recorded("base-1"), recorded("cand-80")], [small_ledger()])


@cache
def small_ledger() -> Ledger:
    """A replay in the lab in which requests are preempted."""
    engine = {"profile": "lab", "capacity_blocks": 8, "block_size": 8}
    workload = Workload(tuple(Request(name, 0, 24, 16) for name in "abc"))
    return replay(workload, parse_config({"engine": engine}, "lab"))


def renamed(run: Run, run_id: str, names: Mapping[str, str], **manifest: Any) -> Run:
    """A recorded run under other names; keywords set fields of its manifest."""

    def frame(found: pl.DataFrame) -> pl.DataFrame:
        found = found.with_columns(run_id=pl.lit(run_id))
        if "request_id" in found.columns:
            found = found.with_columns(pl.col("request_id").replace(names))
        return found

    return replace(
        run,
        run_id=run_id,
        manifest={**run.manifest, "run_id": run_id, **manifest},
        requests=frame(run.requests),
        events=frame(run.events),
        steps=frame(run.steps),
        samples=frame(run.samples),
        offered=None,
    )


@cache
def hostile() -> Judged:
    """Recorded runs whose requests, model, gate, slice and check have names that attack."""
    first = recorded("base-1").requests["request_id"].sort()[: len(ATTACKS)]
    names = dict(zip(first, ATTACKS, strict=True))
    engine = dict(recorded("base-1").manifest["model"]) | {"name": ATTACKS[0]}
    raw = {
        "schema": "preemption-gate/1",
        "name": ATTACKS[1],
        "change": {"fields": ["cache.num_gpu_blocks"]},
        "slices": {ATTACKS[2]: {"where": {"priority": {"max": 0}}}},
        "predicate": [
            {"id": ATTACKS[0], "kind": "repeated_preemption", "max_preemptions": 1},
        ],
    }
    return judged(
        parse_gate(raw, "g.toml"),
        [
            renamed(recorded("base-1"), ATTACKS[1], names, model=engine),
            renamed(recorded("cand-80"), RTL, names, model=engine),
        ],
    )


class Structure(HTMLParser):
    """Tags with their attributes, in order, and the text of each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[dict[str, str | None], str]] = []
        self.visible: list[str] = []
        self._inside: dict[str, str | None] | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the tag."""
        self.tags.append((tag, dict(attrs)))
        self._inside = dict(attrs) if tag in ("script", "style") else None
        if self._inside is not None:
            self.raw.append((self._inside, ""))

    def handle_endtag(self, tag: str) -> None:
        """A script or style ends."""
        if tag in ("script", "style"):
            self._inside = None

    def handle_data(self, data: str) -> None:
        """Text belongs to a script or is seen."""
        if self._inside is None:
            self.visible.append(data)
        else:
            attributes, before = self.raw[-1]
            self.raw[-1] = (attributes, before + data)

    def named(self, name: str) -> list[dict[str, str | None]]:
        """Attributes of each tag of a name."""
        return [attributes for tag, attributes in self.tags if tag == name]

    def script(self, identity: str) -> str:
        """Text of the script with an id."""
        (found,) = (text for attributes, text in self.raw if attributes.get("id") == identity)
        return found
