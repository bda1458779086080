"""What a report must not be read as; the sentences travel with every verdict."""

from collections.abc import Sequence

from analysis.driver import driver_limitations
from analysis.gate.comparability import Comparability, GateRun
from analysis.gate.contract import Design, Gate
from analysis.gate.windows import cut
from analysis.latencies import import_limitations
from replay.limitations import LIMITATIONS
from replay.strict import printable

ALWAYS = (
    "A verdict holds for one engine version, model, device and cache configuration and for the"
    " traffic of these runs; it transfers to no other without fresh measurement.",
    "A pass says that a statistic is worse by no more than its limit, not that it is unchanged; the"
    " intervals are of the mean over pairs of runs and say nothing of single requests.",
)
FIRST_ADMISSION = (
    "queue_time_us ends when a request is first scheduled: waiting after a preemption is in"
    " requeue_time_us only."
)
ONE_TRACE = "All pairs replay one workload: the verdict is valid for that trace only."
SAME_SERVERS = (
    "Both sides' servers ran for the whole comparison: what is one server's own, and no change's,"
    " is in every pair, and no interval knows of it."
)
OBSERVATIONAL = (
    "The runs are windows of live traffic: the verdict is observational. Nobody offered both sides"
    " the same requests; that the split was random is declared, and only the shares and lengths of"
    " requests were compared."
)
RECORDED = (
    "Offered requests of live traffic are those that were recorded: one that was refused before it"
    " reached the engine is in no number but the candidate's share of all requests."
)


def limitations(gate: Gate, runs: Sequence[GateRun]) -> tuple[str, ...]:
    """Sentences that apply to this gate and these runs, the modelled ones last."""
    found = [*ALWAYS]
    if any(p.field == "queue_time_us" for p in gate.predicates):
        found.append(FIRST_ADMISSION)
    if gate.design.windows:
        found += [OBSERVATIONAL, RECORDED]
    elif len(offered := {r.workload_sha256 for r in runs}) == 1 and None not in offered:
        found.append(ONE_TRACE)
    if any(r.value("comparison.own_server") is False for r in runs):
        found.append(SAME_SERVERS)
    for run in runs:
        found += import_limitations(run.run_id, run.value)
        found += driver_limitations(run.run_id, run.value)
    return (*found, *LIMITATIONS)


def notes(gate: Gate, compared: Comparability, runs: Sequence[GateRun]) -> tuple[str, ...]:
    """What a reader should know about this comparison that decides nothing."""
    found = [
        f"{change.field} is declared as the change but is the same on both sides"
        for change in compared.changed
        if not change.differs and not compared.refused
    ]
    pairs = len(runs) // 2
    if gate.design.windows:
        found += _windows(gate.design, runs)
    elif runs and pairs < gate.design.pairs:
        found.append(f"pairs of runs given: {pairs} of {gate.design.pairs} planned")
    seeds = len({r.workload_sha256 for r in runs})
    if (
        pairs == gate.design.pairs
        and not gate.design.windows
        and seeds != (planned := gate.design.arrival_seeds)
    ):
        found.append(f"{seeds} distinct workloads were offered, {planned} were planned")
    if not gate.change_fields:
        found.append("no change is declared: both sides are the same configuration (A/A)")
    return tuple(printable(n, 400) for n in found)


def _windows(design: Design, runs: Sequence[GateRun]) -> list[str]:
    """How many windows there were, and how neighbouring ones were taken together."""
    found = cut(runs, design)
    if not found.judged:
        return []
    block = design.block(found.judged)
    blocks, left = divmod(found.judged, block)
    return [
        f"windows whole on both sides: {found.whole}; the first {found.judged} were judged, of"
        f" {design.pairs} planned",
        f"an interval is of {blocks} blocks of {block} neighbouring windows"
        + (f"; the last {left} are in none" if left else ""),
    ]
