"""From the names and labels of a page to canonical ones, whichever release or frontend wrote it."""

import json
import math
import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple

from collectors.exposition.known import ALWAYS, KNOWN, Release
from collectors.exposition.parse import MOST_SAMPLES, Page, RawSample
from collectors.exposition.samples import Canonical, MetricSample

__all__ = ["KNOWN", "canonical", "not_found", "release_of", "status_of"]

# Prometheus replaces the colon where names may not have one; Ray puts its own prefix before that.
_PREFIXES = ("vllm:", "vllm_", "ray_vllm_", "ray_vllm:")
_HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")
_RELEASE = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})")
_ENGINE = re.compile(r"[0-9]{1,9}")
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST_NAME, _MOST_MODEL = 128, 4096
_MEMO_CHARACTERS = 1024  # longer series are read anew each time, so that the memo stays small
_ALIASES = {alias.name: name for name, metric in KNOWN.items() for alias in metric.aliases}
# The same numbers under an old name, from 0.9.2 to 0.10.2; alone, it may count blocks.
_REPLACED = {
    "gpu_prefix_cache_queries": "prefix_cache_queries",
    "gpu_prefix_cache_hits": "prefix_cache_hits",
}
_RANK = {
    alias.name: rank
    for metric in KNOWN.values()
    for rank, alias in enumerate(metric.aliases, start=1)
}


class _Base(NamedTuple):
    """A page's name taken apart: canonical base, suffix, the page's own base, and what it is."""

    name: str
    suffix: str
    own: str
    kind: str  # value, created, info, or other for what is not vLLM's
    known: bool
    rank: int = 0  # how old the page's own name is, 0 being the newest


def canonical(page: Page) -> Canonical:
    """A page's samples under canonical names; what is not vLLM's is left out.

    The first of equal series stays. Where an old name and its new one are both there, the new one
    counts: they are the same numbers twice.
    """
    bases = [_base_of(sample.name) for sample in page.samples]
    chosen = _chosen(bases)
    found = Canonical()
    seen: set[tuple[int | None, str | None, str, str, float | None]] = set()
    for base, raw in zip(bases, page.samples, strict=True):
        if base.kind == "value":
            if chosen[base.name] != base.own or _REPLACED.get(base.name) in chosen:
                found.superseded[base.own] = None
                continue
            engine, model, labels, le = _labels(raw.labels)
            key = (engine, model, base.name + base.suffix, labels, le)
            if key not in seen and _is_name(key[2]):
                seen.add(key)
                found.names[base.name] = base.own
                found.samples.append(MetricSample(*key, _value(raw)))
                if not base.known:
                    found.unmatched[base.own] = None
        else:
            _take_about(found, base, raw)
    return found


def _take_about(found: Canonical, base: _Base, raw: RawSample) -> None:
    """Keep what a page says that is no sample: when things began, and how they are configured."""
    if base.kind == "info":
        found.info.setdefault(base.name, []).append(raw.labels)
    elif base.kind == "created" and math.isfinite(raw.value):
        engine, model, labels, _ = _labels(raw.labels)
        found.created[base.name, engine, model, labels] = raw.value
    elif raw.name == "process_start_time_seconds" and math.isfinite(raw.value):
        found.process_start_s = raw.value


def not_found(names: Collection[str], version: str | None) -> list[str]:
    """Canonical names that this release exports by default and that no page had.

    Of an unknown release only what every V1 release exports is expected.
    """
    release = release_of(version)
    expected = ALWAYS if release is None else {n for n in KNOWN if _expected(n, release)}
    return sorted(expected - set(names))


def status_of(name: str, version: str | None) -> str:
    """Why a known metric is not there: `not exported`, `optional`, `missing`, or `unknown`."""
    metric, release = KNOWN.get(name), release_of(version)
    if metric is None or (release is None and name not in ALWAYS):
        return "unknown"
    if release is not None and not _exported(name, release):
        return "not exported"
    return "optional" if metric.optional else "missing"


def release_of(version: str | None) -> Release | None:
    """The release that a version string begins with; None where there is none."""
    match = _RELEASE.match(version or "")
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _expected(name: str, release: Release) -> bool:
    return _exported(name, release) and not KNOWN[name].optional


def _exported(name: str, release: Release) -> bool:
    metric = KNOWN[name]
    return metric.since <= release and (metric.until is None or release <= metric.until)


def _chosen(bases: Iterable[_Base]) -> dict[str, str]:
    """Which of a page's own names stands for each canonical one: the newest."""
    chosen: dict[str, _Base] = {}
    for base in bases:
        if base.kind == "value":
            known = chosen.setdefault(base.name, base)
            if base.rank < known.rank:
                chosen[base.name] = base
    return {name: base.own for name, base in chosen.items()}


def _base_of(name: str) -> _Base:
    return _base(name) if len(name) <= _MEMO_CHARACTERS else _base.__wrapped__(name)


@lru_cache(maxsize=4096)
def _base(name: str) -> _Base:
    bare = _bare(name)
    if bare is None:
        return _Base("", "", name, "other", known=False)
    if bare.endswith("_info"):
        return _Base(bare, "", name, "info", known=True)
    for suffix in _HISTOGRAM_PARTS:
        base = bare.removesuffix(suffix)
        metric = KNOWN.get(known := _ALIASES.get(base, base))
        if base != bare and metric is not None and metric.kind == "histogram":
            own, rank = name.removesuffix(suffix), _RANK.get(base, 0)
            return _Base(known, suffix, own, "value", known=True, rank=rank)
    if bare.endswith("_created"):
        base = bare.removesuffix("_created")
        return _Base(_ALIASES.get(base, base), "", name, "created", known=True)
    base = bare.removesuffix("_total")
    known = _ALIASES.get(base, base)
    if known in KNOWN:
        return _Base(known, "", name, "value", known=True, rank=_RANK.get(base, 0))
    for suffix in _HISTOGRAM_PARTS:  # of a histogram that nobody told us about
        if bare.endswith(suffix):
            base = bare.removesuffix(suffix)
            return _Base(base, suffix, name.removesuffix(suffix), "value", known=False)
    return _Base(base, "", name, "value", known=False)


def _bare(name: str) -> str | None:
    """A name without prefix; None if it is not vLLM's."""
    return next((name[len(p) :] for p in _PREFIXES if name.startswith(p)), None)


_Labels = tuple[int | None, str | None, str, float | None]


def _labels(labels: dict[str, str]) -> _Labels:
    """Engine, model, the other labels as sorted JSON, and the bucket's bound."""
    pairs = tuple(labels.items())
    size = sum(map(len, labels)) + sum(map(len, labels.values()))
    return _memo(pairs) if size <= _MEMO_CHARACTERS else _read_labels(pairs)


def _read_labels(labels: tuple[tuple[str, str], ...]) -> _Labels:
    others = dict(labels)
    engine = others.pop("engine", None)
    model = others.pop("model_name", None)
    bound = others.pop("le", None)
    if engine is not None and not _ENGINE.fullmatch(engine):
        others["engine_name"], engine = engine, None
    le = None if bound is None else _bound(bound)
    if bound is not None and le is None:
        others["le_text"] = bound
    if model is not None:
        model = _UNSAFE.sub("\ufffd", model)[:_MOST_MODEL]
    text = json.dumps(others, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    text = _SURROGATE.sub("\ufffd", text)
    return None if engine is None else int(engine), model, text, le


_memo = lru_cache(maxsize=MOST_SAMPLES)(_read_labels)


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _MOST_NAME and not _UNSAFE.search(name)


def _bound(text: str) -> float | None:
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if math.isnan(bound) or bound == -math.inf else bound


def _value(raw: RawSample) -> float | None:
    return raw.value if math.isfinite(raw.value) else None
