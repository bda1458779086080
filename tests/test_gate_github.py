"""What a gate says to GitHub Actions: a summary, outputs and annotations, whatever is in a name."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from test_gate_junit import COMPARED, report, result

from analysis.gate.comparability import Difference
from analysis.gate.github import MOST_SUMMARY_BYTES, annotations, outputs, summary
from analysis.gate.verdict import FAIL, INCONCLUSIVE, PASS

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_a_report_that_fits_is_the_summary() -> None:
    """Not a byte is changed."""
    assert "# pass\n" == summary("# pass\n")


@given(st.integers(0, 300), st.text(st.characters(codec="utf-8"), max_size=40))
def test_a_long_report_is_cut_at_a_line_and_says_so(room: int, line: str) -> None:
    """Within what the runner takes, in characters that are whole."""
    text = "\n".join([line.replace("\n", " ")] * 50)
    found = summary(text, 100 + room)
    assert len(found.encode()) <= 100 + room
    cut = found != text
    assert cut == (len(text.encode()) > 100 + room)
    assert cut == found.endswith("holds 1 MiB.*\n")


def test_the_runners_own_limit_is_the_default() -> None:
    """A summary above it would be dropped whole."""
    assert MOST_SUMMARY_BYTES == 1024 * 1024
    assert len(summary("x\n" * MOST_SUMMARY_BYTES).encode()) <= MOST_SUMMARY_BYTES


def test_outputs_are_the_verdict_its_reasons_and_the_report() -> None:
    """A line each, empty where there is nothing."""
    one = report(result("queue", INCONCLUSIVE, reasons=("too_few_pairs", "censored")))
    expected = (
        "verdict=inconclusive\nobservational=false\nreasons=censored,too_few_pairs\n"
        "report=out/report.json\n"
    )
    assert expected == outputs(one, Path("out/report.json"))
    assert "verdict=pass\nobservational=false\nreasons=\nreport=\n" == outputs(
        report(result("queue", PASS)), None
    )


def test_each_failed_check_has_an_annotation() -> None:
    """What passed has none, and an undecided check is not blamed for the failure."""
    found = annotations(
        report(result("queue", FAIL), result("repeat", PASS), result("goodput", INCONCLUSIVE))
    )
    assert ["::error title=queue%3A fail::queue did so"] == found
    assert [] == annotations(report(result("repeat", PASS)))


def test_a_verdict_that_is_no_failure_has_one_annotation() -> None:
    """Inconclusive warns, a refusal is an error."""
    (warned,) = annotations(report(result("queue", INCONCLUSIVE)))
    assert warned.startswith("::warning title=seqs-64%3A inconclusive::inconclusive: queue did so")
    compared = replace(COMPARED, differing=(Difference("engine.version", "differs"),))
    (refused,) = annotations(report(compared=compared))
    assert refused.startswith("::error title=seqs-64%3A refused::refused: ")


@given(st.text(min_size=1, max_size=60), st.text(max_size=60))
def test_no_name_begins_a_command_or_an_output_of_its_own(name: str, why: str) -> None:
    """However many lines, colons and percent signs are in it."""
    one = report(replace(result(name, FAIL), why=why))
    (found,) = annotations(one)
    assert 1 == len(found.splitlines())
    title, message = re.fullmatch(r"::error title=([^:,]*)::(.*)", found, re.DOTALL).groups()  # type: ignore[union-attr]
    assert [] == re.findall(r"%(?!25|0A|0D|3A|2C)", title + message)
    assert 4 == len(outputs(one, Path(name.replace("\0", ""))).splitlines())


# As the command does it.


def gate_run(*more: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The gate of the fixtures, whose verdict of one pair is inconclusive."""
    runs = FIXTURES / "runs"
    sides = ("--baseline", str(runs / "base-1"), "--candidate", str(runs / "cand-80"))
    gate = str(FIXTURES / "gates" / "blocks-48-to-80.toml")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")}
    return subprocess.run(
        [sys.executable, "-m", "preempt", "gate", "run", gate, *sides, *more],
        cwd=FIXTURES.parent,
        env=kept | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_step_gets_its_summary_outputs_and_annotation(tmp_path: Path) -> None:
    """What other steps had written stays."""
    summary_file, output_file = tmp_path / "summary", tmp_path / "output"
    summary_file.write_text("# before\n")
    output_file.write_text("other=1\n")
    out = tmp_path / "out"
    files = {"GITHUB_STEP_SUMMARY": str(summary_file), "GITHUB_OUTPUT": str(output_file)}
    done = gate_run("--github", "-q", "--out", str(out), **files)
    assert (3, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("::warning title=blocks-48-to-80%3A inconclusive::")
    assert "# before\n" + (out / "report.md").read_text() == summary_file.read_text()
    verdict, *rest = output_file.read_text().splitlines()[1:]
    assert ("verdict=inconclusive", f"report={out / 'report.json'}") == (verdict, rest[-1])
    assert b"<testsuites" in (out / "junit.xml").read_bytes()


def test_outside_of_a_step_it_is_asked_for_one(tmp_path: Path) -> None:
    """Before anything is judged, and nothing is written."""
    done = gate_run("--github", "--out", str(tmp_path / "out"))
    assert 2 == done.returncode
    assert "$GITHUB_STEP_SUMMARY: must be set" in done.stderr
    assert [] == list(tmp_path.iterdir())
