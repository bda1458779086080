"""Intervals on pair differences: what the textbook and scipy say, and how they are decided."""

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.gate.contract import Design
from analysis.gate.predicates.effects import Question, adjusted, decide
from analysis.gate.statistics import (
    MOST_PAIRS,
    Interval,
    effect,
    half_width,
    holm,
    least_for_ranks,
    p_above,
    pairs_to_decide,
    rounded,
    spread,
)
from analysis.gate.validity import Objection
from analysis.gate.verdict import PredicateResult
from benchmarks.gates import misses, simulate, table

TAIL = 0.05
SAMPLES = [
    np.random.default_rng(seed).normal(0.1, 1, pairs).tolist()
    for seed, pairs in enumerate((5, 6, 7, 8, 10, 12, 15, 20, 25, 30))
]
finite = st.floats(-1e6, 1e6, allow_nan=False).map(lambda v: round(v, 6))


@pytest.mark.parametrize("values", SAMPLES, ids=len)
@pytest.mark.parametrize("tail", [0.1, 0.05, 0.025])
def test_students_interval_is_scipys(values: list[float], tail: float):
    """Of paired samples, at the same confidence."""
    expected = stats.ttest_1samp(values, 0).confidence_interval(1 - 2 * tail)
    found = effect(values, tail).student
    assert (pytest.approx(expected.low), pytest.approx(expected.high)) == (found.low, found.high)


@pytest.mark.parametrize("values", SAMPLES, ids=len)
def test_the_rank_interval_is_what_scipys_exact_test_does_not_reject(values: list[float]):
    """Just inside a bound the test does not reject, just outside it does."""
    found = effect(values, TAIL).ranks
    shifted = np.asarray(values)

    def rejects(shift: float, alternative: str) -> bool:
        test = stats.wilcoxon(shifted - shift, alternative=alternative, method="exact")
        return bool(test.pvalue <= TAIL)

    for bound, sign, alternative in ((found.low, 1, "greater"), (found.high, -1, "less")):
        assert not rejects(bound + sign * 1e-9, alternative)
        assert rejects(bound - sign * 1e-9, alternative)


@pytest.mark.parametrize("values", SAMPLES, ids=len)
@pytest.mark.parametrize("limit", [-0.4, 0.0, 0.3])
def test_the_p_value_is_the_greater_of_scipys_two(values: list[float], limit: float):
    """Student's one-sided and the exact signed rank's."""
    shifted = np.asarray(values) - limit
    student = stats.ttest_1samp(shifted, 0, alternative="greater").pvalue
    ranks = stats.wilcoxon(shifted, alternative="greater", method="exact").pvalue
    assert pytest.approx(max(student, ranks)) == p_above(values, limit)


@given(st.lists(finite, min_size=5, max_size=8), st.sampled_from([0.05, 0.1]))
def test_the_rank_interval_covers_by_counting_all_signs(values: list[float], tail: float):
    """By brute force over every pattern of signs, ties and equal values included."""
    found = effect(values, tail).ranks
    pairs = len(values)
    sums = sorted(
        sum(rank for rank, sign in zip(range(1, pairs + 1), signs, strict=True) if sign)
        for signs in product((0, 1), repeat=pairs)
    )
    rejected = sum(
        Fraction(sum(s <= k for s in sums), 2**pairs) <= Fraction(str(tail))
        for k in range(pairs * (pairs + 1) // 2)
    )
    walsh = sorted((a + b) / 2 for k, a in enumerate(sorted(values)) for b in sorted(values)[k:])
    assert Interval(walsh[rejected - 1], walsh[-rejected]) == found


@given(st.lists(finite, min_size=5, max_size=30))
def test_the_union_holds_both_intervals_and_the_mean(values: list[float]):
    """Whatever the values are, ties and no spread at all included."""
    found = effect(values, TAIL)
    assert found.low <= found.student.low <= found.student.high <= found.high
    assert found.low <= found.ranks.low <= found.ranks.high <= found.high
    assert found.low <= found.mean <= found.high


@given(st.lists(finite, min_size=5, max_size=12), st.floats(-100, 100), st.integers(-20, 20))
def test_a_test_rejects_where_the_interval_ends(values: list[float], by: float, tenths: int):
    """Its p is at most the error of a bound exactly where both intervals lie above the limit."""
    limit = sum(values) / len(values) + by + tenths / 10
    found = effect(values, TAIL)
    if all(abs(b - limit) > 1e-6 for b in (found.student.low, found.ranks.low)):
        assert (found.low > limit) == (p_above(values, limit) <= TAIL)


@pytest.mark.parametrize("pairs", range(5, 31))
def test_equal_differences_have_an_interval_without_width(pairs: int):
    """No spread is no error, and p is what ranks can give at best."""
    found = effect([0.25] * pairs, TAIL)
    assert (0.25, 0.25, 0.25) == (found.low, found.mean, found.high)
    assert pytest.approx(2.0**-pairs) == p_above([0.25] * pairs, 0.2)
    assert 1.0 == p_above([0.25] * pairs, 0.25)


@pytest.mark.parametrize("pairs", [2, 3, 4])
def test_fewer_than_five_pairs_bound_nothing(pairs: int):
    """The exact test cannot reach 5 % with them; 5 is the least at 90 % confidence."""
    found = effect([float(k) for k in range(pairs)], TAIL)
    assert (-math.inf, math.inf) == (found.low, found.high)
    assert (5, 6, 8) == tuple(map(least_for_ranks, (0.05, 0.025, 0.005)))


@pytest.mark.parametrize("values", [[], [1.0], [1.0, math.nan, 2.0], [1.0, math.inf]])
def test_what_is_no_sample_has_no_interval(values: list[float]):
    """Too few, or a number that is none."""
    with pytest.raises(ValueError, match="at least two finite"):
        effect(values, TAIL)


def test_holm_adjusts_in_steps():
    """The smallest by all, the next by one less, never falling, never above 1."""
    assert (0.03, 0.06, 0.06, 0.9) == tuple(round(p, 9) for p in holm([0.0075, 0.02, 0.03, 0.9]))
    assert (0.06, 0.03) == holm([0.06, 0.015])
    assert () == holm([])


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_between_the_plain_p_and_bonferronis(found: list[float]):
    """And keeps their order."""
    for plain, p in zip(found, holm(found), strict=True):
        assert plain <= p <= min(1, plain * len(found))


@pytest.mark.parametrize("pairs", [5, 6, 12, 30])
def test_the_expected_width_is_that_of_normal_samples(pairs: int):
    """Within 15 % of the mean over many samples."""
    rng = np.random.default_rng(pairs)
    found = [
        (e.high - e.low) / 2
        for e in (effect(rng.normal(size=pairs).tolist(), TAIL) for _ in range(400))
    ]
    assert pytest.approx(np.mean(found), rel=0.15) == half_width(pairs, TAIL)


def test_so_many_pairs_decide_and_one_less_does_not():
    """The advice is the least number whose interval ends before the limit."""
    for distance in (0.5, 0.3, 0.1):
        found = pairs_to_decide(distance, 1.0, TAIL, 5)
        assert found is not None
        assert half_width(found, TAIL) < distance <= half_width(found - 1, TAIL)
    assert 5 == pairs_to_decide(2.0, 1.0, TAIL, 5)
    assert 7 == pairs_to_decide(1.0, 0.0, TAIL, 7)
    assert pairs_to_decide(0.05, 1.0, TAIL, MOST_PAIRS) is None
    assert pairs_to_decide(0.01, 1.0, TAIL, 5) is None
    assert pairs_to_decide(0.0, 1.0, TAIL, 5) is None


def test_a_rounded_number_has_nine_digits_and_no_negative_zero():
    """What another mathematics library may differ in is not shown."""
    assert 0.333333333 == rounded(1 / 3)
    assert "0.0" == str(rounded(-0.0))


# --- deciding --------------------------------------------------------------------------------


def asked(values: list[float], limit: float = 0.1, **changes: Any) -> dict[str, Any]:
    """What becomes of values that are relative changes already."""
    return decide(Question("x changed by", values, limit, limit, **changes), Design(), [])


@pytest.mark.parametrize(
    ("values", "verdict", "reasons"),
    [
        ([0.0] * 6, "pass", ()),
        ([0.099] * 6, "pass", ()),
        ([0.1] * 6, "fail", ("limit_exceeded",)),  # the limit itself is not below it
        ([0.3] * 6, "fail", ("limit_exceeded",)),
        ([0.0, 0.3] * 3, "inconclusive", ("interval_spans_limit",)),
        ([0.0] * 11 + [0.7], "inconclusive", ("estimators_disagree",)),
        ([0.2] * 11 + [-0.9], "inconclusive", ("estimators_disagree",)),
    ],
)
def test_the_whole_interval_decides(values: list[float], verdict: str, reasons: tuple[str, ...]):
    """Below the limit, at or above it, or neither; a rare bad pair is seen by one of the two."""
    found = asked(values)
    assert (verdict, reasons) == (found["verdict"], found["reasons"])


@pytest.mark.parametrize(
    ("values", "verdict"),
    [([0.97] * 6, "pass"), ([0.95] * 6, "pass"), ([0.9] * 6, "fail"), ([0.9, 1] * 3, "")],
)
def test_a_least_share_is_kept_at_its_limit(values: list[float], verdict: str):
    """Turned round: the whole interval at or above it passes, below it fails."""
    found = asked(values, 0.95, at_least=True, signed=False)
    assert (verdict or "inconclusive") == found["verdict"]


@given(st.lists(st.floats(-0.5, 0.5), min_size=5, max_size=12), st.floats(0, 0.3))
def test_a_report_can_be_checked_from_its_own_numbers(values: list[float], limit: float):
    """The verdict follows from the bounds and the limit that are shown."""
    found = asked(values, limit)
    expected = (
        "pass"
        if found["high"] < rounded(limit)
        else "fail"
        if found["low"] >= rounded(limit)
        else "inconclusive"
    )
    assert expected == found["verdict"]


@pytest.mark.parametrize("values", [[], [math.nan] * 6, [0.0] * 5 + [math.inf]])
def test_no_number_is_no_data(values: list[float]):
    """Neither nothing nor NaN nor infinity is below a limit."""
    found = asked(values)
    assert ("inconclusive", ("no_data",)) == (found["verdict"], found["reasons"])
    assert "low" not in found


def test_an_objection_keeps_a_clear_effect_open():
    """All of them are listed, the first one speaks."""
    standing = [None, Objection("saturated", "first"), Objection("censored", "second")]
    found = decide(Question("x", [0.0] * 6, 0.1, 0.1), Design(), standing)
    assert ("inconclusive", "first", ("saturated", "censored")) == (
        found["verdict"],
        found["why"],
        found["reasons"],
    )
    assert (0.0, 0.0, None) == (found["low"], found["high"], found["pairs_needed"])
    assert found["p_value"] is None


def test_failing_checks_print_what_several_tests_make_of_their_p():
    """Holm's adjustment over every test of the gate; a check without a test has none."""

    def result(verdict: str, p: float | None) -> PredicateResult:
        return PredicateResult("a", "regression", verdict, "found", p_value=p)

    found = adjusted([result("fail", 0.015), result("pass", 0.9), result("pass", None)])
    assert ["found, Holm-adjusted p 0.03", "found", "found"] == [r.why for r in found]
    assert [0.03, 0.9, None] == [r.p_holm for r in found]


@pytest.mark.parametrize("spread_of_pairs", [0.03, 0.06])
@pytest.mark.parametrize(
    ("effect_of_limit", "wrong", "most"),
    [(0.0, "fail", 0.01), (1.0, "pass", 0.06), (1.5, "pass", 0.01)],
)
def test_verdicts_are_rarely_wrong(
    spread_of_pairs: float, effect_of_limit: float, wrong: str, most: float
):
    """Equal sides hardly fail, a true effect at the limit or beyond hardly passes (seeded)."""
    cell = simulate(200, 1, "normal", spread_of_pairs, effect_of_limit)
    assert most >= cell.share(wrong)
    assert 200 == cell.counts.total()
    assert cell.counts == simulate(200, 1, "normal", spread_of_pairs, effect_of_limit).counts


def test_little_luck_decides_and_much_does_not():
    """Equal sides pass at a spread of 1 %, twice the limit fails, at 30 % hardly anything does."""
    assert 1.0 == simulate(50, 1, "normal", 0.01, 0.0).share("pass")
    assert 1.0 == simulate(50, 1, "normal", 0.01, 2.0).share("fail")
    assert 0.8 < simulate(50, 1, "normal", 0.3, 0.0).share("inconclusive")


def test_the_table_names_the_goals_that_are_missed():
    """An upper bound of so few evaluations shows little, and that is said."""
    cells = [simulate(20, 1, "normal", 0.01, 0.0), simulate(20, 1, "outlier", 0.3, 1.0)]
    assert "| normal | 1 | 1% | 0 x limit | 100.00% | 0.00% | 0.00% | fail <= 13.91% |" in table(
        cells
    )
    assert misses(cells)[0].startswith("missed G1: normal, 1 test(s), spread 1%: equal sides fail")


def test_the_numbers_are_these_on_every_machine():
    """To nine digits, with any release of the mathematics libraries."""
    values = [0.031, -0.012, 0.094, 0.007, 0.052, 0.019]
    question = Question("it changed by", values, 0.05, math.log1p(0.05), math.expm1)
    found = decide(question, Design(), [])
    assert ((0.00110895664, 0.0645565468), 0.0323454334, "inconclusive") == (
        (found["low"], found["high"]),
        found["estimate"],
        found["verdict"],
    )
    assert (0.84375, 17) == (found["p_value"], found["pairs_needed"])


def test_the_spread_of_a_sample_is_scipys():
    """With n - 1."""
    assert pytest.approx(np.std(SAMPLES[3], ddof=1)) == spread(SAMPLES[3])
