"""What a manifest says of a packed spool: the engine, how recording went, and what is not exact."""

from collections import Counter
from collections.abc import Iterable
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from collectors.manifest import value_at
from collectors.pack.counter import disagreement
from collectors.pack.facts import (
    ARRIVAL_CLOCK,
    ENGINE_CLOCK,
    completed,
    facts_of,
    merged,
    not_modelled,
)
from collectors.pack.packer import Packer
from collectors.pack.rows import FEATURES, prefix_block_tokens
from collectors.pack.session import Session
from collectors.writer import configuration_sha256
from replay.strict import MAX_SAFE_INTEGER

MOST_NOTES = 100
_MOST_NAMED = 20
# What was counted on the way, and how a note says it.
_NOTES = {
    "renamed": "requests came under an id that was taken, or was no id; their rows' ids end in ~",
    "events_of_unknown_requests": "events of requests whose beginning was lost have no row",
    "records": "records were of kinds this release does not know",
    "internal_errors": "errors inside the recorder",
    "unsafe_numbers": "numbers of clients were too large to keep, and are null",
    "negative_durations": "durations are null because the engine's two clocks disagree",
    "requests_before": "requests came before the run began and are not in it",
    "requests_after": "requests came after the run ended and are not in it",
}
# What makes a replay of the run's own arrivals something else than what the engine did.
_INEXACT = {
    "hits_on_generated_text": (
        "requests found blocks in the prefix cache that no earlier prompt had (text the engine"
        " generated itself): a replay counts them as their own"
    ),
    "events_of_unknown_requests": "events are of requests whose beginning was lost",
    "cut_short": (
        "requests were aborted or failed: a replay ends them with their last token, or leaves them"
        " out where they had none"
    ),
    "in_flight_at_start": "requests were in the engine when the run began",
    "forgotten_prefixes": (
        "prefix blocks were forgotten by the recorder: if they came again, they count as new text"
    ),
    "feature:n_greater_than_1": "requests are samples of one prompt (n > 1)",
    "feature:prompt_embeds": "requests brought embeddings instead of tokens",
    "feature:pooling": "requests were for pooling and generated nothing",
    "feature:streaming_input": "requests got more input while they ran",
    "feature:other": "requests used something that this release does not know",
}
_OPEN = "requests had not ended when this was written: a replay knows nothing of them"
_RESTART = "requests were cut off by a restart, and a replay goes on with them"
_COUNTED = frozenset({*_INEXACT.values(), _OPEN, _RESTART})
_NO_END = (
    "the recorder's end is missing (the engine was killed, or still ran): its last events may be"
    " missing"
)
_LOST = "a part of what the engine did was lost"
_CACHED = "the prefix cache was filled before the run began"
_CLOCK_SET = (
    "the wall clock was set while the run went on: the priority scheduler compared arrival times as"
    " it showed them, a replay compares them as if it had not been"
)


def manifest_of(packer: Packer, run: Path | None = None) -> dict[str, Any]:
    """The run's manifest with everything that the packed sessions tell; `run` has its samples."""
    manifest = dict(packer.writer.manifest)
    place = str(packer.writer.path / "manifest.json")
    sessions = list(packer.sessions.values())
    for session in sessions:
        manifest = completed(manifest, facts_of(session.header, place), place)
    manifest = _with_engines(manifest, sessions)
    counts = counts_of(sessions)
    manifest["recorder"] = _recorder(packer, counts)
    if differs := disagreement(run or packer.writer.path, manifest, sessions):
        manifest["recorder"]["notes"].append(differs)
    clocks = {"arrival": ARRIVAL_CLOCK, "engine": ENGINE_CLOCK}
    for name, words in clocks.items():
        if manifest["clocks"][name] is None:
            manifest["clocks"] = {**manifest["clocks"], name: words}
    manifest["preemptions"] = counts["preemptions"]
    if manifest["drain_end_us"] is None:
        last = max((s.rows.known.last_us for s in sessions), default=-1)
        manifest["drain_end_us"] = last if last >= 0 else None
    if value_at(manifest, "cache.enable_prefix_caching") and any(
        s.rows.known.next_prefix_id for s in sessions
    ):
        size = prefix_block_tokens(sessions[0].header)
        manifest["workload"] = {**manifest["workload"], "prefix_block_tokens": size}
    found = merged(of_others(manifest.get("not_modelled")), _features(sessions))
    inexact = _inexact(packer, counts)
    manifest["not_modelled"] = merged(found, inexact) if inexact else found
    return manifest


def _with_engines(manifest: dict[str, Any], sessions: list[Session]) -> dict[str, Any]:
    """How many engines there are, where vLLM made each of them believe it is alone."""
    told = (value_at(session.header.facts, "parallel.data") for session in sessions)
    engines = {session.key.engine for session in sessions}
    if len(engines) <= 1 or any(size is not None for size in told):
        return manifest
    counted = {**manifest, "parallel": {**manifest["parallel"], "data": len(engines)}}
    return {**counted, "configuration_sha256": configuration_sha256(counted)}


def counts_of(sessions: Iterable[Session]) -> Counter[str]:
    """What was counted, over all sessions; what `X` records and missing parts tell is with it."""
    total: Counter[str] = Counter()
    for session in sessions:
        total.update(session.rows.known.counts)
        total["dropped"] += session.rows.known.dropped
        total["lost_parts"] += session.lost_parts
    return total


def _recorder(packer: Packer, counts: Counter[str]) -> dict[str, Any]:
    sessions = list(packer.sessions.values())
    headers = [session.header.facts for session in sessions]
    sources: dict[str, str] = {}
    for facts in headers:
        told = facts.get("sources")
        for name, text in told.items() if isinstance(told, dict) else ():
            if isinstance(text, str) and 0 < len(name) <= 128 and len(text) <= 4096:  # noqa: PLR2004
                sources.setdefault(name, text)
    version = next((v for f in headers if _is_name(v := f.get("recorder_version"))), None)
    ended = all(s.rows.known.ended and not s.lost_parts for s in sessions) and not counts["gave_up"]
    elsewhere = packer.headerless or packer.waiting or packer.gone_on or packer.began_after
    spoilt = bool(packer.unread) or any(session.damage for session in sessions)
    return {
        "version": version,
        "engines": sorted({session.key.engine for session in sessions}),
        "dropped_records": min(counts["dropped"], MAX_SAFE_INTEGER),
        "complete": bool(sessions) and ended and not (elsewhere or spoilt or _overlaps(packer)),
        "sources": dict(islice(sources.items(), 1000)) or None,
        "notes": _notes(packer, counts),
    }


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 128 and value.isprintable()  # noqa: PLR2004


def of_others(known: list[str] | None) -> list[str] | None:
    """What others found; what this module found before is found anew, with today's numbers."""
    if known is None:
        return None
    plain = {_NO_END, _LOST, _CACHED, _CLOCK_SET}
    return [one for one in known if one not in plain and one.partition(" ")[2] not in _COUNTED]


def _notes(packer: Packer, counts: Counter[str]) -> list[str]:
    notes = [f"{counts[name]} {words}" for name, words in _NOTES.items() if counts[name]]
    if lost := counts["lost_parts"]:
        notes.append(f"{lost} parts of the spool are missing")
    if counts["gave_up"]:
        notes.append("the recorder gave up before the engine ended")
    if packer.headerless:
        notes.append(f"{len(packer.headerless)} sessions left nothing that could be read")
    notes += _spoilt(packer)
    notes += _elsewhere(packer)
    for engine, lives in _lives(packer).items():
        if len(lives) > 1:
            notes.append(
                f"engine {engine} was started {len(lives)} times; its steps and seq go on counting"
            )
    for session in packer.sessions.values():
        for at_us, by_ns in session.rows.clock.steps:
            notes.append(
                f"engine {session.key.engine}: the wall clock was set by {by_ns / 1e9:+.3f} s at or"
                f" before {at_us} us; times of this run go on as if it had not been"
            )
    return notes[:MOST_NOTES]


def _spoilt(packer: Packer) -> list[str]:
    """What of the spool is damaged or nobody's, and what to do about it."""
    notes = [
        f"{session.damage}; its session ends there. The file is left as it is: look at it, then"
        " move it out of the spool"
        for session in packer.sessions.values()
        if session.damage
    ]
    notes += [
        f"{why}; its session is not in the run. Make it readable, or move it out of the spool"
        for key, why in packer.unread.items()
        if key not in packer.sessions
    ]
    notes += [
        f"{why}; its session goes on in the run once that can be read"
        for key, why in packer.unread.items()
        if key in packer.sessions
    ]
    if names := packer.strangers:
        more = len(names) - 1
        others = f" and {more} more" if more else ""
        notes.append(f"no part of a spool, and left alone: {names[0]!a}{others}")
    return notes


def _elsewhere(packer: Packer) -> list[str]:
    """What the spool has, or will have, that the run has not."""
    notes = []
    if still := _still_open(packer):
        notes.append(
            f"{still} requests had not ended when this was written: the next collector of this run"
            " goes on with them, and so does `preempt collect pack` to its end"
        )
    if after := packer.began_after:
        notes.append(
            f"{len(after)} sessions of an engine with another configuration began after the run"
            " did and are not in it"
        )
    if packer.waiting:
        notes.append(
            f"{len(packer.waiting)} sessions are not in the run because another one of their"
            " engine number still writes: if that lasts, two servers share the spool directory"
        )
    if packer.gone_on:
        notes.append(
            f"{len(packer.gone_on)} sessions went on after they were taken to be over; what they"
            " wrote since is not in the run"
        )
    if engines := _overlaps(packer):
        numbers = ", ".join(map(str, engines[:_MOST_NAMED])) + ", …" * (len(engines) > _MOST_NAMED)
        notes.append(
            f"sessions of engine {numbers} overlap: two servers shared the spool directory"
        )
    return notes


def _still_open(packer: Packer) -> int:
    return sum(
        one.kept is not False for s in packer.sessions.values() for one in s.rows.open.values()
    )


def _overlaps(packer: Packer) -> list[int]:
    """Engines of which a session began before the one in front of it had ended."""
    return [
        engine
        for engine, lives in _lives(packer).items()
        if any(
            packer.start_us(later.key) < one.rows.known.last_us for one, later in pairwise(lives)
        )
    ]


def _features(sessions: list[Session]) -> list[str] | None:
    found: list[str] | None = None
    for session in sessions:
        counts = session.rows.known.counts
        used = [name for name in FEATURES if counts[f"feature:{name}"]]
        found = merged(found, not_modelled(session.header, used))
    return found


def _inexact(packer: Packer, counts: Counter[str]) -> list[str]:
    found = [f"{counts[name]} {words}" for name, words in _INEXACT.items() if counts[name]]
    sessions = packer.sessions.values()
    if (
        counts["lost_parts"]
        or counts["gave_up"]
        or packer.unread
        or any(s.damage for s in sessions)
    ):
        found.append(_LOST)
    if any(s.rows.known.counts["censored"] and not s.rows.known.ended for s in sessions):
        found.append(_NO_END)
    if still := _still_open(packer):
        found.append(f"{still} {_OPEN}")
    cut = sum(
        session.rows.known.counts["censored"]
        for lives in _lives(packer).values()
        for session in lives[:-1]
    )
    if cut:
        found.append(f"{cut} {_RESTART}")
    caching = any(
        value_at(session.header.facts, "cache.enable_prefix_caching")
        for session in packer.sessions.values()
    )
    if caching and counts["requests_before"]:
        found.append(_CACHED)
    if any(
        session.rows.clock.steps
        and value_at(session.header.facts, "scheduler.scheduling_policy") == "priority"
        for session in sessions
    ):
        found.append(_CLOCK_SET)
    return found


def _lives(packer: Packer) -> dict[int, list[Session]]:
    lives: dict[int, list[Session]] = {}
    for session in packer.sessions.values():
        lives.setdefault(session.key.engine, []).append(session)
    return lives
