"""What rollout controllers are told: pass goes on, fail rolls back, everything else waits."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from test_gate_junit import COMPARED, report, result

from analysis.gate.answers import answer
from analysis.gate.comparability import Difference
from analysis.gate.verdict import FAIL, INCONCLUSIVE, PASS, GateReport, RunSummary, report_json
from preempt.gate_server import serving
from replay.canonical import canonical_json, sha256

OURS, OTHER = "a" * 64, "b" * 64
REFUSED = replace(COMPARED, differing=(Difference("engine.version", "differs"),))
VERDICTS: dict[str, GateReport] = {
    "pass": report(result("queue", PASS)),
    "fail": report(result("queue", FAIL)),
    "inconclusive": report(result("queue", INCONCLUSIVE)),
    "refused": report(compared=REFUSED),
}


def run(side: str, configuration: str | None) -> RunSummary:
    """One run of a report."""
    counts = dict.fromkeys(("ok", "error", "aborted", "censored", "unsent", "rejected"), 0)
    return RunSummary(side, side, 0, None, None, "0" * 64, configuration, 0, 0, **counts)


def kept(tmp_path: Path, found: GateReport, candidate: str | None = OURS) -> Path:
    """Its file, of a candidate of this configuration."""
    path = tmp_path / "report.json"
    runs = (run("baseline", OTHER), run("candidate", candidate))
    path.write_bytes(canonical_json(report_json(replace(found, runs=runs))))
    return path


def asked(path: Path, method: str, url: str) -> tuple[int, str]:
    """Status and text of one answer."""

    async def ask() -> tuple[int, str]:
        async with serving(path, "127.0.0.1", 0) as port, aiohttp.ClientSession() as session:
            where = f"http://127.0.0.1:{port}{url}"
            async with session.request(method, where, json={"name": "canary"}) as response:
                return response.status, await response.text()

    return asyncio.run(ask())


@pytest.mark.parametrize("verdict", VERDICTS)
def test_argo_is_told_the_verdict_with_a_status_that_is_no_error(
    verdict: str, tmp_path: Path
) -> None:
    """Its web metric reads the answer; anything but pass and fail pauses the rollout."""
    status, text = asked(kept(tmp_path, VERDICTS[verdict]), "GET", f"/argo/{OURS}")
    assert (200, verdict) == (status, json.loads(text)["verdict"])
    assert json.loads(text)["sentence"].startswith(f"{verdict}: ")


@pytest.mark.parametrize(
    ("verdict", "promotion", "rollback"),
    [("pass", 200, 409), ("fail", 409, 200), ("inconclusive", 409, 409), ("refused", 412, 412)],
)
def test_flagger_goes_on_at_200_and_never_asks_again_for_an_error(
    verdict: str, promotion: int, rollback: int, tmp_path: Path
) -> None:
    """Promotion on a pass alone, rollback on a fail alone; the body is the reason in one line."""
    path = kept(tmp_path, VERDICTS[verdict])
    for hook, expected in (("confirm-promotion", promotion), ("rollback", rollback)):
        status, text = asked(path, "POST", f"/flagger/{hook}/{OURS}")
        assert (expected, 1) == (status, len(text.splitlines()))


@pytest.mark.parametrize("candidate", [OTHER, None])
def test_another_candidate_is_refused(candidate: str | None, tmp_path: Path) -> None:
    """A pass of what was measured yesterday says nothing of what rolls out today."""
    path = kept(tmp_path, VERDICTS["pass"], candidate)
    found = answer(path, OURS)
    assert ("refused", ("other_candidate",)) == (found.verdict, found.reasons)
    assert 412 == asked(path, "POST", f"/flagger/confirm-promotion/{OURS}")[0]


def test_no_report_yet_waits(tmp_path: Path) -> None:
    """It may come; nothing is promoted and nothing rolled back until then."""
    found = answer(tmp_path / "report.json", OURS)
    assert ("inconclusive", 409, 409) == (found.verdict, found.promotion(), found.rollback())


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body[:1],
        lambda body: body[:0],
        lambda body: body.replace(b'"pass"', b'"fail"'),
        lambda body: sealed(body, runs=3),
        lambda body: sealed(body, runs=[3]),
        lambda body: sealed(body, verdict="fine"),
        lambda body: sealed(body, schema="preemption-gate-report/2"),
    ],
    ids=["cut", "empty", "changed", "runs", "run", "verdict", "schema"],
)
def test_a_report_that_is_none_or_was_changed_is_refused(
    change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """And the server goes on serving."""
    path = kept(tmp_path, VERDICTS["pass"])
    path.write_bytes(change(path.read_bytes()))
    found = answer(path, OURS)
    assert ("refused", ("bad_report",)) == (found.verdict, found.reasons)


def sealed(body: bytes, **changes: Any) -> bytes:
    """A report with these values and the hash that fits."""
    own = {k: v for k, v in json.loads(body).items() if k != "report_sha256"} | changes
    return canonical_json(own | {"report_sha256": sha256(canonical_json(own))})


@pytest.mark.parametrize(
    "url", ["/argo/x", f"/argo/{OURS.upper()}", "/argo/../../etc/passwd", "/", f"/flagger/{OURS}"]
)
def test_nothing_else_is_served(url: str, tmp_path: Path) -> None:
    """No other path, and no file."""
    assert 404 == asked(kept(tmp_path, VERDICTS["pass"]), "GET", url)[0]


def test_a_new_report_counts_from_the_next_question_on(tmp_path: Path) -> None:
    """Nothing has to be started again."""
    path = kept(tmp_path, VERDICTS["pass"])
    assert "pass" == answer(path, OURS).verdict
    kept(tmp_path, VERDICTS["fail"])
    assert "fail" == answer(path, OURS).verdict


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_the_command_says_where_it_serves_and_ends_when_told_to(
    number: signal.Signals, tmp_path: Path
) -> None:
    """On loopback unless told otherwise."""
    path = kept(tmp_path, VERDICTS["pass"])
    words = [sys.executable, "-m", "preempt", "gate", "serve", str(path), "--port", "0"]
    with subprocess.Popen(
        words, cwd=Path(__file__).parents[1], env=os.environ, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert re.search(r"at http://127\.0\.0\.1:\d+$", line.strip()), line
        process.send_signal(number)
        assert 0 == process.wait(timeout=30)
