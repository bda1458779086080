"""From what was seen to what it means: findings, facts, a code, and the next steps. Pure."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from collectors.doctor.answer import BESIDE_VLLM, meaning, remedy
from collectors.doctor.facts import SCHEMA, facts_of
from collectors.doctor.finding import (
    FINE,
    MISSING,
    NO_LOOK,
    Diagnosis,
    Finding,
    Level,
    listed,
    plural,
)
from collectors.doctor.look import Looked
from collectors.doctor.now import Now, now_of
from collectors.doctor.recorder import recorder_findings
from collectors.doctor.seen import Asked, Seen
from collectors.doctor.spooled import Spooled
from collectors.features import not_modelled
from collectors.scrape.facts import cache_facts
from collectors.scrape.reading import Reading
from replay.strict import printable

_CACHE = "cache_config_info"
_MOST_MODELS = 4
_MOST_DIGITS = 10
_MOST_ENGINES = 8
_GIB = 2**30
_USUAL_SPOOL = "/var/spool/preemption"


def diagnose(looked: Looked, spool: Spooled | None, asked: Asked) -> Diagnosis:
    """What two looks at a server and one at a spool come to."""
    page = looked.first.canonical
    if page is None:
        return _without_page(looked, asked)
    seen = Seen(looked, page, spool, asked, _now(looked))
    infos = page.info.get(_CACHE, ())
    for info in infos:
        facts, notes = cache_facts([info], len(infos))
        engine = info.get("engine", "")
        index = int(engine) if engine.isdecimal() and len(engine) < _MOST_DIGITS else None
        seen.capacity.append({"engine": index, **facts})
        seen.notes += [note for note in notes if note not in seen.notes]
    latest = looked.second.canonical if looked.second else None
    samples = (latest or page).samples
    seen.not_exact = not_modelled(seen.header, page.info, list(page.names.values()), samples)
    findings = (
        *_of_page(seen),
        *_of_metrics(seen),
        *_of_capacity(seen),
        *_of_now(seen),
        *recorder_findings(spool, seen.served, asked.installed),
        *_of_options(seen),
        *(Finding(Level.WARN, "not exact", sentence) for sentence in seen.not_exact),
    )
    code = MISSING if any(f.level is Level.MISS for f in findings) else FINE
    return Diagnosis(code, _headline(seen), facts_of(seen), findings, tuple(_steps(seen)))


def _without_page(looked: Looked, asked: Asked) -> Diagnosis:
    """There are no metrics: nobody can be reached, somebody else answers, or vLLM hides them."""
    entry, version = looked.first.entry, looked.probed.version
    said, outcome = meaning(entry), entry.outcome
    facts = {
        "schema": SCHEMA,
        "url": looked.url,
        "outcome": str(outcome),
        "status": entry.status,
        "version": version,
        "model": looked.probed.model,
    }
    if version is None or outcome not in BESIDE_VLLM:
        return Diagnosis(NO_LOOK, f"{looked.url}: {said}", facts)
    why = remedy(outcome)
    finding = Finding(Level.MISS, "page", said + (f"; {why}" if why else ""))
    again = ("# when that is mended, look again", _doctor(looked.url, asked, _quoted(asked.spool)))
    return Diagnosis(MISSING, f"vLLM {version} at {looked.url}", facts, (finding,), again)


def _now(looked: Looked) -> Now | None:
    first, second = looked.first, looked.second
    if first.canonical is None or second is None or second.canonical is None:
        return None
    elapsed_ns = second.entry.monotonic_ns - first.entry.monotonic_ns
    return now_of(first.canonical, second.canonical, elapsed_ns / 1e9)


def _headline(seen: Seen) -> str:
    version = seen.looked.probed.version or "of unknown release"
    models = listed(seen.models, _MOST_MODELS) or "unknown"
    engines = plural(len(seen.engines), "engine") if seen.engines else "engines unnamed"
    return f"vLLM {version} at {seen.looked.url}: model {models}, {engines}"


def _of_page(seen: Seen) -> Iterator[Finding]:
    first: Reading = seen.looked.first
    kind = "OpenMetrics" if "openmetrics" in (first.entry.content_type or "") else "Prometheus text"
    size_kb, duration_ms = len(first.entry.page or "") / 1000, first.entry.duration_us / 1000
    text = (
        f"{kind}, {plural(len(seen.page.samples), 'sample')}, {size_kb:.0f} kB"
        f" in {duration_ms:.0f} ms"
    )
    yield Finding(Level.OK, "page", text)
    if first.problems:
        kinds = listed(sorted(first.problems))
        text = f"{plural(sum(first.problems.values()), 'fault')} on it, the rest was read: {kinds}"
        yield Finding(Level.WARN, "page", text)
    version = seen.looked.probed.version
    if version is None:
        text = "unknown, /version does not say: a replay will want --config"
        yield Finding(Level.WARN, "release", text)
    elif version.partition("+")[0] in seen.asked.checked:
        yield Finding(Level.OK, "release", f"{version}: replays follow its scheduler exactly")
    else:
        text = f"{version} was not checked: preempt replay takes --assume-rule and says so"
        yield Finding(Level.NOTE, "release", text)


def _of_metrics(seen: Seen) -> Iterator[Finding]:
    page = seen.page
    yield Finding(Level.OK, "metrics", f"{len(seen.recognised)} recognised")
    if page.unmatched:
        names = listed(sorted(page.unmatched))
        text = f"{len(page.unmatched)} unknown, kept under their own names: {names}"
        yield Finding(Level.NOTE, "metrics", text)
    missing = seen.missing
    if missing:
        text = f"{len(missing)} that are needed are not there: {', '.join(missing)}"
        yield Finding(Level.MISS, "metrics", text)
    if absent := [name for name in seen.absent if name not in missing]:
        text = f"{len(absent)} of this release not there (yet): {listed(absent)}"
        yield Finding(Level.NOTE, "metrics", text)


def _of_capacity(seen: Seen) -> Iterator[Finding]:
    if not seen.capacity:
        text = "unknown: the page has no cache_config_info, which says how many blocks there are"
        yield Finding(Level.MISS, "capacity", text)
    for one in seen.capacity[:_MOST_ENGINES]:
        who = f"engine {one['engine']}: " if len(seen.capacity) > 1 else ""
        blocks, size = one["capacity_blocks"], one["block_size"]
        if blocks is None or size is None:
            yield Finding(Level.MISS, "capacity", f"{who}unknown: the labels do not say")
            continue
        overridden = " (overridden)" if one["num_gpu_blocks_overridden"] else ""
        text = (
            f"{who}{plural(blocks, 'block')} of {plural(size, 'token')} ="
            f" {plural(blocks * size, 'token')}{overridden}, beside vLLM's null block"
        )
        yield Finding(Level.OK, "capacity", text)
        yield Finding(Level.OK, "cache", who + _cache(one))
    if len(seen.capacity) > _MOST_ENGINES:
        more = len(seen.capacity) - _MOST_ENGINES
        yield Finding(Level.NOTE, "capacity", f"{plural(more, 'more engine')}: --json has all")
    yield from (Finding(Level.NOTE, "capacity", note) for note in seen.notes)


def _cache(one: Mapping[str, Any]) -> str:
    memory, per_token = one["kv_cache_memory_bytes"], one["kv_bytes_per_token"]
    switch = {True: "on", False: "off", None: "unknown"}[one["enable_prefix_caching"]]
    parts = [f"prefix caching {switch}", f"dtype {one['dtype'] or 'unknown'}"]
    if memory is not None:
        parts.append(f"{memory / _GIB:.2f} GiB")
    parts.append("bytes a token unknown" if per_token is None else f"{per_token:,} bytes a token")
    return ", ".join(parts)


def _of_now(seen: Seen) -> Iterator[Finding]:
    now = seen.now
    if now is None:
        outcome = seen.looked.second.entry.outcome if seen.looked.second else "none"
        yield Finding(Level.WARN, "now", f"unknown, the second look came to: {outcome}")
        return
    known = {"running": now.running, "waiting": now.waiting}
    load = ", ".join(f"{what} {_number(value)}" for what, value in known.items())
    yield Finding(Level.OK, "now", f"{load}, KV cache {_usage(now)}")
    if now.between is not None:
        rate = f" ({now.between / now.elapsed_s:.1f} a second)" if now.elapsed_s > 0 else ""
        level = Level.WARN if now.between else Level.OK
        text = (
            f"{_number(now.between)} preemptions in {now.elapsed_s:.1f} s{rate},"
            f" {_number(now.preemptions)} since the server's start"
        )
        yield Finding(level, "now", text)
    if now.fell:
        why = "the server restarted" if now.other_process else "a restart"
        text = f"counters fell between two looks: {why}, or several workers behind one address"
        yield Finding(Level.WARN, "now", text)
    if now.stale:
        text = (
            f"no token in {now.elapsed_s:.1f} s while requests are shown as running: the gauges"
            " may be stale, or a step is slow"
        )
        yield Finding(Level.WARN, "now", text)


def _usage(now: Now) -> str:
    if not now.usage:
        return "unknown"
    shown = [f"{value:.1%}" for value in now.usage.values()]
    if len(shown) == 1:
        return f"{shown[0]} full"
    by_engine = zip(now.usage, shown, strict=True)
    return "full: " + listed([f"engine {e} {text}" for e, text in by_engine], _MOST_ENGINES)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"


def _of_options(seen: Seen) -> Iterator[Finding]:
    header = seen.header
    if header is None:
        text = "unknown: only the recorder sees the engine's options"
        yield Finding(Level.NOTE, "scheduler", text)
        return
    told = header.get("scheduler")
    known = told if isinstance(told, dict) else {}
    text = ", ".join(f"{key} {value}" for key, value in known.items() if value is not None)
    yield Finding(Level.OK, "scheduler", text or "the recorder does not say")


def _steps(seen: Seen) -> Iterator[str]:
    asked, now, active = seen.asked, seen.now, seen.header is not None
    url, options = shlex.quote(seen.looked.url), _options(asked)
    spool = f" --spool {_spool(seen)}" if active else ""
    if not active:
        where = _spool(seen) or _USUAL_SPOOL
        yield "# the recorder, from a checkout of this into vLLM's environment"
        yield "pip install ./collectors/recorder"
        yield f"export PREEMPTION_LEDGER_SPOOL={where}"
        yield "# restart vLLM with that variable, and look again"
        yield _doctor(seen.looked.url, asked, where)
    if now is not None and not now.preemptions and not now.running:
        keyed = options.replace(" --bearer-token-file ", " --api-key-file ")
        drive = f"preempt collect drive workload.jsonl --url {url}{keyed}"
        yield "# nothing runs: wait for traffic, or offer some, of a public trace for example"
        yield "preempt import azure AzureLLMInferenceTrace_conv.csv --count 500 -o workload.jsonl"
        yield f"{drive} --dry-run"
        yield f"{drive}{spool} --out my-run"
    else:
        yield "# ten minutes of evidence, and a report of it"
        yield f"preempt collect metrics --url {url}{options}{spool} --duration 10m --out my-run"
    if active:
        yield "preempt replay my-run --out my-ledger && preempt fidelity my-ledger my-run"
    yield "preempt report my-run --out my-report"


def _doctor(url: str, asked: Asked, spool: str | None) -> str:
    """This very command once more."""
    where = "" if spool is None else f" --spool {spool}"
    return f"preempt doctor --url {shlex.quote(url)}{_options(asked)}{where}"


def _options(asked: Asked) -> str:
    return "".join(f" {option}" for option in asked.options)


def _spool(seen: Seen) -> str | None:
    return _quoted(seen.spool.directory if seen.spool else seen.asked.spool)


def _quoted(path: str | None) -> str | None:
    return None if path is None else shlex.quote(printable(path, 1000))
