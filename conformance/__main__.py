"""`python -m conformance`: run the suite against a release of vLLM and say what changed."""

import itertools
import sys
import time
from pathlib import Path

import click

from conformance import expected
from conformance.cases import Case, features_of, generate, overtaken
from conformance.compare import Result
from conformance.drive import Engine
from conformance.exercised import Coverage
from conformance.install import Machine, environment
from conformance.suite import Report, run_suite
from conformance.traces import trace_cases
from replay.errors import InputError, ReplayError
from replay.rules import CHECKED, assumed_rule, release_of

DIFFERENT, INTERRUPTED = 1, 130
SAY_SECONDS = 5.0


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--release", required=True, help="Release of vLLM to run against, as 0.32.0.")
@click.option(
    "--rule", help="Checked rule to hold against it [default: its own, or the one nearest to it]."
)
@click.option(
    "--python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Interpreter that already has this release; otherwise one is installed (6 GB) and kept.",
)
@click.option(
    "--cases",
    type=click.IntRange(min=0),
    default=400,
    show_default=True,
    help="Generated cases.",
)
@click.option("--seed", default=1, show_default=True, help="Other cases, the same for each seed.")
@click.option(
    "--traces",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="PREEMPT_TRACES",
    help="Folder with whole public traces, replayed too (minutes). Also PREEMPT_TRACES.",
)
@click.option("--write-fixtures", is_flag=True, help="Keep a small set of results in fixtures/.")
def main(
    release: str,
    rule: str | None,
    python: Path | None,
    cases: int,
    seed: int,
    traces: Path | None,
    *,
    write_fixtures: bool,
) -> None:
    """Hold this project's vllm-v1 replay against vLLM's own scheduler class, event by event.

    Cases generated over every option, and slices of public traces, go through both. Prints how
    many preemptions exercised each option and pair, then "no difference", or which options the
    diverging cases share and the first diverging tick of the smallest with both sides' state.

    \b
    Exit codes:  0 no difference, 1 something differs, 2 bad usage or no environment,
                 70 vLLM died, 130 interrupted.
    """
    try:
        rule = rule_for(release, rule)
        found = environment(release, python=python, machine=Machine(say=say))
        with Engine(found.python, found.cache) as engine:
            report = Report(release, rule, Coverage(features_of(release, rule)))
            todo = itertools.chain(
                generate(release, cases, seed, rule),
                overtaken(release, cases, seed, rule),
                trace_cases(release, traces, rule),
            )
            run_suite(engine.answer, todo, report, Shown())
            click.echo(report.summary(engine.answer))
            if write_fixtures:
                say(keep(release, engine))
    except ReplayError as error:
        say(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(DIFFERENT if report.differences else 0)


def rule_for(release: str, rule: str | None) -> str:
    """The rule that was asked for, or the checked one nearest to the release."""
    name = f"vllm-{release}"
    if release_of(name) is None:
        raise InputError("options", "--release", "must be of the form X.Y.Z")
    if rule is not None and rule not in CHECKED:
        raise InputError("options", "--rule", f"must be one of {', '.join(CHECKED)}")
    return rule or assumed_rule(name, "options", assume=True) or name


def keep(release: str, engine: Engine) -> str:
    """Write the fixed set of expected results and say so."""
    features = features_of(release)
    how = (release, expected.CASES, expected.SEED)
    chosen = expected.choose(((c, engine.answer(c)) for c in generate(*how)), features)
    chosen += expected.choose_overtaken((c, engine.answer(c)) for c in overtaken(*how))
    size = expected.write_expected(release, chosen)
    return f"{expected.path_of(release)}: {len(chosen)} cases, {size:,} bytes"


class Shown:
    """Says on standard error, now and then, how far a suite is."""

    def __init__(self) -> None:
        self._started = self._said = time.monotonic()
        self._preemptions = 0

    def __call__(self, done: int, case: Case, result: Result) -> None:
        """Hear of one more case."""
        self._preemptions += len(result["preemptions"])
        now = time.monotonic()
        if now - self._said >= SAY_SECONDS:
            self._said = now
            far = f"{done:,} cases, {self._preemptions:,} preemptions"
            say(f"{now - self._started:4.0f} s: {far}, last {case['name']}")


def say(text: str) -> None:
    """One line on standard error."""
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
