"""The replay against vLLM's own scheduler class, in a vLLM environment that this installs.

Deselected by default; `pytest -m vllm -n 0` runs it, shows the coverage, and skips nothing.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import click
import pytest

from conformance import expected
from conformance.cases import features_of, generate, overtaken
from conformance.drive import Engine
from conformance.exercised import Coverage
from conformance.install import Machine, environment
from conformance.suite import Answer, Report, run_suite
from conformance.traces import trace_cases
from replay.rules import CHECKED

CASES, SEED, LEAST = 400, 1, 1_000
RELEASES = [name.removeprefix("vllm-") for name in CHECKED]
pytestmark = [pytest.mark.vllm, pytest.mark.parametrize("release", RELEASES)]


@pytest.fixture(scope="session")
def engines() -> Iterator[Callable[[str], Answer]]:
    """One vLLM process per release, started when it is first asked for."""
    with ExitStack() as stack:

        @cache
        def answer(release: str) -> Answer:
            found = environment(release, machine=Machine(say=click.echo))
            return stack.enter_context(Engine(found.python, found.cache)).answer

        yield answer


def report_for(release: str) -> Report:
    """An empty report of a release under its own rule."""
    return Report(release, f"vllm-{release}", Coverage(features_of(release)))


def test_every_generated_case_is_replayed_as_vllm_schedules_it(
    release: str, engines: Callable[[str], Answer], capsys: pytest.CaptureFixture[str]
) -> None:
    """No difference anywhere, and at least 1,000 preemptions exercised each option and pair."""
    answer = engines(release)
    report = run_suite(answer, generate(release, CASES, SEED), report_for(release))
    with capsys.disabled():
        click.echo("\n" + report.summary(answer))
    assert [] == report.differences
    assert [] == report.coverage.short_of(LEAST)


def test_requests_that_come_late_are_ranked_by_the_engine_s_arrival_time(
    release: str, engines: Callable[[str], Answer]
) -> None:
    """No difference under priority, where arrival times are in another order than arrivals."""
    answer = engines(release)
    report = run_suite(answer, overtaken(release, CASES, SEED), report_for(release))
    if report.differences:
        pytest.fail(report.summary(answer))
    assert len(report.pairs) > CASES // 4


def test_public_traces_are_replayed_as_vllm_schedules_them(
    release: str, engines: Callable[[str], Answer]
) -> None:
    """No difference on the heads in the checkout and the whole files in PREEMPT_TRACES."""
    folder = os.environ.get("PREEMPT_TRACES")
    cases = trace_cases(release, Path(folder) if folder else None)
    report = run_suite(engines(release), cases, report_for(release))
    if report.differences:
        pytest.fail(report.summary(engines(release)))
    assert sum(len(result["preemptions"]) for _, result in report.pairs) > 0


def test_the_kept_results_are_what_vllm_answers(
    release: str, engines: Callable[[str], Answer]
) -> None:
    """The fixtures are the real class's own results, so nobody has edited them."""
    kept, answer = expected.read_expected(release), engines(release)
    assert kept == [(case, expected.lasting(answer(case))) for case, _ in kept]
