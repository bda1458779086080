"""The figures' places on the page: title, controls, chart, text beside it; or why there is none.

The page's script fills charts and texts; what a figure shows without a script is in the tables.
"""

from typing import Any

from analysis.gate.boundary import tables as rates
from analysis.gate.verdict import GateReport
from analysis.page.escape import sentence
from analysis.page.figures import (
    boundary,
    conservation,
    curves,
    effects,
    fairness,
    pressure,
    statuses,
)
from analysis.page.figures.theme import SIDES, Spec
from analysis.page.parts import Panel, absent, figure, form, moved, select, shown, sides
from analysis.page.tables import table

Data = dict[str, Any]


def specs(report: GateReport) -> dict[str, Spec]:
    """Every chart's specification by its panel's name."""
    found: dict[str, Spec] = {"statuses": statuses.statuses()}
    for side in SIDES:
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
    pairs = max(1, report.pairs)
    for k, (result, rows) in enumerate(effects.shown(report)):
        found[f"effects-{k}"] = effects.effects(
            percent=effects.is_percent(result),
            pairs=pairs + bool(result.effects),
            of=effects.unit(report) if result.effects else None,
            bounded=any("low" in row for row in rows),
        )
    for k, (_, rows) in enumerate(boundary.shown(report)):
        found[f"boundary-{k}"] = boundary.boundary(crossed=boundary.is_crossed(rows))
    return found


def effects_figure(report: GateReport) -> str:
    """A dot plot per check with a limit and a number in every run."""
    found = effects.shown(report)
    if not found:
        return absent(
            "No check of this report has a number of every run and a limit to hold it to."
        )
    panels = [
        Panel(
            f"effects-{k}",
            f"{p.id}: {p.statistic or p.kind}"
            + (f" (effects of {effects.unit(report)}s)" if p.effects else ""),
        )
        for k, (p, _) in enumerate(found)
    ]
    what = f"Each dot is a run, or the change of a {effects.unit(report)}"
    return figure(f"{what}; the dashed line is the limit.", panels)


def boundary_figure(report: GateReport) -> str:
    """A strip for each rate and limit, and the same as a table."""
    told = "".join(f"<li>{sentence(text)}</li>" for text in rates.facts(report))
    listed = f"<ul>{told}</ul>" if told else ""
    found = boundary.shown(report)
    if not found:
        why = "The gate asks for no replays at other rates."
        return listed + absent(
            why if report.boundary is None else "Nothing was replayed at other rates."
        )
    panels = [
        Panel(
            f"boundary-{k}",
            f"{strip['predicate']}: {strip['statistic']}, by {strip['rate']} ({strip['evidence']})",
        )
        for k, (strip, _) in enumerate(found)
    ]
    caption = "Where an estimate lies when one rate is multiplied; a grey bar holds a crossing."
    rows = table("Estimates at other rates", rates.HEADINGS, rates.rows(report))
    return figure(caption, panels) + listed + rows


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
        form(
            "Choose what the numbers and charts below show",
            select("slice", "Slice", slices),
            select("scope", "Runs", scopes),
            select("metric", "Latency", [("ttft", "time to first token"), ("e2e", "end to end")]),
        )
        + '<p class="note">Slice and runs hold for the table, requests by status,'
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
        values = [found.get(side, {}).get(name) for side in SIDES]
        rows.append((words, *(shown(name, v) for v in values)))
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
    whole = (
        " They are of whole runs, beyond the windows that were judged."
        if (data["observational"])
        else ""
    )
    return f'<p class="note">Latencies are of eligible requests, {rule}.{whole}</p>'


def statuses_figure(data: Data) -> str:
    """Requests by status."""
    if not data["numbers"]:
        return absent("No run of this comparison has requests.")
    return figure("Every offered request, whatever became of it.", [Panel("statuses", "")])


def curves_figure(data: Data) -> str:
    """Distributions by preemption count, one panel a side."""
    if not data["curves"]:
        return absent(
            "No distribution: no request is eligible with a known number of preemptions and a time"
            " (the end of observation, or preemptions, may not have been recorded)."
        )
    return figure(
        "Share of eligible requests whose latency is at most so many seconds. A curve that ends"
        " below 100 % leaves requests that never came.",
        sides("curves"),
    )


def pressure_figure(data: Data) -> str:
    """Timelines: measured panels of a pair, then modelled ones of a ledger."""
    if data["pressure"]:
        pairs = [(str(p), f"pair {p + 1}") for p in sorted({r["pair"] for r in data["runs"]})]
        width = max(r["width"] for r in data["pressure"])
        thinned = f" Each point is the greatest of {width} s." if width > 1 else ""
        measured = form("Choose a pair", select("pair", "Pair of runs", pairs)) + figure(
            f"Measured by the recorder in the engine, per second.{thinned}",
            [
                Panel(f"{kind}-{side}", f"{title}: {side}", side)
                for kind, title in (
                    ("occupancy", "KV cache occupancy"),
                    ("queue", "Running and waiting"),
                    ("preemptions", "Preemptions"),
                )
                for side in SIDES
            ],
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
        f" Shown are {len(data['requests']):,} of {total:,} requests: marked ones up to"
        " a half, then others, both by a hash of their id; the table above counts all."
        if total > len(data["requests"])
        else ""
    )
    wait = limits["wait_limit_us"]
    waited = (
        "▲ is not known"
        if wait is None
        else f"▲ waited more than {wait / 1e6:,.3g} s ({limits['wait_why']})"
    )
    most = limits["max_preemptions"]
    times = "once" if most == 1 else f"{most:,} times"
    caption = (
        f"{waited}; ✕ preempted more than {times}"
        f" ({limits['preemptions_why']}). Waiting is the first wait and all re-entries.{thinned}"
    )
    return (
        figure(caption, sides("fairness"))
        + form("Pick a request", select("request", "Request", []))
        + '<div id="request-detail" aria-live="polite"></div>'
    )


def conservation_figure(data: Data) -> str:
    """One preemption event, chosen from the costliest."""
    measured, modelled = data["measured_preemptions"], data["modelled_preemptions"]
    if not measured and not modelled:
        return absent("No preemption was recorded in these runs, and none is modelled.")
    named, total = (
        len(measured) + len(modelled),
        sum(f[0]["total"] for f in (measured, modelled) if f),
    )
    cut = f" To choose from are the {named} costliest of {total:,}." if total > named else ""
    return form("Choose a preemption", select("event", "Preemption", [])) + figure(
        "Prompt and generated tokens survive a preemption, its KV blocks leave, and what they"
        f" held has to be computed again. Nothing emitted is lost.{cut}",
        [
            Panel("conservation-tokens", "Tokens"),
            Panel("conservation-blocks", "KV-cache blocks"),
        ],
    )


def worst_table(data: Data) -> str:
    """The ten requests that got slowest from baseline to candidate."""
    if not data["worst"]:
        return absent("No request took longer in a candidate run than in its pair's baseline run.")
    headings = (
        "request", "pair", "end to end, ms", "slower by, ms", "TTFT, ms", "waited, ms",
        "preemptions", "status",
    )  # fmt: skip
    rows = [
        (
            r["request_id"],
            str(r["pair"] + 1),
            moved(r, "e2e_us"),
            shown("increase_us", r["increase_us"]),
            moved(r, "ttft_us"),
            moved(r, "wait_us"),
            moved(r, "preemptions"),
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
            None if r["error_frac"] is None else round(100 * r["error_frac"], 1),
        )
        for r in data["fidelity"]
    ]
    return table("Modelled and measured values, each in its own column", headings, rows)


def _modelled(data: Data) -> str:
    if not data["modelled_pressure"]:
        return absent("No modelled timeline: no ledger of these requests is in the store.")
    ledgers = {
        r["ledger_id"]: f"{r['ledger_id'][:12]}: {r['model']}" for r in data["modelled_pressure"]
    }
    return form(
        "Choose a ledger", select("ledger", "Modelled ledger", list(ledgers.items()))
    ) + figure(
        "Modelled by a replay, in ticks of its own: declared arithmetic and no time on a clock.",
        [
            Panel("occupancy-modelled", "KV cache occupancy, modelled"),
            Panel("queue-modelled", "Running and waiting, modelled"),
            Panel("preemptions-modelled", "Preemptions, modelled"),
        ],
    )
