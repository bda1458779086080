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
from preempt.main import main
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


def asked(
    path: Path,
    method: str,
    url: str,
    token: Path | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, str]:
    """Status and text of one answer."""

    async def ask() -> tuple[int, str]:
        async with (
            serving(path, "127.0.0.1", 0, token) as port,
            aiohttp.ClientSession(headers=headers) as session,
        ):
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


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer 5ecret"}, 200),
        ({"Authorization": "Bearer 5ecret2"}, 401),
        ({"Authorization": "5ecret"}, 401),
        ({"Authorization": "Basic Z2F0ZTo1ZWNyZXQ="}, 200),
        ({"Authorization": "Basic NWVjcmV0Og=="}, 401),
        ({"Authorization": "Basic !"}, 401),
        ({"Authorization": "Bearer \u00e9"}, 401),
    ],
)
def test_with_a_token_only_who_knows_it_is_answered(
    headers: dict[str, str], status: int, tmp_path: Path
) -> None:
    """As a bearer, or as the password of a URL; whether it lives anybody may ask."""
    path, token = kept(tmp_path, VERDICTS["pass"]), tmp_path / "token"
    token.write_text("5ecret\n")
    assert status == asked(path, "GET", f"/argo/{OURS}", token, headers)[0]
    assert status == asked(path, "POST", f"/flagger/confirm-promotion/{OURS}", token, headers)[0]
    assert 200 == asked(path, "GET", "/livez", token, headers)[0]


def test_a_token_may_be_replaced_and_lets_nobody_in_while_it_is_gone(tmp_path: Path) -> None:
    """It is read for each question, and a missing one is no open door."""
    path, token = kept(tmp_path, VERDICTS["pass"]), tmp_path / "token"
    token.write_text("old")

    async def ask() -> list[int]:
        found = []
        async with serving(path, "127.0.0.1", 0, token) as port, aiohttp.ClientSession() as client:
            for now in ("old", "new", None):
                if now is None:
                    token.unlink()
                else:
                    token.write_text(now)
                where = f"http://127.0.0.1:{port}/argo/{OURS}"
                async with client.get(where, headers={"Authorization": "Bearer new"}) as answered:
                    found.append(answered.status)
        return found

    assert [401, 200, 401] == asyncio.run(ask())


@pytest.mark.parametrize(
    ("host", "content", "said"),
    [
        ("0.0.0.0", None, "--host: must be a loopback address, or --token-file"),  # noqa: S104
        ("gate.example", None, "--host: must be a loopback address, or --token-file"),
        ("127.0.0.1", "", "must hold one token"),
        ("127.0.0.1", "two words", "must hold one token"),
    ],
)
def test_nobody_else_is_served_without_a_token(
    host: str, content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line and 2, before anything listens."""
    words = ["gate", "serve", str(kept(tmp_path, VERDICTS["pass"])), "--host", host]
    if content is not None:
        (tmp_path / "token").write_text(content)
        words += ["--token-file", str(tmp_path / "token")]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert 2 == ended.value.code
    assert said in capsys.readouterr().err


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
