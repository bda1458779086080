"""What a page says about its engine's configuration, in the manifest's words. Pure.

Labels of `vllm:cache_config_info` change with every release and may be the text "None": each is
optional, and what does not read as its type is unknown.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from replay.strict import MAX_SAFE_INTEGER

Labels = Mapping[str, str]
_MOST_TEXT = 128
MOST_KNOWN = 1_000  # models, and engines, of one configuration
_MOST_LABELS = 8192  # characters of one engine's labels that are kept as they are
_SWITCHES = {"True": True, "False": False}


@dataclass(frozen=True)
class Identity:
    """What makes one engine configuration: a change of it ends a run; None and {} are unknown."""

    version: str | None
    models: frozenset[str]
    cache: Mapping[str, frozenset[tuple[str, str]]]  # by engine

    def differs(self, other: "Identity") -> bool:
        """Whether something known of both is not the same."""
        if self.version and other.version and self.version != other.version:
            return True
        # Adapters come and go under names of their own; the base model's name stays.
        if self.models and other.models and not self.models & other.models:
            return True
        both = self.cache.keys() & other.cache.keys()
        return any(self.cache[engine] != other.cache[engine] for engine in both)

    def joined(self, other: "Identity") -> "Identity":
        """What both know, the other's where both do; never more than `MOST_KNOWN` of a kind."""
        version = other.version or self.version
        models, cache = self.models, dict(self.cache)
        if not other.models <= models:
            room = max(0, MOST_KNOWN - len(models))
            models |= frozenset(sorted(other.models - models)[:room])
        for engine, labels in other.cache.items():
            if engine in cache or len(cache) < MOST_KNOWN:
                cache[engine] = labels
        return Identity(version, models, cache)


def identity_of(
    version: str | None, models: Iterable[str | None], infos: Iterable[Labels]
) -> Identity:
    """Identity out of a page's models and its cache labels, one set for each engine."""
    cache = {info.get("engine", "")[:_MOST_TEXT]: _bounded(info) for info in infos}
    return Identity(version, frozenset(m for m in models if m), cache)


def _bounded(info: Labels) -> frozenset[tuple[str, str]]:
    """Labels to be told apart by; of very long ones their digest is enough."""
    if sum(map(len, info)) + sum(map(len, info.values())) <= _MOST_LABELS:
        return frozenset(info.items())
    digest = hashlib.sha256(repr(sorted(info.items())).encode("utf-8", "backslashreplace"))
    return frozenset({("", digest.hexdigest())})


def cache_facts(
    infos: Collection[Labels], engines: int | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The manifest's `cache`, and what should be said about it; engines that differ make a null.

    `engines` is how many the page has, where these are not all of them.
    """
    found, notes = [], []
    for info in infos:
        facts, said = _facts_of(info, engines or len(infos))
        found.append(facts)
        notes += [note for note in said if note not in notes]
    if not found:
        return {}, []
    facts = {}
    for key in found[0]:
        values = [one[key] for one in found]
        facts[key] = values[0] if all(value == values[0] for value in values) else None
        if facts[key] is None and values[0] is not None:
            notes.append(f"engines on this page differ in cache.{key}")
    return facts, notes


def _facts_of(info: Labels, engines: int) -> tuple[dict[str, Any], list[str]]:
    blocks, tokens = _blocks(info, engines), _count(info, "kv_cache_size_tokens")
    block_size, notes = _block_size(info, blocks, tokens)
    if tokens is None and blocks is not None and block_size is not None:
        tokens = blocks * block_size
    override = info.get("num_gpu_blocks_override")
    overridden = None if override is None else _given(override)
    memory = _count(info, "kv_cache_memory_bytes")
    if memory is None:  # CPU releases before 0.28
        memory = _count(info, "cpu_kvcache_space_bytes")
    per_token = None
    if memory is not None and tokens and overridden is False:
        per_token = memory // tokens or None
    dtype = info.get("cache_dtype", "")
    facts = {
        "block_size": block_size,
        "num_gpu_blocks": blocks,
        "capacity_blocks": None if blocks is None else blocks - 1,
        "dtype": dtype if _given(dtype) and len(dtype) <= _MOST_TEXT else None,
        "enable_prefix_caching": _SWITCHES.get(info.get("enable_prefix_caching", "")),
        "num_gpu_blocks_overridden": overridden,
        "kv_cache_memory_bytes": memory,
        "kv_bytes_per_token": per_token,
    }
    return facts, notes


def _blocks(info: Labels, engines: int) -> int | None:
    """Blocks of one engine; of several behind one API server, vLLM shows the sum of all.

    Where each has its own API server, each shows its own: the tokens, which are one engine's, tell.
    """
    blocks, tokens = _count(info, "num_gpu_blocks"), _count(info, "kv_cache_size_tokens")
    size = _count(info, "block_size")
    if engines == 1 or blocks is None:
        return blocks
    if tokens is None or size is None or tokens % size:
        return None
    own = tokens // size
    return own if blocks in {own, own * engines} else None


def _block_size(
    info: Labels, blocks: int | None, tokens: int | None
) -> tuple[int | None, list[str]]:
    """Tokens of a block; the label can be that of another cache group than the capacity's."""
    label = _count(info, "block_size")
    if label is None or blocks is None or tokens is None or label * blocks == tokens:
        return label, []
    exact = tokens // blocks if tokens % blocks == 0 else None
    said = "the tokens are believed" if exact else "cache.block_size is unknown"
    note = (
        f"block_size {label} times num_gpu_blocks {blocks} is not kv_cache_size_tokens {tokens}:"
        f" {said}"
    )
    return exact, [note]


def _count(info: Labels, name: str, convert: Callable[[str], int] = int) -> int | None:
    """A whole number >= 1 of a label, else None."""
    text = info.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < len(str(MAX_SAFE_INTEGER))):
        return None
    return convert(text) or None


def _given(text: str) -> bool:
    return text not in {"", "None"}
