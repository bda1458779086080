"""Is the recorder inside this engine alive, and is the spool this engine's? Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from collectors.doctor.finding import Finding, Level, plural
from collectors.doctor.spooled import Spooled, State

_TOPIC = "recorder"
_START_TOLERANCE_NS = 5_000_000_000


@dataclass(frozen=True)
class Served:
    """What the server says of itself; None is unknown."""

    version: str | None
    models: frozenset[str]
    blocks: frozenset[int]
    engines: frozenset[int]
    process_start_s: float | None


def is_active(spool: Spooled | None, served: Served) -> bool:
    """Whether this engine records into the directory now."""
    return (
        spool is not None
        and spool.state is State.RECORDING
        and not spool.off
        and not differences(spool, served)
    )


def recorder_findings(
    spool: Spooled | None, served: Served, installed: str | None
) -> Iterator[Finding]:
    """Findings on the recorder; `installed` is its version in this Python, if it is there."""
    if spool is None:
        yield Finding(Level.NOTE, _TOPIC, _unasked(installed))
        return
    state, where = spool.state, spool.directory
    match state:
        case State.UNREADABLE:
            yield Finding(Level.MISS, _TOPIC, f"{spool.problem}")
        case State.NOTHING:
            text = f"{where} has no spool: the recorder is not installed beside vLLM, or inert"
            yield Finding(Level.MISS, _TOPIC, text)
        case State.ENDED:
            text = f"{where} has only engines that ended: the one that runs does not record there"
            yield Finding(Level.MISS, _TOPIC, text)
        case State.SILENT:
            text = (
                f"{where} was last written {_ago(spool.age_s)} ago, and its engine did not end"
                " properly: it was killed, or cannot write"
            )
            yield Finding(Level.MISS, _TOPIC, text)
        case State.RECORDING:
            yield from _recording(spool, served)


def _recording(spool: Spooled, served: Served) -> Iterator[Finding]:
    if different := differences(spool, served):
        text = f"{spool.directory} is another engine's: {'; '.join(different)}"
        yield Finding(Level.MISS, _TOPIC, text)
        return
    version = _text(spool.header, "recorder_version") or "of unknown version"
    engines = f"{plural(len(spool.engines), 'engine')}, last write {_ago(spool.age_s)} ago"
    newest = f"{plural(spool.requests, 'request')}, {plural(spool.preempts, 'preemption')}"
    text = f"{version} is recording {engines}; {newest} in its newest part"
    yield Finding(Level.OK, _TOPIC, text)
    if spool.dropped:
        text = f"{plural(spool.dropped, 'record')} dropped: a replay of this is not exact"
        yield Finding(Level.WARN, _TOPIC, text)
    if spool.errors:
        text = f"{plural(spool.errors, 'error')} inside it; vLLM's log has the first"
        yield Finding(Level.WARN, _TOPIC, text)
    if spool.off:
        yield Finding(Level.MISS, _TOPIC, "it switched itself off; vLLM's log says why")
    if absent := sorted(served.engines - set(spool.engines)):
        text = f"engines {', '.join(map(str, absent))} of this server do not record there"
        yield Finding(Level.WARN, _TOPIC, text)


def differences(spool: Spooled, served: Served) -> list[str]:
    """What tells that the spool is not this server's; what either does not know tells nothing."""
    header, found = spool.header or {}, []
    version = _text(header, "vllm_version")
    if version and served.version and _release(version) != _release(served.version):
        found.append(f"vLLM {version} there, {served.version} here")
    model = _text(header, "model")
    if model and served.models and model not in served.models:
        found.append(f"model {model} there, {', '.join(sorted(served.models))} here")
    cache = header.get("cache")
    blocks = cache.get("num_gpu_blocks") if isinstance(cache, dict) else None
    if type(blocks) is int and served.blocks and blocks not in served.blocks:
        here = ", ".join(map(str, sorted(served.blocks)))
        found.append(f"{blocks} blocks there, {here} here")
    began, started_s = header.get("unix_ns"), served.process_start_s
    if (
        type(began) is int
        and started_s is not None
        and began < started_s * 1e9 - _START_TOLERANCE_NS
    ):
        found.append("that engine began before this server did")
    return found


def _unasked(installed: str | None) -> str:
    asked = "nobody looked: neither --spool nor PREEMPTION_LEDGER_SPOOL names its directory"
    if installed is None:
        return asked
    return f"{installed} is installed in this Python, and inert without a directory; {asked}"


def _text(header: Mapping[str, Any] | None, name: str) -> str | None:
    value = (header or {}).get(name)
    return value if isinstance(value, str) and value else None


def _release(version: str) -> str:
    return version.partition("+")[0]


def _ago(age_s: float | None) -> str:
    if age_s is None:
        return "some time"
    if age_s < 120:  # noqa: PLR2004 (seconds people still count)
        return f"{age_s:.0f} s"
    return f"{age_s / 60:.0f} min" if age_s < 7200 else f"{age_s / 3600:.0f} h"  # noqa: PLR2004
