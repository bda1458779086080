"""The figures' places on the page: title, controls, chart, text beside it; or why there is none.

The page's script fills charts and texts; what a figure shows without a script is in the tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.gate.contract import Gate
from analysis.gate.verdict import GateReport
from analysis.page.escape import sentence, text
from analysis.page.figures import conservation, curves, effects, fairness, pressure, statuses
from analysis.page.figures.theme import Spec
from analysis.page.tables import table

Data = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """One chart's place. `name` is its id and what the script knows it by."""

    name: str
    title: str
    side: str = ""


def specs(report: GateReport, gate: Gate) -> dict[str, Spec]:
    """Every chart's specification by its panel's name."""
    found: dict[str, Spec] = {"statuses": statuses.statuses()}
    for side in ("baseline", "candidate"):
        found[f"curves-{side}"] = curves.curves()
        found[f"fairness-{side}"] = fairness.fairness()
        found[f"occupancy-{side}"] = pressure.occupancy(pressure.MEASURED)
        found[f"queue-{side}"] = pressure.queue(pressure.MEASURED)
        found[f"preemptions-{side}"] = pressure.preemptions(pressure.MEASURED)
    found["occupancy-modelled"] = pressure.occupancy(pressure.MODELLED)
    found["queue-modelled"] = pressure.queue(pressure.MODELLED)
    found["preemptions-modelled"] = pressure.preemptions(pressure.MODELLED)
    found["conservation-tokens"] = conservation.conservation("tokens")
    found["conservation-blocks"] = conservation.conservation("blocks")
    pairs = max(1, len(report.runs) // 2)
    for k, (result, _) in enumerate(effects.shown(report, gate)):
        found[f"effects-{k}"] = effects.effects(percent=effects.is_percent(result), pairs=pairs)
    return found


def effects_figure(report: GateReport, gate: Gate) -> str:
    """A dot plot per check with a limit and a number in every run."""
    found = effects.shown(report, gate)
    if not found:
        return absent(
            "No check of this report has a number of every run and a limit to hold it to."
        )
    panels = [
        Panel(
            f"effects-{k}",
            f"{p.id}: {p.statistic or p.kind}"
            + (" (relative change of a pair)" if p.kind == "regression" else ""),
        )
        for k, (p, _) in enumerate(found)
    ]
    return _figure(
        "Each dot is a run, or the change of a pair; the dashed line is the limit.", panels
    )


def choices(data: Data) -> str:
    """The filter that holds for everything below it, and its numbers as a table."""
    if not data["numbers"]:
        return absent("The runs have no requests with a place in this comparison.")
    scopes = [("both", "both sides"), ("baseline", "baseline"), ("candidate", "candidate")]
    scopes += [(str(k), f"{r['name']} ({r['side']})") for k, r in enumerate(data["runs"])]
    slices = [(str(k), name) for k, name in enumerate(data["slices"])]
    more = data["runs_total"] - len(data["runs"])
    cut = (
        f" Only the first {len(data['runs'])} runs can be chosen; the sides hold all."
        if more
        else ""
    )
    return (
        '<form class="choices" id="filter" aria-label="Choose what the numbers and charts below show">'
        f"{_select('slice', 'Slice', slices)}{_select('scope', 'Runs', scopes)}"
        f"{_select('metric', 'Latency', [('ttft', 'time to first token'), ('e2e', 'end to end')])}"
        f'</form><p class="note">Slice and runs hold for the table, requests by status,'
        f" distributions and fairness.{cut}</p>"
        f"{numbers_table(data)}{follow_up(data)}"
    )


NUMBERS = (
    ("requests", "requests"),
    ("eligible", "eligible for latencies"),
    ("ok", "ok"),
    ("error", "error"),
    ("aborted", "aborted"),
    ("censored", "censored"),
    ("unsent", "unsent"),
    ("rejected", "rejected"),
    ("preempted", "requests preempted"),
    ("preemptions", "preemptions"),
    ("waited_too_long", "▲ waited too long"),
    ("preempted_too_often", "✕ preempted too often"),
    ("ttft_p50_us", "TTFT p50, ms"),
    ("ttft_p95_us", "TTFT p95, ms"),
    ("e2e_p50_us", "end to end p50, ms"),
    ("e2e_p95_us", "end to end p95, ms"),
)


def numbers_table(data: Data) -> str:
    """Both sides over all requests; the script shows another choice."""
    found = {r["scope"]: r for r in data["numbers"] if r["slice"] == 0}
    rows = []
    for name, words in NUMBERS:
        values = [found.get(side, {}).get(name) for side in ("baseline", "candidate")]
        rows.append((words, *(_shown(name, v) for v in values)))
    return table(
        "Measured numbers of the choice",
        ("measured", "baseline", "candidate"),
        rows,
        name="numbers",
    )


def follow_up(data: Data) -> str:
    """How latencies of unfinished requests are counted."""
    tau = data["follow_up_us"]
    if tau:
        rule = (
            f"capped at the follow-up of {tau / 1e6:g} s: what failed or never came counts as that"
        )
    else:
        rule = (
            "not capped, as the gate plans no follow-up: what failed or never came counts as never"
        )
    return f'<p class="note">Latencies are of eligible requests, {rule}.</p>'


def statuses_figure(data: Data) -> str:
    """Requests by status."""
    if not data["numbers"]:
        return absent("No run of this comparison has requests.")
    return _figure("Every offered request, whatever became of it.", [Panel("statuses", "")])


def curves_figure(data: Data) -> str:
    """Distributions by preemption count, one panel a side."""
    if not data["curves"]:
        return absent(
            "No distribution: no request is eligible with a known number of preemptions and a time"
            " (the end of observation, or preemptions, may not have been recorded)."
        )
    return _figure(
        "Share of eligible requests whose latency is at most so many seconds. A curve that ends"
        " below 100 % leaves requests that never came.",
        _sides("curves"),
    )


def pressure_figure(data: Data) -> str:
    """Timelines: measured panels of a pair, then modelled ones of a ledger."""
    if data["pressure"]:
        pairs = sorted({r["pair"] for r in data["runs"]})
        width = max(r["width"] for r in data["pressure"])
        thinned = f" Each point is the greatest of {width} s." if width > 1 else ""
        measured = (
            f'<form class="choices" aria-label="Choose a pair">{_select("pair", "Pair of runs", [(str(p), f"pair {p + 1}") for p in pairs])}</form>'
            + _figure(
                f"Measured by the recorder in the engine, per second.{thinned}",
                [
                    Panel(f"{kind}-{side}", f"{title}: {side}", side)
                    for kind, title in (
                        ("occupancy", "KV cache occupancy"),
                        ("queue", "Running and waiting"),
                        ("preemptions", "Preemptions"),
                    )
                    for side in ("baseline", "candidate")
                ],
            )
        )
    else:
        measured = absent("No measured timeline: no run has step records of the recorder.")
    return f"<h3>Measured</h3>{measured}<h3>Modelled</h3>{_modelled(data)}"


def fairness_figure(data: Data) -> str:
    """A mark per request, and one request to pick."""
    waits = [r for r in data["requests"] if r["wait_us"] is not None]
    if not waits:
        return absent("No request has a recorded waiting time.")
    limits = data["limits"]
    total = data["requests"][0]["total"]
    thinned = (
        f" Shown are {len(data['requests']):,} of {total:,} requests: marked ones first, then"
        " preempted ones, then a fixed sample; the table above counts all."
        if total > len(data["requests"])
        else ""
    )
    wait = limits["wait_limit_us"]
    waited = (
        "▲ is not known"
        if wait is None
        else f"▲ waited more than {wait / 1e6:,.3g} s ({limits['wait_why']})"
    )
    caption = (
        f"{waited}; ✕ preempted more than {limits['max_preemptions']:,} times"
        f" ({limits['preemptions_why']}). Waiting is the first wait and all re-entries.{thinned}"
    )
    return (
        _figure(caption, _sides("fairness"))
        + f'<form class="choices" aria-label="Pick a request">{_select("request", "Request", [])}</form>'
        + '<div id="request-detail" aria-live="polite"></div>'
    )


def conservation_figure(data: Data) -> str:
    """One preemption event, chosen from the costliest."""
    measured, modelled = data["measured_preemptions"], data["modelled_preemptions"]
    if not measured and not modelled:
        return absent("No preemption was recorded in these runs, and none is modelled.")
    shown, total = (
        len(measured) + len(modelled),
        sum(f[0]["total"] for f in (measured, modelled) if f),
    )
    cut = f" To choose from are the {shown} costliest of {total:,}." if total > shown else ""
    return (
        f'<form class="choices" aria-label="Choose a preemption">{_select("event", "Preemption", [])}</form>'
        + _figure(
            "Prompt and generated tokens survive a preemption, its KV blocks leave, and what they"
            f" held has to be computed again. Nothing emitted is lost.{cut}",
            [
                Panel("conservation-tokens", "Tokens"),
                Panel("conservation-blocks", "KV-cache blocks"),
            ],
        )
    )


def worst_table(data: Data) -> str:
    """The ten requests that got slowest from baseline to candidate."""
    if not data["worst"]:
        return absent("No request took longer in a candidate run than in its pair's baseline run.")
    headings = (
        "request", "pair", "end to end, ms", "slower by, ms", "TTFT, ms", "waited, ms", "preemptions",
        "status",
    )  # fmt: skip
    rows = [
        (
            r["request_id"],
            str(r["pair"] + 1),
            _moved(r, "e2e_us"),
            r["increase_us"] / 1000,
            _moved(r, "ttft_us"),
            _moved(r, "wait_us"),
            _moved(r, "preemptions"),
            f"{r['baseline_status']} → {r['candidate_status']}",
        )
        for r in data["worst"]
    ]
    return table("Measured, baseline → candidate; greatest increase first", headings, rows)


def fidelity_table(data: Data) -> str:
    """How far replays of these runs are from them."""
    if not data["fidelity"]:
        return absent("No replay of these runs is loaded in the store they were judged on.")
    headings = ("metric", "ledger", "run", "level", "requests", "modelled", "measured", "error, %")
    rows = [
        (
            r["metric"],
            r["ledger_id"][:12],
            r["run_id"],
            r["fidelity_level"],
            r["requests"],
            r["modelled_value"],
            r["measured_value"],
            None if r["error_frac"] is None else 100 * r["error_frac"],
        )
        for r in data["fidelity"]
    ]
    return table("Modelled and measured values, each in its own column", headings, rows)


def absent(reason: str) -> str:
    """A figure that is not there, and why."""
    return f'<p class="absent">{sentence(reason)}</p>'


def _modelled(data: Data) -> str:
    if not data["modelled_pressure"]:
        return absent("No modelled timeline: no ledger of these requests is in the store.")
    ledgers = {
        r["ledger_id"]: f"{r['ledger_id'][:12]}: {r['model']}" for r in data["modelled_pressure"]
    }
    return (
        f'<form class="choices" aria-label="Choose a ledger">{_select("ledger", "Modelled ledger", list(ledgers.items()))}</form>'
        + _figure(
            "Modelled by a replay, in ticks of its own: declared arithmetic and no time on a clock.",
            [
                Panel("occupancy-modelled", "KV cache occupancy, modelled"),
                Panel("queue-modelled", "Running and waiting, modelled"),
                Panel("preemptions-modelled", "Preemptions, modelled"),
            ],
        )
    )


def _sides(name: str) -> list[Panel]:
    return [Panel(f"{name}-{side}", side, side) for side in ("baseline", "candidate")]


def _figure(caption: str, panels: Sequence[Panel]) -> str:
    inner = "".join(
        f'<div class="panel" id="panel-{p.name}">'
        + (f"<h3{_key(p.side)}>{text(p.title)}</h3>" if p.title else "")
        + f'<div class="chart" id="chart-{p.name}" role="img" aria-labelledby="summary-{p.name}"></div>'
        f'<p class="summary" id="summary-{p.name}"></p></div>'
        for p in panels
    )
    two = " two" if len(panels) > 1 else ""
    return f'<figure><figcaption>{sentence(caption)}</figcaption><div class="panels{two}">{inner}</div></figure>'


def _key(side: str) -> str:
    return f' class="key {side}"' if side else ""


def _select(name: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    listed = "".join(f'<option value="{text(v)}">{text(words)}</option>' for v, words in options)
    return f'<label for="choose-{name}">{label}<select id="choose-{name}" autocomplete="off">{listed}</select></label>'


def _moved(row: Data, field: str) -> str:
    return " → ".join(_shown(field, row[f"{side}_{field}"]) for side in ("baseline", "candidate"))


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{value / 1000:,.1f}" if name.endswith("_us") else f"{value:,}"
