"""`preempt gate`: judge a change by runs of both sides, or explain what a gate would judge."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preempt.commands import options
from preempt.commands.gate_noise import noise_command
from preempt.commands.gate_store import evidence
from preempt.commands.gate_watch import watch_command
from preempt.commands.options import say
from preempt.commands.progress import progress_shown

if TYPE_CHECKING:
    from analysis.gate.contract import Gate
    from analysis.gate.verdict import GateReport
    from replay.ledger import Ledger

FILES = ("report.json", "report.md", "report.html", "junit.xml")


@click.group("gate")
def gate_group() -> None:
    """Decide whether a change may roll out.

    A gate file says what the rollout changes and what has to hold; runs of both sides are the
    evidence. No data is never a pass.
    """


gate_group.add_command(noise_command)
gate_group.add_command(watch_command)


@gate_group.command("run", short_help="Judge a change and end with the verdict.")
@click.argument("gate_path", metavar="GATE.toml", type=options.PATH)
@click.option("--baseline", metavar="RUN", multiple=True, required=True, help="Run of today.")
@click.option("--candidate", metavar="RUN", multiple=True, required=True, help="Run of the change.")
@click.option("--ledger", metavar="DIR", type=options.PATH, multiple=True, help="Modelled ledger.")
@click.option(
    "--boundary-baseline",
    metavar="RUN",
    multiple=True,
    help="Run of today at another arrival rate, where boundary.measured.",
)
@click.option(
    "--boundary-candidate", metavar="RUN", multiple=True, help="Run of the change at that rate."
)
@click.option("--noise", metavar="FILE", type=options.PATH, help="Noise profile for few pairs.")
@click.option("--db", metavar="FILE", type=options.PATH, help="Store to read; RUN is a run_id.")
@click.option(
    "--out", metavar="DIR", type=options.PATH, help="Write report.json, .md, .html, junit.xml."
)
@click.option(
    "--exit-map",
    metavar="VERDICT=CODE",
    multiple=True,
    help="inconclusive=0 or inconclusive=1, for callers that know no third answer.",
)
@click.option(
    "--github",
    is_flag=True,
    help="In a step of GitHub Actions: add to the job's summary, set outputs, annotate.",
)
@click.option(
    "--no-selftest", is_flag=True, help="Do not try first whether the gate can fail on these runs."
)
@options.force
@options.quiet
@options.as_json
@click.pass_context
def run_command(
    context: click.Context,
    gate_path: Path,
    baseline: tuple[str, ...],
    candidate: tuple[str, ...],
    ledger: tuple[Path, ...],
    boundary_baseline: tuple[str, ...],
    boundary_candidate: tuple[str, ...],
    noise: Path | None,
    db: Path | None,
    out: Path | None,
    exit_map: tuple[str, ...],
    github: bool,
    no_selftest: bool,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Judge the change that GATE.toml names and end with its verdict.

    RUN is a run directory, or with --db the run_id of a loaded run. Options repeat: the first
    baseline and the first candidate are a pair, and so on. Both sides must be equal in everything
    but the declared change, or the gate refuses. --ledger adds modelled evidence, which is shown
    as such and never decides what was measured. Where the gate has a [boundary], the ledgers of
    both sides are replayed at the rates it names. With fewer pairs than statistics need, --noise
    FILE, a profile of equal runs, lets them fail and never pass.

    First the gate has to show that it can fail: known regressions go into copies of the baseline
    runs, as preempt gate selftest does. A check that misses its own makes the gate inconclusive.

    --github writes the report to $GITHUB_STEP_SUMMARY (1 MiB at most), verdict, reasons and report
    to $GITHUB_OUTPUT, and an annotation for each check that failed.

    \b
    Exit codes:  0 pass, 1 fail, 2 bad input or usage, 3 inconclusive, 4 refused.
    \b
    Example:
        preempt gate run gate.toml --baseline run-48 --candidate run-80 --out verdict/
    """
    from analysis.gate.described import described
    from analysis.gate.gate_file import read_gate
    from analysis.gate.liveness import with_selftest
    from analysis.gate.noise_profile import read_profile
    from analysis.gate.run import evaluate
    from analysis.gate.verdict import report_json
    from preempt.boundary import replayer
    from replay.ledger import read_ledger

    mapping, places = _exit_map(exit_map), _github_files() if github else None
    if github and as_json:
        raise click.UsageError("--github or --json, not both: both write to standard output.")
    gate = read_gate(gate_path)
    ledgers = [read_ledger(path) for path in ledger]
    profile = None if noise is None else read_profile(noise)
    given = (*baseline, *boundary_baseline), (*candidate, *boundary_candidate)
    stored = evidence(db, *given, joined=bool(ledgers))
    with stored as (store, (base, cand)), progress_shown(quiet=quiet) as progress:
        judged, others = zip(_split(base, baseline), _split(cand, candidate), strict=True)
        replay = replayer(progress.phase)
        report = evaluate(store, gate, *judged, ledgers, replay, others, profile)
        progress.close()
        report = with_selftest(store, gate, report, skip=no_selftest)
        shown = described(store, gate, report)
        report = replace(report, exit_map=mapping, descriptive=shown)
        record = report_json(report)
        page = _page(store, gate, report, record, ledgers if db is None else ()) if out else ""
    if out is not None:
        _write(report, record, page, out, force=force)
    if places is not None:
        _tell_github(report, record, out, *places)
    if as_json:
        options.print_json(record)
    elif not quiet:
        _print(report)
        if out is not None:
            say(f"report in {out}", quiet=quiet)
    context.exit(report.exit_code)


@gate_group.command("explain", short_help="Say in plain words what a gate judges.")
@click.argument("gate_path", metavar="GATE.toml", type=options.PATH)
def explain_command(gate_path: Path) -> None:
    """Say in plain words what GATE.toml judges, how many runs it takes and what they could decide.

    \b
    Example:
        preempt gate explain gate.toml
    """
    from rich.text import Text

    from analysis.gate.explain import explain
    from analysis.gate.gate_file import read_gate

    console = options.console()
    for line in explain(read_gate(gate_path)):
        console.print(Text(line))


@gate_group.command("selftest", short_help="Show that the gate can fail on your own runs.")
@click.argument("gate_path", metavar="GATE.toml", type=options.PATH)
@click.option("--baseline", metavar="RUN", multiple=True, required=True, help="Run of today.")
@options.quiet
@options.as_json
@click.pass_context
def selftest_command(
    context: click.Context, gate_path: Path, baseline: tuple[str, ...], quiet: bool, as_json: bool
) -> None:
    """Put known regressions into copies of your own runs; each check has to fail its own.

    The copies are the candidates. As they are, no check may fail; slower, with failed requests, a
    request preempted too often or a token lost, each just beyond GATE.toml's limits, the check that
    is meant must. A check that cannot decide on this data (too few pairs, too few requests) says
    so: give as many baseline runs as the gate plans pairs. One that the runs of today fail would
    pass no candidate that is like them.

    \b
    Exit codes:  0 all caught, 1 something was missed or failed for nothing, 2 bad input or usage,
                 3 a check could not decide, or fails today.
    \b
    Example:
        preempt gate selftest gate.toml --baseline run-1 --baseline run-2
    """
    from dataclasses import asdict

    from analysis.gate.gate_file import read_gate
    from analysis.gate.selftest import FAILS_TODAY, FALSE_ALARM, MISSED, UNDECIDED, self_test

    gate = read_gate(gate_path)
    with evidence(None, baseline, ()) as (store, (ids, _)):
        found = self_test(store, gate, ids)
    outcomes = {finding.outcome for finding in found}
    code = 1 if outcomes & {MISSED, FALSE_ALARM} else 0
    code = code or (3 if outcomes & {UNDECIDED, FAILS_TODAY} else 0)
    if as_json:
        options.print_json({"exit_code": code, "findings": [asdict(one) for one in found]})
    for one in found:
        what = one.check if one.statistic is None else f"{one.check} ({one.statistic})"
        more = f": {', '.join(one.reasons)}" if one.outcome == UNDECIDED else ""
        say(f"{one.outcome:<11} {what}: {one.injected}{more}", quiet=quiet or as_json)
    verdict = {
        0: "every check can fail on this data, and none fails for nothing",
        1: "the gate cannot be trusted on this data",
        3: "some checks cannot decide on this data, or fail the runs of today",
    }
    say(verdict[code], quiet=quiet or as_json)
    context.exit(code)


@gate_group.command("serve", short_help="Answer rollout controllers over HTTP.")
@click.argument("report", metavar="REPORT.json", type=options.PATH)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8777,
    show_default=True,
    help="0: any free one.",
)
@click.option(
    "--token-file", type=options.PATH, help="What whoever asks has to know; read each time."
)
@options.quiet
def serve_command(report: Path, host: str, port: int, token_file: Path | None, quiet: bool) -> None:
    """Answer Argo Rollouts and Flagger from the report that preempt gate run wrote.

    The file is read for each question. CONFIGURATION is the candidate's configuration_sha256, as
    its runs in the report have it: whoever asks for another candidate is told refused.

    \b
    GET  /argo/CONFIGURATION                       {"verdict": …}, always with status 200
    POST /flagger/confirm-promotion/CONFIGURATION  200 on pass, 409 while not, 412 refused
    POST /flagger/rollback/CONFIGURATION           200 on fail, 409 while not, 412 refused
    GET  /livez                                    200
    \b
    With --token-file, which any other --host than loopback needs, a question without
    "Authorization: Bearer TOKEN" (or TOKEN as a password) is answered 401; /livez is not asked.
    \b
    Example:
        preempt gate serve verdict/report.json
        preempt gate serve verdict/report.json --host 0.0.0.0 --token-file token
    """
    import asyncio

    from preempt.gate_server import serve

    def started(found: int) -> None:
        say(f"serving {report} at http://{host}:{found}", quiet=quiet)

    asyncio.run(serve(report, host, port, token_file, started))


def _split(run_ids: Sequence[str], pairs: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Runs of the pairs, and those at other rates, which were given after them."""
    return run_ids[: len(pairs)], run_ids[len(pairs) :]


def _exit_map(pairs: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Only inconclusive may be mapped: a caller without a third answer has to choose one."""
    from replay.errors import InputError, describe

    mapped: dict[str, int] = {}
    for pair in pairs:
        if pair not in ("inconclusive=0", "inconclusive=1"):
            rule = "must be inconclusive=0 or inconclusive=1"
            raise InputError("--exit-map", "", rule, describe(pair))
        name, code = pair.split("=")
        if mapped.setdefault(name, int(code)) != int(code):
            raise InputError("--exit-map", "", "must not map one verdict twice")
    return tuple(mapped.items())


def _page(
    store: Any,
    gate: "Gate",
    report: "GateReport",
    record: dict[str, Any],
    ledgers: Sequence["Ledger"],
) -> str:
    """The HTML report; ledgers go into a store of this command's own, so that figures have them."""
    from analysis.page.build import report_page
    from analysis.store import load_ledger
    from replay.errors import ReplayError

    for ledger in ledgers:
        # What the oracle refuses is a finding of the report, and no figure.
        with suppress(ReplayError):
            load_ledger(store, ledger)
    return report_page(store, gate, report, record["report_sha256"])


def _write(
    report: "GateReport", record: dict[str, Any], page: str, out: Path, *, force: bool
) -> None:
    from analysis.gate.junit import report_junit
    from analysis.gate.markdown_report import report_markdown
    from replay.canonical import canonical_json
    from replay.output import new_directory

    with new_directory(out, force=force, owned=FILES) as directory:
        (directory / "report.json").write_bytes(canonical_json(record) + b"\n")
        text = report_markdown(report, record["report_sha256"])
        (directory / "report.md").write_text(text, encoding="utf-8")
        (directory / "report.html").write_text(page, encoding="utf-8")
        (directory / "junit.xml").write_bytes(report_junit(report))


def _github_files() -> tuple[Path, Path]:
    """Where a step's summary and outputs go, by the runner's own variables."""
    import os

    from replay.errors import InputError

    found = []
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        place = os.environ.get(name)
        if not place:
            raise InputError(f"${name}", "", "must be set, as in a step of GitHub Actions")
        found.append(Path(place))
    return found[0], found[1]


def _tell_github(
    report: "GateReport", record: dict[str, Any], out: Path | None, summary: Path, output: Path
) -> None:
    from analysis.gate import github
    from analysis.gate.markdown_report import report_markdown

    there = summary.stat().st_size if summary.exists() else 0
    text = report_markdown(report, record["report_sha256"])
    with summary.open("a", encoding="utf-8") as file:
        file.write(github.summary(text, github.MOST_SUMMARY_BYTES - there))
    with output.open("a", encoding="utf-8") as file:
        file.write(github.outputs(report, None if out is None else out / "report.json"))
    for line in github.annotations(report):
        click.echo(line)


def _print(report: "GateReport") -> None:
    from analysis.gate.terminal import print_report

    print_report(report, options.console())
