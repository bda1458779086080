"""Watching a live run: a rule holds, none does, or nobody can tell; and never one for another."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from live import DESIGN, FOLLOW_UP_US, SECOND, WINDOW_US, live, traffic
from pages import renamed
from spools import UNIX_NS, header_of, ns, records_of, write_spool
from stored import recorded
from test_gate import Row, emptied, frame, frame_schema

from analysis.gate.contract import Gate
from analysis.gate.gate_file import parse_gate
from analysis.gate.watch import Watched, moment, watch, watched_json
from analysis.store import connect, load_run
from collectors.pack.packer import Packer
from collectors.pack.summary import manifest_of
from collectors.run import Run, read_run
from collectors.writer import RunWriter, new_manifest
from replay.errors import InputError

START_US = 1_796_040_000_000_000  # 2026-11-30T12:00:00Z
MINUTES = 5
END_US = MINUTES * WINDOW_US
NOW_US = START_US + END_US + 5 * SECOND
ALWAYS = "36500d"
MANIFEST = ("start", "end_us", "configuration_sha256")
TTFT: Row = {
    "id": "ttft",
    "kind": "regression",
    "field": "ttft_us",
    "statistic": "p50",
    "max_regression": 0.5,
}
GOODPUT: Row = {"id": "good", "kind": "goodput", "slo": {"ttft_us": 700_000}, "min_fraction": 0.1}
FAILURES: Row = {"id": "failures", "kind": "failures", "max_failed_fraction": 0.05}
REPEAT: Row = {"id": "repeat", "kind": "repeated_preemption", "max_preemptions": 3}
PROGRESS: Row = {"id": "progress", "kind": "erased_progress"}
SLICE = {"some": {"where": {"prompt_tokens": {"max": 1000}}, "min_eligible": 20}}
PREDICATES = (TTFT, GOODPUT, FAILURES, REPEAT, PROGRESS)
RULES: dict[str, Row] = {
    "ttft": {"predicate": "ttft", "max_regression": 0.2, "action": "revert"},
    "good": {"predicate": "good", "min_fraction": 0.8, "max_drop": 0.1, "action": "revert"},
    "failures": {
        "predicate": "failures",
        "max_failed_fraction": 0.05,
        "max_censored_fraction": 0.05,
        "max_increase": 0.05,
        "action": "revert",
    },
    "repeat": {"predicate": "repeat", "max_preemptions": 2, "action": "revert"},
    "progress": {"predicate": "progress", "action": "revert"},
}


def raw_gate(rules: str = "ttft", *, predicates: Sequence[Row] = PREDICATES, to: str = "baseline"):
    """The tables of a gate that goes back by these rules."""
    return {
        "schema": "preemption-gate/1",
        "name": "canary",
        "change": {"fields": ["cache.num_gpu_blocks"]},
        "design": DESIGN,
        "slices": SLICE,
        "predicate": list(predicates),
        "rollback": {
            "to": to,
            "window_us": 2 * WINDOW_US,
            "when": [RULES[r] for r in rules.split()],
        },
    }


def gate_of(rules: str = "ttft", **more: Any) -> Gate:
    """That gate."""
    return parse_gate(raw_gate(rules, **more), "g.toml")


def side(name: str, minutes: int = MINUTES, **columns: Any) -> Run:
    """A run that is being collected, so many minutes old."""
    changes = {k: columns.pop(k) for k in list(columns) if "__" in k or k in MANIFEST}
    end_us = changes.pop("end_us", minutes * WINDOW_US)
    return live(name, traffic(name, windows=minutes, **columns), end_us=end_us, **changes)


def watched(
    candidate: Run | Sequence[Run],
    rules: str = "ttft",
    baseline: Run | None = None,
    now_us: int = NOW_US,
    gate: Gate | None = None,
    **options: Any,
) -> Watched:
    """What the rules come to on this candidate."""
    db = emptied()
    base = baseline or side("base")
    candidates = [candidate] if isinstance(candidate, Run) else list(candidate)
    for run in (base, *candidates):
        load_run(db, run)
    ids = [r.run_id for r in candidates]
    return watch(db, gate or gate_of(rules), [base.run_id], ids, now_us, **options)


def with_open(run: Run, seconds: Sequence[float], name: str = "open") -> Run:
    """The run with arrivals that have no row: they had not ended when it was read."""
    rows = [
        dict.fromkeys(frame_schema("measured_events"))
        | {"engine": 0, "seq": k, "step": k, "kind": "arrive", "request_id": f"{name}-{k}"}
        | {"time_us": round(s * SECOND)}
        for k, s in enumerate(seconds)
    ]
    return replace(run, events=frame("measured_events", rows, run.run_id))


# --- a rule holds, or none does ----------------------------------------------------------------


def test_where_no_rule_holds_it_says_so_and_no_more() -> None:
    """Exit 0; not that anything is fine."""
    found = watched(side("cand"), "ttft good failures repeat progress")
    assert {"does not hold"} == {a.state for a in found.answers}
    assert (0, None) == (found.exit_code, found.action)
    assert "no rule holds in this window (8 looked at)" == found.sentence
    record = watched_json(found)
    assert "a trigger, not a verdict: one window, no statistics over pairs" == record["trigger"]
    assert [None, None] == [record["action"], record["reason"]]
    assert "verdict" not in record


def test_the_newest_whole_window_is_looked_at() -> None:
    """It ends the follow-up before the newest record, and is as long as the gate says."""
    window = watched(side("cand")).window
    assert window is not None
    end = START_US + END_US - FOLLOW_UP_US
    assert (end - 2 * WINDOW_US + 1, end) == (window.from_us, window.until_us)
    assert 5 * SECOND == window.age_us
    assert "2026-11-30T12:04:50Z" == moment(window.until_us)
    before = side("cand", slower=lambda k: 3.0 if k < 2 else 1.0)
    assert 0 == watched(before).exit_code
    now = side("cand", slower=lambda k: 3.0 if k > 2 else 1.0)
    assert 1 == watched(now).exit_code


def test_a_slower_candidate_is_reverted_to_a_configuration() -> None:
    """The action, where to, and which number of which rule."""
    base = side("base", configuration_sha256="b" * 64)
    found = watched(side("cand", slower=lambda _: 1.4), baseline=base)
    assert (1, "revert") == (found.exit_code, found.action)
    (answer,) = found.answers
    assert ("max_regression", 0.2) == (answer.limit_name, answer.limit)
    assert pytest.approx(0.4, abs=0.02) == answer.change
    digest = "b" * 64
    known = f"revert to baseline (configuration {digest}): ttft holds: p50 of ttft_us"
    assert found.sentence.startswith(known)
    assert watched_json(found)["to"] == {"name": "baseline", "configuration_sha256": digest}
    elsewhere = watched(side("cand", slower=lambda _: 1.4), gate=gate_of(to="a" * 64))
    assert "a" * 64 == watched_json(elsewhere)["to"]["configuration_sha256"]


@pytest.mark.parametrize(
    ("rule", "limit", "columns"),
    [
        ("good", "min_fraction", {"ttft_us": lambda n: 900_000 if n % 3 == 0 else 300_000}),
        ("good", "max_drop", {"ttft_us": lambda n: 900_000 if n % 8 == 0 else 300_000}),
        ("failures", "max_failed_fraction", {"status": lambda n: "error" if n % 9 else "ok"}),
        ("failures", "max_censored_fraction", {"status": lambda n: "censored" if n % 9 else "ok"}),
        ("failures", "max_increase", {"status": lambda n: "error" if n % 9 == 0 else "ok"}),
        ("repeat", "max_preemptions", {"num_preemptions": lambda n: 3 if n == 7 else 0}),
    ],
)
def test_every_rule_can_hold(rule: str, limit: str, columns: dict[str, Any]) -> None:
    """Each just beyond its own limit."""
    found = watched(side("cand", **columns), rule)
    assert limit in {a.limit_name for a in found.holding}
    assert 1 == found.exit_code


def test_a_lost_token_holds() -> None:
    """Fewer tokens in the row than its events show."""
    run = side("cand")
    row = dict.fromkeys(frame_schema("measured_events")) | {"engine": 0, "seq": 0, "step": 0}
    row |= {"kind": "finish", "request_id": "cand-9", "generated_tokens": 500, "time_us": 1}
    lost = replace(run, events=frame("measured_events", [row], "cand"))
    found = watched(lost, "progress")
    assert (1, "holds") == (found.exit_code, found.answers[0].state)
    assert "generated tokens of 1 request were lost" == found.answers[0].why


def test_requests_that_never_end_count_as_long_as_they_were_followed() -> None:
    """A candidate that hangs answers fewer, and those quickly: it is not taken for quick."""
    hung = with_open(side("cand"), [200 + k / 10 for k in range(150)])
    found = watched(hung, "ttft failures")
    states = {a.limit_name: a.state for a in found.answers}
    assert "holds" == states["max_regression"]
    assert "holds" == states["max_censored_fraction"]
    assert "150 requests of the candidate's window have not ended" in found.notes[0]
    assert 150 == watched_json(found)["window"]["unfinished"]["candidate"]


def test_a_run_that_was_read_while_it_was_written_says_nothing() -> None:
    """Ends among its events whose rows are not there yet are no requests that hang."""
    run = with_open(side("cand"), [200 + k / 10 for k in range(150)])
    ends = run.events.with_columns(kind=pl.lit("finish"), seq=pl.col("seq") + 1000)
    found = watched(replace(run, events=pl.concat([run.events, ends])))
    assert (3, "torn") == (found.exit_code, watched_json(found)["reason"])
    assert "look again" in found.sentence


def test_a_run_that_is_being_packed_is_watched(tmp_path: Path) -> None:
    """A collector's run of a recorder's spool, written until second 60: 20 have not ended.

    17 of them arrived in the window: with those the median takes the whole follow-up of a second.
    """
    whole = recorded("base-1")
    records = records_of(whole)
    end = next(k for k, r in enumerate(records) if r[0] in "ADPUF" and r[3] > ns(60 * SECOND))
    write_spool(tmp_path / "spool", header_of(whole), records[:end])
    start = datetime.fromtimestamp(UNIX_NS // 10**9, UTC)
    with RunWriter.create(
        tmp_path / "run", new_manifest("cand", "observed", start=start)
    ) as writer:
        packer = Packer(writer, tmp_path / "spool")
        packer.pack()
        writer.write_manifest(manifest_of(packer))
    run = read_run(tmp_path / "run")
    run = replace(run, steps=run.steps.clear())  # which no gate reads
    raw = raw_gate()
    raw["design"] = {k: v for k, v in DESIGN.items() if k != "window_us"} | {"kind": "driven"}
    del raw["design"]["candidate_fraction"]
    raw["design"]["follow_up_us"] = SECOND
    raw["rollback"]["window_us"] = 30 * SECOND
    gate = parse_gate(raw, "g.toml")
    now_us = UNIX_NS // 1000 + 62 * SECOND
    found = watched(run, baseline=renamed(run, "base", {}), gate=gate, now_us=now_us)
    assert found.window is not None
    assert 17 == found.window.candidate.open_requests
    (answer,) = found.answers
    assert ("cannot tell", "censored") == (answer.state, answer.reason)
    assert 1.0 * SECOND == answer.candidate


def test_replicas_are_taken_together() -> None:
    """One of two candidates is twice as slow: over both the median is half as long again."""
    slow = side("slow", slower=lambda _: 2.0)
    (answer,) = watched([side("cand"), slow]).answers
    assert ("holds", True) == (answer.state, 0.2 < answer.change < 0.6)


def test_a_baseline_that_had_ended_is_taken_whole() -> None:
    """Yesterday's run of the same engine; the note says so."""
    old = side("base", start="2026-11-29T12:00:00Z")
    assert 0 == watched(side("cand"), baseline=old).exit_code
    found = watched(side("cand", slower=lambda _: 1.4), baseline=old)
    assert 1 == found.exit_code
    assert (
        "the baseline had ended before this window: its whole run is compared with" in found.notes
    )
    assert "whole run" == watched_json(found)["window"]["baseline"]


def test_other_blocks_are_the_change_and_no_obstacle() -> None:
    """What the gate declares may differ."""
    found = watched(side("cand", cache__num_gpu_blocks=80, cache__capacity_blocks=79))
    assert 0 == found.exit_code


# --- nobody can tell ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"minutes": 2}, "no_whole_window"),
        ({"each": 0}, "no_requests"),
        ({"each": 5}, "too_few_eligible"),
        ({"ttft_us": lambda n: 200_000 if n % 7 else None}, "no_data"),
        ({"engine__version": "0.17.1"}, "not_comparable"),
        ({"device__kind": None}, "unknown_field"),
    ],
)
def test_what_cannot_be_told_is_exit_3(changes: dict[str, Any], reason: str) -> None:
    """Too young, no request, too few, no value, and another engine; never 0."""
    minutes = changes.get("minutes", MINUTES)
    found = watched(side("cand", **changes), now_us=START_US + minutes * WINDOW_US)
    assert 3 == found.exit_code
    assert found.sentence.startswith("cannot tell: ")
    reasons = {a.reason for a in found.answers} | {watched_json(found)["reason"]}
    assert reason in reasons


def test_an_old_record_says_nothing_about_now() -> None:
    """A collector that died an hour ago; whoever wants it may allow more."""
    later = NOW_US + 3600 * SECOND
    found = watched(side("cand"), now_us=later)
    assert (3, "stale") == (found.exit_code, watched_json(found)["reason"])
    assert "3605 s old: is anybody still collecting?" in found.sentence
    assert 0 == watched(side("cand"), now_us=later, most_age_us=2 * 3600 * SECOND).exit_code
    ahead = watched(side("cand"), now_us=NOW_US - 3600 * SECOND)
    assert "ahead of this clock" in ahead.sentence


def test_a_rule_about_the_candidate_alone_holds_without_a_baseline_to_compare() -> None:
    """Another engine on the other side keeps sides apart, and no failed request secret."""
    bad = side("cand", engine__version="0.17.1", status=lambda n: "error" if n % 2 else "ok")
    found = watched(bad, "ttft failures")
    assert 1 == found.exit_code
    states = {a.limit_name: (a.state, a.reason) for a in found.answers}
    assert ("cannot tell", "not_comparable") == states["max_regression"]
    assert "holds" == states["max_failed_fraction"][0]


def test_a_baseline_that_began_within_the_window_is_not_compared_with() -> None:
    """It is live, and does not reach back."""
    young = side("base", 2, start="2026-11-30T12:03:00Z")
    found = watched(side("cand"), "ttft", baseline=young)
    assert (3, "no_whole_window") == (found.exit_code, found.answers[0].reason)


def test_who_has_not_ended_is_in_no_slice_yet() -> None:
    """A rule over a slice cannot be told while requests of unknown slice run."""
    sliced = gate_of(predicates=(TTFT | {"slice": "some"}, *PREDICATES[1:]))
    assert 0 == watched(side("cand"), gate=sliced).exit_code
    found = watched(with_open(side("cand"), [250.0]), gate=sliced)
    assert (3, "no_data") == (found.exit_code, found.answers[0].reason)
    slow = with_open(side("cand", slower=lambda _: 1.4), [250.0])
    assert 1 == watched(slow, gate=sliced).exit_code
    hung = with_open(side("base"), [250.0], "b")
    assert 3 == watched(side("cand", slower=lambda _: 1.4), gate=sliced, baseline=hung).exit_code


def test_a_quantile_at_the_follow_up_is_not_compared_with() -> None:
    """A baseline cut off there may be worse than it looks."""
    stuck = {"ttft_us": lambda _: 60 * SECOND}
    found = watched(side("cand", **stuck), baseline=side("base", **stuck))
    assert (3, "censored") == (found.exit_code, found.answers[0].reason)


# --- a run that grows --------------------------------------------------------------------------


def grown(writer: RunWriter, run: Run, since: int) -> None:
    """Write what of the run arrived from minute `since` on, and the manifest behind it."""
    part = run.requests.filter(pl.col("arrival_us") >= since * WINDOW_US)
    writer.write_part("measured_requests", part)
    writer.write_manifest(dict(run.manifest))


@pytest.fixture(name="runs")
def _runs(tmp_path: Path) -> Path:
    """Two runs being collected, three minutes old, and a gate."""
    for name in ("base", "cand"):
        run = side(name, 3)
        with RunWriter.create(tmp_path / name, dict(run.manifest)) as writer:
            grown(writer, run, 0)
    (tmp_path / "gate.toml").write_text(toml(raw_gate("ttft failures")))
    return tmp_path


def toml(raw: Row) -> str:
    """A gate as TOML; JSON's texts, numbers and lists are TOML's."""
    lines = [f'schema = "{raw["schema"]}"', f"name = {json.dumps(raw['name'])}"]
    for name in ("change", "design"):
        lines += [f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in raw[name].items())]
    for predicate in raw["predicate"]:
        lines += ["[[predicate]]", *(f"{k} = {_inline(v)}" for k, v in predicate.items())]
    rollback = raw.get("rollback")
    if rollback:
        lines += ["[rollback]", f'to = "{rollback["to"]}"', f"window_us = {rollback['window_us']}"]
        for rule in rollback["when"]:
            lines += ["[[rollback.when]]", *(f"{k} = {_inline(v)}" for k, v in rule.items())]
    return "\n".join(lines) + "\n"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {json.dumps(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


def command(place: Path, *more: str) -> list[str]:
    """The command on those runs; their clock is another day's, which is allowed here."""
    return [
        *(sys.executable, "-m", "preempt", "gate", "watch", str(place / "gate.toml")),
        *("--baseline", str(place / "base"), "--candidate", str(place / "cand")),
        *("--max-age", ALWAYS),
        *more,
    ]


def run_command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """One look."""
    environment = os.environ | {"NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(
        arguments, capture_output=True, text=True, check=False, timeout=120, env=environment
    )


def test_a_run_that_grows_is_looked_at_anew(runs: Path) -> None:
    """Quiet at three minutes, slow at six; each look reads what is there by then."""
    assert 0 == run_command(*command(runs)).returncode
    for name, factor in (("base", 1.0), ("cand", 1.5)):
        run = side(name, 6, slower=lambda k, f=factor: f if k >= 3 else 1.0)
        with RunWriter.resume(runs / name) as writer:
            grown(writer, run, 3)
    again = run_command(*command(runs, "--json"))
    record = json.loads(again.stdout)
    assert (1, "revert") == (again.returncode, record["action"])
    assert "preemption-gate-watch/1" == record["schema"]
    assert ["holds"] == [r["state"] for r in record["rules"] if r["predicate"] == "ttft"]


def test_every_goes_on_until_a_rule_holds(runs: Path) -> None:
    """A line of JSON for each look; the run grows in between, and the last line has the action."""
    with watching(runs, "100ms") as process:
        first = json.loads(process.stdout.readline())
        assert (0, None) == (first["exit_code"], first["action"])
        for name, factor in (("base", 1.0), ("cand", 1.5)):
            run = side(name, 6, slower=lambda k, f=factor: f if k >= 3 else 1.0)
            with RunWriter.resume(runs / name) as writer:
                grown(writer, run, 3)
        lines = process.stdout.read().splitlines()
        assert 1 == process.wait(60)
        assert "revert" == json.loads(lines[-1])["action"]
        assert {0, 1, 3} >= {json.loads(line)["exit_code"] for line in lines}


def test_a_run_that_is_away_for_a_moment_ends_no_watch(runs: Path) -> None:
    """What was read once and cannot be now is said, and tried again."""
    with watching(runs, "50ms") as process:
        assert process.stdout.readline()
        (runs / "cand").rename(runs / "away")
        assert process.stderr.readline().startswith("cannot tell: ")
        (runs / "away").rename(runs / "cand")
        after = [process.stdout.readline() for _ in range(3)]
        assert '"exit_code":0' in after[-1]
        assert process.poll() is None


@contextmanager
def watching(runs: Path, every: str) -> Iterator[Any]:
    """The command that looks again and again; ended at last, with its pipes."""
    with subprocess.Popen(
        command(runs, "--every", every, "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


# --- the command -------------------------------------------------------------------------------


def test_the_command_says_what_it_is(runs: Path) -> None:
    """Text: the sentence, that it is a trigger, the window, each rule."""
    found = run_command(*command(runs))
    lines = found.stdout.splitlines()
    assert (0, "no rule holds in this window (4 looked at)") == (found.returncode, lines[0])
    assert lines[1].startswith("a trigger, not a verdict: one window, no statistics over pairs;")
    assert "arrivals from 2026-11-30T12:00:50Z to 2026-11-30T12:02:50Z" in lines[1]
    assert lines[2].startswith("  does not hold: ttft: p50 of ttft_us ")
    assert "" == run_command(*command(runs, "--quiet")).stdout


def test_the_command_cannot_tell_from_old_records(runs: Path) -> None:
    """Without --max-age, a run of another day is stale."""
    words = [w for w in command(runs) if w not in ("--max-age", ALWAYS)]
    found = run_command(*words)
    assert 3 == found.returncode
    assert found.stdout.startswith("cannot tell: the newest record of a request is ")


@pytest.mark.parametrize(
    "more", [["--every", "soon"], ["--max-age", "-1s"], ["--candidate", "nowhere"]]
)
def test_bad_input_is_exit_2(runs: Path, more: list[str]) -> None:
    """One line, and no answer."""
    found = run_command(*command(runs, *more))
    assert (2, "") == (found.returncode, found.stdout)
    assert 1 == len(found.stderr.splitlines())


def test_a_gate_without_rules_is_bad_input(runs: Path) -> None:
    """There is nothing to watch for."""
    raw = {k: v for k, v in raw_gate().items() if k != "rollback"}
    (runs / "gate.toml").write_text(toml(raw))
    found = run_command(*command(runs))
    assert 2 == found.returncode
    assert "gate canary: rollback is required to watch a run" in found.stderr


def test_a_store_is_read_as_well(runs: Path) -> None:
    """RUN is then a run_id."""
    with connect(runs / "s.duckdb") as db:
        for name in ("base", "cand"):
            load_run(db, read_run(runs / name))
    words = ["--db", str(runs / "s.duckdb"), "--baseline", "base", "--candidate", "cand"]
    start = command(runs)[:5]
    found = run_command(*start, str(runs / "gate.toml"), *words, "--max-age", ALWAYS)
    assert 0 == found.returncode
    missing = run_command(*start, str(runs / "gate.toml"), *words[:-1], "gone")
    assert (2, "") == (missing.returncode, missing.stdout)


def test_a_candidate_without_a_start_is_bad_input() -> None:
    """No clock places its window."""
    with pytest.raises(InputError, match="start must be known"):
        watched(side("cand", start=None))
    with pytest.raises(InputError, match="must be runs of their own"):
        watched(side("base"))


def test_hostile_names_stay_text(runs: Path) -> None:
    """A check called [red] or with a line's end changes nothing but its own name."""
    name = "[red]\u202e<script>"
    predicates = (TTFT | {"id": name}, *PREDICATES[1:])
    raw = raw_gate("failures", predicates=predicates)
    raw["rollback"]["when"].insert(0, RULES["ttft"] | {"predicate": name})
    (runs / "gate.toml").write_text(toml(raw))
    run = side("\u202e[bold]", 3, slower=lambda _: 2.0)
    with RunWriter.create(runs / "odd", dict(run.manifest)) as writer:
        grown(writer, run, 0)
    words = command(runs)
    words[words.index(str(runs / "cand"))] = str(runs / "odd")
    found = run_command(*words)
    assert 1 == found.returncode
    assert "\u202e" not in found.stdout
    assert "[red]" in found.stdout
    assert "<script>" in found.stdout
    assert 1 == json.loads(run_command(*words, "--json").stdout)["exit_code"]
