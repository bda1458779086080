"""P8: replays at other rates keep a verdict back where it stands on an edge, and decide nothing."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paired import DESIGN, run_of, slower
from rich.console import Console
from stored import RUNS, engine_config, recorded, sealed, stepped_ledger
from test_gate import GateReport, answer, only
from test_gate_pairs import GOODPUT
from test_gate_pairs import TTFT as ANY_TTFT

from analysis.gate.boundary.modelled import LimitTest, estimate
from analysis.gate.boundary.models import Model
from analysis.gate.boundary.scan import RESOLUTION, scan
from analysis.gate.contract import Boundary, Design, Gate, Predicate
from analysis.gate.explain import explain
from analysis.gate.gate_file import parse_gate
from analysis.gate.markdown_report import report_markdown
from analysis.gate.terminal import print_report
from analysis.gate.verdict import report_json
from analysis.page import panels
from analysis.page.figures.boundary import shown
from collectors.drive.schedule import scheduled
from collectors.run import Run, run_workload
from preempt.boundary import replayer
from preempt.main import main
from replay.canonical import canonical_json
from replay.config import Config, parse_config
from replay.errors import InputError, Unfinished
from replay.ledger import Ledger, write_ledger
from replay.run import request_outcomes
from replay.workload import Request, Workload

TTFT = ANY_TTFT | {"floor_us": 100_000}
QUIET, EDGE = [0.95, 1.05], [0.9, 1.4]  # 72 blocks for 79 tell between 1 and 1.4 times the load
EQUAL = [1.0] * 5
TIMING = {
    "step_ns": 8_000_000,
    "prefill_token_ps": 5_000_000,
    "decode_request_ps": 100_000_000,
    "kv_token_ps": 10_000,
}


def gate_of(*predicates: dict[str, Any], **boundary: Any) -> Gate:
    """A gate of the block count with a boundary; steps that change nothing unless it says so."""
    raw = {
        "schema": "preemption-gate/1",
        "name": "g",
        "change": {"fields": ["cache.num_gpu_blocks"]},
        "design": DESIGN,
        "slices": {"all": {"where": {"prompt_tokens": {"min": 1}}, "min_eligible": 100}},
        "predicate": list(predicates or (TTFT,)),
        "boundary": {"rates": ["arrival"], "steps": QUIET} | boundary,
    }
    return parse_gate(raw, "g.toml")


@cache
def load() -> Workload:
    """What the runs were offered, at half the rate: nobody waits for blocks at 79 of them."""
    return scheduled(run_workload(recorded("cand-80")), Fraction(1, 2), None)


@cache
def config(blocks: int, recovery: str = "recompute", *, timed: bool = True) -> Config:
    """The runs' engine with so many usable blocks."""
    tables = engine_config(capacity_blocks=blocks).tables()
    del tables["timing"]
    if timed:
        del tables["engine"]["tick_us"]
        tables["timing"] = TIMING
    tables["policy"]["recovery"] = recovery
    return parse_config(tables, "config")


@cache
def ledger(blocks: int, recovery: str = "recompute", *, timed: bool = True) -> Ledger:
    """A replay of the load by it."""
    return sealed(load(), config(blocks, recovery, timed=timed))


def both(**how: Any) -> list[Ledger]:
    """A ledger of either side."""
    return [ledger(79, **how), ledger(72, **how)]


def driven(
    run_id: str, side: str, pair: int, factor: float = 1.0, speed: float = 1.0, **manifest: Any
) -> Run:
    """A run of the load, whose times are so many times as long, and that was sent so fast."""
    run = run_of(run_id, side, pair, slower(factor))
    blocks = 80 if side == "baseline" else 73
    facts = {
        "cache": {**run.manifest["cache"], "num_gpu_blocks": blocks, "capacity_blocks": blocks - 1},
        "driver": {"behind": False, "late_requests": 0, "speed": speed},
        "workload": {
            "requests": len(load()),
            "workload_sha256": load().sha256 if speed == 1 else f"{int(speed * 100):064}",
        },
    }
    return replace(run, manifest={**run.manifest, **facts, **manifest})


def sides(factors: Sequence[float] = EQUAL) -> tuple[list[Run], list[Run]]:
    """One pair a factor, by which the candidate is slower."""
    return (
        [driven(f"b{k}", "baseline", k) for k in range(len(factors))],
        [driven(f"c{k}", "candidate", k, factor) for k, factor in enumerate(factors)],
    )


def judged(gate: Gate, ledgers: Sequence[Ledger] | None = None, **more: Any) -> GateReport:
    """The report over five equal pairs and a ledger of either side."""
    given = both() if ledgers is None else ledgers
    return answer(gate, *sides(more.pop("factors", EQUAL)), given, replayer(), **more)


def boundary(report: GateReport, evidence: str = "modelled") -> Any:
    """The row of the boundary."""
    (row,) = (p for p in report.predicates if p.id == "boundary" and p.evidence == evidence)
    return row


# --- modelled --------------------------------------------------------------------------------


def test_far_from_an_edge_the_gate_passes():
    """No step moves TTFT across its limit: pass, and the cells say how far it was."""
    report = judged(gate_of())
    row = boundary(report)
    assert ("pass", ()) == (row.verdict, row.reasons)
    assert "found 1 limit on the same side when arrival is x 0.95 or 1.05, modelled" == row.why
    assert "pass" == report.verdict
    record = report_json(report)["boundary"]
    assert [0.95, 1.0, 1.05] == [c["multiplier"] for c in record["cells"]]
    assert {"within"} == {c["side"] for c in record["cells"]}
    assert ([], "us", [0, 1, 2, 3, 4]) == (record["bracket"], record["unit"], record["pairs"])
    assert 6 == record["replays"]  # two sides at three rates


def test_a_step_that_moves_an_estimate_across_is_to_be_measured():
    """Equal runs pass each check; at 1.4 times the load the model fails one: inconclusive."""
    report = judged(gate_of(steps=EDGE))
    row = boundary(report)
    assert ("inconclusive", ("measure_boundary",)) == (row.verdict, row.reasons)
    assert "pass" == only(report, "ttft").verdict
    assert ("inconclusive", ("measure_boundary",)) == (report.verdict, report.reasons)
    assert "preempt collect drive --speed" in (report.recommendation or "")
    (bracket,) = report_json(report)["boundary"]["bracket"]
    assert ("within", "beyond") == (bracket["low_side"], bracket["high_side"])
    assert 1 <= bracket["low"] < bracket["high"] <= 1.4
    assert bracket["high"] - bracket["low"] <= RESOLUTION
    assert [1.0, 1.4] == bracket["measure"]
    assert "measure at x 1 and x 1.4" in row.why


def test_a_bracket_s_ends_lie_on_both_sides_when_they_are_replayed_alone():
    """What bisection found is what a gate with the ends as its steps finds."""
    (found,) = report_json(judged(gate_of(steps=EDGE)))["boundary"]["bracket"]
    again = judged(gate_of(steps=[found["low"], found["high"]]))
    cells = {c["multiplier"]: c["side"] for c in report_json(again)["boundary"]["cells"]}
    assert ("within", "beyond") == (cells[found["low"]], cells[found["high"]])


def test_what_was_measured_to_fail_stays_a_fail():
    """The boundary keeps a pass back and rescues nothing."""
    report = judged(gate_of(steps=EDGE), factors=[1.5] * 5)
    assert ("fail", 1) == (report.verdict, report.exit_code)
    assert ("limit_exceeded",) == report.reasons
    assert "inconclusive" == boundary(report).verdict


def test_a_model_on_the_other_side_of_a_limit_says_nothing_of_what_is_near():
    """Measured +50 %, modelled nothing: the model is no guide here, and that is the reason."""
    row = boundary(judged(gate_of(), factors=[1.5] * 5))
    assert ("inconclusive", ("model_disagrees",)) == (row.verdict, row.reasons)
    assert "ttft is within its limit modelled (+" in row.why
    assert "beyond it measured (+" in row.why


def test_no_measured_estimate_is_no_side():
    """Where the runs give no number, the model has nothing to agree with."""
    runs = sides()
    blank = [replace(r, requests=r.requests.with_columns(ttft_us=None)) for r in runs[1]]
    row = boundary(answer(gate_of(), runs[0], blank, both(), replayer()))
    assert ("inconclusive", ("model_disagrees",)) == (row.verdict, row.reasons)
    assert "ttft has no measured estimate" in row.why


@pytest.mark.parametrize(
    ("ledgers", "why"),
    [
        (list, "none"),
        (lambda: [ledger(79)], "the candidate has none"),
        (lambda: [ledger(79), ledger(60)], "of a third configuration"),
        (lambda: [ledger(79), sealed(window(), config(72))], "of another workload"),
        (lambda: [sealed(window(), config(b)) for b in (79, 72)], "of no pair's workload"),
        (lambda: [stepped_ledger()], "counted in steps"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_without_a_ledger_of_either_side_nothing_is_known(ledgers: Any, why: str):
    """Nothing was replayed: no data, and never a pass."""
    del why
    report = judged(gate_of(), ledgers())
    row = boundary(report)
    assert ("inconclusive", ("no_data",)) == (row.verdict, row.reasons)
    assert "needs modelled ledgers of both sides" in row.why
    assert row.estimate is None
    found = report_json(report)["boundary"]
    assert ([], None, 0) == (found["cells"], found["bracket"], found["replays"])


@cache
def window() -> Workload:
    """Some requests of a pair, which are another load than all of them."""
    return replace(load(), requests=load().requests[:50])


def test_without_a_replayer_nothing_is_known():
    """Whoever judges without replays learns that, and no pass."""
    row = boundary(answer(gate_of(), *sides(), both()))
    assert ("inconclusive", ("no_data",)) == (row.verdict, row.reasons)


def test_a_gate_without_limits_over_latencies_has_nothing_to_ask():
    """A boundary of deterministic checks alone is inconclusive, not kept by default."""
    repeat = {"id": "repeat", "kind": "repeated_preemption", "max_preemptions": 2}
    row = boundary(judged(gate_of(repeat)))
    assert ("inconclusive", ("no_data",)) == (row.verdict, row.reasons)


def test_ledgers_that_model_the_sides_in_two_ways_are_bad_input():
    """Nobody says which of two models is meant."""
    with pytest.raises(InputError, match=r"must model both sides in one way.*2 ways"):
        judged(gate_of(), [*both(), *both(recovery="adaptive")])


def test_a_rate_that_the_model_does_not_read_is_named():
    """Recompute moves nothing over a link: said, and decided by the rate that is left."""
    gate = gate_of(rates=["arrival", "prefill_tokens_per_tick", "transfer_bytes_per_tick"])
    report = judged(gate)
    row = boundary(report)
    assert "pass" == row.verdict
    for rate in ("prefill_tokens_per_tick", "transfer_bytes_per_tick"):
        assert (
            f"{rate} not applicable (vllm-v1 with recovery recompute does not read it)" in row.why
        )
    assert {"arrival"} == {c["rate"] for c in report_json(report)["boundary"]["cells"]}
    assert "- transfer\\_bytes" not in (text := report_markdown(report, "0" * 64))
    assert "transfer_bytes_per_tick is not applicable" in text


def test_a_gate_of_rates_that_the_model_does_not_read_is_not_decided():
    """No replay would differ, so nothing was tried."""
    report = judged(gate_of(rates=["transfer_bytes_per_tick"]))
    row = boundary(report)
    assert ("inconclusive", ("not_applicable",)) == (row.verdict, row.reasons)
    assert "name a rate that the model reads" in (report.recommendation or "")


def test_declared_rates_are_multiplied_to_whole_numbers():
    """Of 16 tokens a tick 1.05 times are 17; 1.02 times are 16 again, which is no other rate."""
    rates = ["prefill_tokens_per_tick", "transfer_bytes_per_tick"]
    report = judged(gate_of(rates=rates, steps=[1.02, 1.05]), both(recovery="adaptive"))
    cells = report_json(report)["boundary"]["cells"]
    values = {(c["rate"], c["multiplier"]): c["value"] for c in cells}
    assert 17 == values["prefill_tokens_per_tick", 1.05]
    assert 8356 == values["transfer_bytes_per_tick", 1.02]  # 8192 * 1.02 = 8355.84
    row = boundary(report)
    assert ("inconclusive", ("no_data",)) == (row.verdict, row.reasons)
    assert "prefill_tokens_per_tick x 1.02 is 16 again, a whole number" in row.why


def test_ticks_are_counted_in_the_configuration_s_own_length():
    """Without timing a replay has ticks; 100 ms of floor are five of 20 ms."""
    found = report_json(judged(gate_of(), both(timed=False)))["boundary"]
    assert "ticks" == found["unit"]
    base, cand = (ledger(b, timed=False).requests["modelled_ttft_ticks"] for b in (79, 72))
    late = pl.Series([r.arrival_us >= DESIGN["warmup_us"] for r in load().requests])
    cap = DESIGN["follow_up_us"] // 20_000
    p95 = [t.filter(late).clip(upper_bound=cap).quantile(0.95, "linear") or 0 for t in (base, cand)]
    (unchanged,) = (c["estimate"] for c in found["cells"] if c["multiplier"] == 1)
    assert pytest.approx((p95[1] + 5) / (p95[0] + 5) - 1) == unchanged


def test_a_time_that_no_replay_models_leaves_it_open():
    """Waiting after preemptions is in no replay's table."""
    gate = gate_of(TTFT | {"field": "requeue_time_us"})
    row = boundary(judged(gate))
    assert ("inconclusive", ("no_data",)) == (row.verdict, row.reasons)
    assert "no replay models requeue_time_us" in row.why
    assert "No replay models requeue_time_us: the boundary stays inconclusive." in explain(gate)
    assert "not pass: parts of it stay inconclusive" in "\n".join(explain(gate))


def test_goodput_has_an_edge_too():
    """The share of good requests and its drop have sides like every limit."""
    gate = gate_of(GOODPUT | {"slo": {"ttft_us": 1_000_000}}, steps=[0.9, 2.5])
    found = report_json(judged(gate))["boundary"]
    sides_of = {(c["statistic"], c["multiplier"]): c["side"] for c in found["cells"]}
    assert "within" == sides_of["good_fraction", 1.0] == sides_of["good_drop", 1.0]
    assert "beyond" == sides_of["good_fraction", 2.5]
    assert "good_fraction" in {b["statistic"] for b in found["bracket"]}


def test_a_replay_that_cannot_end_is_no_side():
    """What a rate makes impossible is unknown, not kept."""

    def stuck(workload: Workload, config: Config, arrival: Fraction) -> pl.DataFrame:
        if arrival > 1:
            raise Unfinished("boundary: 3 of 240 requests were unfinished")
        return replayer()(workload, config, arrival)

    row = boundary(answer(gate_of(), *sides(), both(), stuck))
    assert ("inconclusive", ("no_data",)) == (row.verdict, row.reasons)
    assert "ttft at arrival x 1.05: no replay: boundary: 3 of 240" in row.why


def test_a_refused_comparison_replays_nothing():
    """Runs that must not be compared have no edge."""
    runs = sides()
    other = [replace(r, manifest={**r.manifest, "model": {"name": "other"}}) for r in runs[1]]
    report = answer(gate_of(), runs[0], other, both(), replayer())
    assert "refused" == report.verdict
    assert [] == report_json(report)["boundary"]["cells"]


def test_the_order_of_ledgers_and_the_day_do_not_show():
    """The same inputs give the same bytes."""
    gate = gate_of(TTFT, GOODPUT, steps=EDGE)
    first, second = judged(gate), judged(gate, list(reversed(both())))
    assert canonical_json(report_json(first)) == canonical_json(report_json(second))


def test_rows_alone_are_those_of_the_ledger():
    """A replay without oracle and receipt gives the table that one with them gives."""
    assert ledger(72).requests.equals(request_outcomes(load(), config(72)))
    lab = parse_config({"engine": {"profile": "lab", "capacity_blocks": 8}}, "lab")
    short = Workload(tuple(Request(name, 0, 24, 16) for name in "abc"))
    assert sealed(short, lab).requests.equals(request_outcomes(short, lab))


# --- bisection -------------------------------------------------------------------------------


def stub(edge: Fraction, slow: int = 500) -> Any:
    """Replays in which the candidate is slower from some load on."""

    def replayed(workload: Workload, config: Config, arrival: Fraction) -> pl.DataFrame:
        late = config.engine.capacity_blocks == 72 and arrival >= edge
        return pl.DataFrame(
            {
                "modelled_ttft_us": [slow if late else 100] * len(workload),
                "output_tokens": [2] * len(workload),
                "status": ["complete"] * len(workload),
            }
        )

    return replayed


ONE = Workload(tuple(Request(f"r{k}", 1000 * k, 4, 2) for k in range(3)))


@given(
    edge=st.fractions(Fraction(1, 4), 4),
    steps=st.lists(
        st.decimals("0.1", "10", places=2).map(float).filter(lambda s: s != 1),
        min_size=1,
        max_size=4,
        unique=True,
    ),
)
def test_a_bracket_holds_the_crossing(edge: Fraction, steps: list[float]):
    """Between the least and the greatest step every crossing is bracketed, and nothing else."""
    test = LimitTest(Predicate("t", "regression", "ttft_us", "p50"), "p50", 0.1, None)
    found = scan(
        [Model(ONE, config(79), config(72), (0,))],
        Boundary(("arrival",), tuple(steps)),
        [test],
        Design(),
        stub(edge),
    )
    around = sorted({Fraction(1), *(Fraction(repr(s)) for s in steps)})
    crosses = around[0] < edge <= around[-1]
    assert crosses == (len(found.brackets) == 1)
    for bracket in found.brackets:
        assert bracket.low < edge <= Fraction(bracket.high) + Fraction(1, 10**12)
        assert bracket.high - bracket.low <= RESOLUTION + 1e-12
        assert ("within", "beyond") == (bracket.low_side, bracket.high_side)
        assert bracket.measure[0] <= bracket.low < bracket.high <= bracket.measure[1]


@pytest.mark.parametrize(
    ("base", "cand", "floor", "expected"),
    [
        (0, 0, 0, (0.0, "within")),
        (0, 5, 0, (None, "beyond")),
        (5, 0, 0, (-1.0, "within")),
        (0, 5, 100, (0.05, "within")),
        (100, 110, 0, (0.1, "beyond")),  # at the limit is beyond it, as measured
    ],
)
def test_waits_of_nothing_have_a_side(base: int, cand: int, floor: int, expected: Any):
    """Nobody waits on the baseline: equal sides are equal, and any wait is infinitely more."""
    test = LimitTest(
        Predicate("t", "regression", "queue_time_us", "mean", floor_us=floor), "mean", 0.1, None
    )
    tables = tuple(
        pl.DataFrame({"modelled_queue_us": [v] * 3, "output_tokens": [2] * 3}) for v in (base, cand)
    )
    found = estimate(test, Design(), [ONE], [tables], 1)  # type: ignore[list-item]
    assert expected == (found.value, found.side)


# --- measured --------------------------------------------------------------------------------


def others(*runs: tuple[float, float]) -> tuple[list[Run], list[Run]]:
    """Pairs at other rates: (speed, how much slower the candidate is)."""
    return (
        [driven(f"x{k}", "baseline", k, speed=speed) for k, (speed, _) in enumerate(runs)],
        [driven(f"y{k}", "candidate", k, factor, speed) for k, (speed, factor) in enumerate(runs)],
    )


def test_runs_at_the_rates_answer_what_the_model_asked():
    """The model crosses at 1.4 and the runs at 1.4 do not: measured decides, so it passes."""
    report = judged(gate_of(steps=EDGE, measured=True), other_rates=others((0.9, 1.0), (1.4, 1.02)))
    assert ["pass", "pass"] == [p.verdict for p in report.predicates if p.id == "boundary"]
    assert "pass" == report.verdict
    assert "leaves to the runs at those rates that ttft crosses" in boundary(report).why
    cells = [c for c in report_json(report)["boundary"]["cells"] if c["evidence"] == "measured"]
    sides_of = [(c["multiplier"], c["side"], c["sources"]) for c in cells]
    assert [(0.9, "within", 1), (1.0, "within", 5), (1.4, "within", 1)] == sides_of
    assert 10 == len(report.runs)  # they are no pairs of the statistics


def test_runs_at_the_rates_can_show_the_edge():
    """A pair at 1.4 times the load is beyond the limit: the boundary is there, measured."""
    report = judged(gate_of(measured=True, steps=EDGE), other_rates=others((0.9, 1.0), (1.4, 1.5)))
    row = boundary(report, "measured")
    assert ("inconclusive", ("measure_boundary",)) == (row.verdict, row.reasons)
    assert "arrival x 1.4 moves ttft to beyond its limit" in row.why


def test_a_rate_without_runs_leaves_it_open():
    """Each listed step needs its own."""
    row = boundary(judged(gate_of(measured=True), other_rates=others((0.95, 1.0))), "measured")
    assert ("inconclusive", ("no_data",)) == (row.verdict, row.reasons)
    assert "arrival x 1.05: no pair of runs was driven at it" in row.why


def test_runs_that_give_no_estimate_leave_it_open():
    """Values that are missing are no side."""
    at = others((0.95, 1.0), (1.05, 1.0))
    blank = [replace(r, requests=r.requests.with_columns(ttft_us=None)) for r in at[1]]
    row = boundary(judged(gate_of(measured=True), other_rates=(at[0], blank)), "measured")
    assert ("inconclusive", ("no_data",)) == (row.verdict, row.reasons)


@pytest.mark.parametrize(
    ("gate", "at", "message"),
    [
        ({}, others((0.95, 1.0)), "only where boundary.measured is true"),
        ({"measured": True}, (others((0.95, 1.0))[0], []), "must be of as many runs each"),
        ({"measured": True}, others((1.3, 1.0)), "must be a listed step"),
        ({"measured": True}, (sides([1.0])[0], sides([1.0])[1]), "must be given once"),
        (
            {"measured": True},
            ([driven("x", "baseline", 0, driver=None)], [driven("y", "candidate", 0)]),
            "must be known to measure",
        ),
        (
            {"measured": True},
            ([driven("x", "baseline", 0, speed=0.95)], [driven("y", "candidate", 0, speed=1.05)]),
            "",
        ),
    ],
    ids=["unasked", "uneven", "unlisted", "twice", "unknown", "two-speeds"],
)
def test_runs_at_rates_that_nobody_listed_are_bad_input(gate: Any, at: Any, message: str):
    """A mistake of the call is told, and no verdict; other arrivals in a pair are refused."""
    if not message:
        assert "refused" == judged(gate_of(**gate), other_rates=at).verdict
        return
    with pytest.raises(InputError, match=message):
        judged(gate_of(**gate), other_rates=at)


def test_runs_at_other_rates_are_of_the_pairs_requests():
    """Another trace at the same multiple answers another question."""
    base, cand = others((0.95, 1.0))
    renamed = [
        [
            replace(r, requests=r.requests.with_columns(request_id="q" + pl.col("request_id")))
            for r in side
        ]
        for side in (base, cand)
    ]
    with pytest.raises(InputError, match="must be those of one of the pairs"):
        judged(gate_of(measured=True), other_rates=(renamed[0], renamed[1]))


def test_runs_at_other_rates_are_compared_like_every_run():
    """Another model at another rate is refused by name."""
    base, cand = others((0.95, 1.0), (1.05, 1.0))
    cand = [replace(r, manifest={**r.manifest, "model": {"name": "other"}}) for r in cand]
    report = judged(gate_of(measured=True), other_rates=(base, cand))
    assert ("refused", "model.name") == (report.verdict, report.comparability.differing[0].field)


# --- the file, and what people see ------------------------------------------------------------


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            {"boundary": {"rates": ["transfer_bytes_per_tick"], "steps": [2], "measured": True}},
            "boundary.measured must be false",
        ),
        ({"evidence": {"modelled": "off"}}, 'evidence.modelled must not be "off"'),
    ],
)
def test_a_boundary_that_could_never_be_decided_is_bad_input(tables: Any, message: str):
    """No run is driven at another transfer rate, and nothing is replayed without ledgers."""
    raw = {"schema": "preemption-gate/1", "name": "g", "change": {"fields": []}}
    given = {"boundary": {"rates": ["arrival"], "steps": [2]}} | tables
    with pytest.raises(InputError, match=message):
        parse_gate(raw | given, "g.toml")


def test_explain_says_what_is_replayed():
    """Rates, steps, checks and what has to be given; nothing is left to a later version."""
    said = "\n".join(explain(gate_of(TTFT, GOODPUT, measured=True)))
    assert (
        "boundary (modelled replays): both sides are replayed with arrival x 0.95, 1.05, one at a"
        " time; no step may move a modelled estimate of ttft, goodput across its limit." in said
    )
    assert "--ledger twice" in said
    assert "at least one pair at arrival x 0.95 and 1.05 each" in said
    assert "Today this gate can be decided completely." in said


def test_the_edge_is_told_wherever_the_report_is():
    """Terminal, Markdown and page have the strip, its signs and where it crosses."""
    report = judged(gate_of(steps=EDGE))
    screen = io.StringIO()
    print_report(report, Console(file=screen, width=200))
    texts = (screen.getvalue(), report_markdown(report, "0" * 64), panels.boundary_figure(report))
    for text in texts:
        assert "x 1 ✓" in text
        assert "x 1.4 ✕" in text
        assert "crosses between" in text
        assert "modelled by vllm-v1 vllm-0.32.0" in text
    ((strip, rows),) = shown(report)
    assert ("arrival", "ttft") == (strip["rate"], strip["predicate"])
    assert {"✓ within the limit", "✕ beyond the limit"} == {r["side"] for r in rows if "side" in r}
    assert 1 == sum("low" in row for row in rows)
    assert "boundary-0" in panels.specs(report)


def test_a_gate_without_a_boundary_says_so_on_the_page():
    """Absent is not empty."""
    raw = {"schema": "preemption-gate/1", "name": "g", "change": {"fields": []}}
    report = answer(
        parse_gate(raw, "g.toml"), driven("b", "baseline", 0), driven("c", "candidate", 0)
    )
    del report
    assert "asks for no replays" in panels.boundary_figure(
        answer(
            parse_gate(raw | {"change": {"fields": ["cache.num_gpu_blocks"]}}, "g.toml"),
            driven("b", "baseline", 0),
            driven("c", "candidate", 0),
        )
    )


def test_the_command_replays_its_ledgers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """From run directories and ledger directories to cells, with no word about progress."""
    monkeypatch.chdir(tmp_path)
    workload = run_workload(recorded("base-1"))
    for name, blocks in (("base", 47), ("cand", 79)):
        write_ledger(sealed(workload, config(blocks)), tmp_path / name)
    Path("g.toml").write_text(
        'schema = "preemption-gate/1"\nname = "g"\n'
        '[change]\nfields = ["cache.num_gpu_blocks"]\n'
        "[design]\nfollow_up_us = 10_000_000\n"
        '[[predicate]]\nid = "ttft"\nkind = "regression"\nfield = "ttft_us"\nstatistic = "p95"\n'
        'max_regression = 0.1\n[boundary]\nrates = ["arrival"]\nsteps = [0.95]\n'
    )
    runs = ["--baseline", str(RUNS / "base-1"), "--candidate", str(RUNS / "cand-80")]
    words = ["gate", "run", "g.toml", *runs, "--ledger", "base", "--ledger", "cand", "--json"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    out = capsys.readouterr()
    assert 3 == ended.value.code
    assert "" == out.err
    assert 4 == json.loads(out.out)["boundary"]["replays"]
