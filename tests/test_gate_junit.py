"""A gate's report as JUnit XML: a suite per slice, a case per check, nothing undecided is green."""

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.gate.comparability import Comparability, Difference
from analysis.gate.junit import ALL, COMPARABLE, report_junit
from analysis.gate.verdict import FAIL, INCONCLUSIVE, PASS, GateReport, PredicateResult, RequestRef

COMPARED = Comparability("key", (), (), ())


def result(name: str, verdict: str, **more: Any) -> PredicateResult:
    """A check's outcome."""
    return PredicateResult(id=name, kind="regression", verdict=verdict, why="did so", **more)


def report(*results: PredicateResult, compared: Comparability = COMPARED) -> GateReport:
    """A gate's answer with these checks."""
    return GateReport(
        gate_name="seqs-64",
        gate_sha256="0" * 64,
        design={},
        comparability=compared,
        runs=(),
        slices=(),
        predicates=results,
        ledgers=(),
        limitations=(),
    )


def parsed(found: GateReport) -> ET.Element:
    """Its document, read again."""
    return ET.fromstring(report_junit(found))  # noqa: S314 - our own


def test_suites_are_slices_and_cases_are_checks() -> None:
    """With the counts that viewers show."""
    found = parsed(
        report(
            result("queue", FAIL, slice="interactive", statistic="p95", estimate=0.2),
            result("repeat", PASS),
            result("goodput", INCONCLUSIVE, reasons=("too_few_pairs",)),
        )
    )
    assert {"name": "seqs-64", "tests": "4", "failures": "1", "errors": "1"} == found.attrib
    suites = {suite.get("name"): suite for suite in found}
    assert [ALL, "interactive"] == list(suites)
    names = [str(case.get("name")).partition(" ")[0] for case in suites[ALL]]
    assert [COMPARABLE, "repeat", "goodput"] == names
    assert {"failures": "1", "errors": "0"}.items() <= suites["interactive"].attrib.items()
    (error,) = suites[ALL].iter("error")
    assert ("inconclusive", "goodput did so") == (error.get("type"), error.get("message"))
    assert str(error.text).startswith("too_few_pairs\n")


@pytest.mark.parametrize("verdict", [FAIL, INCONCLUSIVE])
def test_what_did_not_pass_is_neither_skipped_nor_green(verdict: str) -> None:
    """Viewers colour what is skipped as if nothing were wrong."""
    found = parsed(report(result("queue", verdict)))
    assert [] == list(found.iter("skipped"))
    assert 1 == len([*found.iter("failure"), *found.iter("error")])


def test_a_refusal_is_an_error_that_names_every_field() -> None:
    """No check was judged, and the one case says so."""
    fields = ("cache.block_size", "engine.version")
    differing = tuple(Difference(field, "differs") for field in fields)
    compared = replace(COMPARED, differing=differing)
    found = parsed(report(compared=compared))
    (error,) = found.iter("error")
    assert "refused" == error.get("type")
    assert all(field in str(error.text) for field in fields)
    assert "1" == found.get("errors")


def test_requests_are_named_and_counted() -> None:
    """As many as the report has."""
    ids = tuple(RequestRef("run", f"r{k}") for k in range(3))
    found = parsed(report(result("repeat", FAIL, ids=ids, ids_total=7)))
    (failure,) = found.iter("failure")
    assert "requests (3 of 7): run r0, run r1, run r2" in str(failure.text)


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_hostile_names_are_text_in_a_document_that_parses(name: str, part: str, why: str) -> None:
    """Markup, control characters and half characters make no element and no other line."""
    one = replace(result(name or "x", FAIL, slice=part or None), why=why)
    found = parsed(replace(report(one), gate_name=name or "x"))
    tags = {element.tag for element in found.iter()}
    assert {"testsuites", "testsuite", "testcase", "failure"} == tags
    (failure,) = found.iter("failure")
    assert "\n" not in str(failure.get("message"))


def test_equal_reports_are_equal_bytes() -> None:
    """There is no clock in them."""
    one = report(result("queue", FAIL, slice="interactive"))
    assert report_junit(one) == report_junit(one)
