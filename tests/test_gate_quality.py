"""The benchmark of the gates: its numbers are those of the page, its gates the real ones."""

from dataclasses import replace
from pathlib import Path

from test_gate import answer, edited, recorded

from analysis.gate.verdict import PredicateResult
from benchmarks.gate_pool import GATE, REQUESTS, Setting, asked, rows
from benchmarks.gate_quality import PAIRS, judge, put, subset
from collectors.run import Run, frame_schema

PAGE = Path(__file__).parents[1] / "docs" / "gate-quality.md"


def test_a_hundred_evaluations_come_to_what_the_page_says() -> None:
    """Replay, queries, statistics and verdict together: whoever changes one sees it here."""
    text = PAGE.read_text(encoding="utf-8")
    assert text == put(text, "subset", subset()), "python -m benchmarks.gate_quality --write says"


def setting_of(side: str, step: float) -> Setting:
    """Baselines as they are, candidates with another step cost."""
    return Setting(9.0, 0.01, step=step if side == "candidate" else 1.0, side=side)


def whole_runs(setting: Setting) -> list[Run]:
    """Runs of a pool as a collector would have left them, one for each arrival seed."""
    frame = rows(setting, [(seed, 0) for seed in range(PAIRS)])
    runs = []
    for pair, (name,) in enumerate(frame.select("run_id").unique(maintain_order=True).iter_rows()):
        own = frame.filter(run_id=name)
        end = own["drain_end_us"][0]
        first = 0 if setting.side == "baseline" else 1
        changes = {
            "run_id": name,
            "comparison.side": setting.side,
            "comparison.pair": pair,
            "comparison.order": 2 * pair + (first + pair) % 2,
            "workload.requests": REQUESTS,
            "workload.workload_sha256": f"{pair:064}",
            "drain_end_us": end,
            "send_end_us": end - GATE.design.follow_up_us,
        }
        run, schema = recorded("base-1"), frame_schema("measured_requests")
        absent = run.requests.clear().select(c for c in schema if c not in own.columns)
        whole = own.hstack(absent.clear(own.height)).select(*schema)
        runs.append(
            replace(
                run,
                run_id=name,
                manifest=edited(run.manifest, changes),
                requests=whole,
                events=run.events.clear(),
            )
        )
    return runs


def test_a_gate_drawn_from_a_pool_is_the_gate_of_those_runs() -> None:
    """Estimates, bounds and verdicts of every statistical check, and of the steady baseline."""
    verdicts = set()
    for step in (1.0, 1.1):
        settings = [setting_of(side, step) for side in ("baseline", "candidate")]
        report = answer(GATE, *(whole_runs(setting) for setting in settings))
        places = [(seed, 0) for seed in range(PAIRS)]
        base, cand = (asked(rows(setting, places)) for setting in settings)
        pairs = [(f"baseline-{k}-0", f"candidate-{k}-0") for k in range(PAIRS)]
        found = judge(base, cand, pairs)
        assert statistical(report.predicates) == found
        verdicts |= {p.verdict for p in found}
    assert {"pass", "fail"} <= verdicts


def statistical(found: tuple[PredicateResult, ...]) -> tuple[PredicateResult, ...]:
    """Results that rest on pairs of runs, and the baseline's steadiness."""
    return tuple(p for p in found if p.kind in ("regression", "goodput", "steady"))
