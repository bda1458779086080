"""Selectors of series: what people may pass, and what is asked for with it. Pure."""

import json
import re
from collections.abc import Mapping

from replay.errors import InputError

# Everything of vLLM's, under each prefix it is known by, and what tells a restart.
OURS = "(vllm:|vllm_|ray_vllm_).+"
WITH_PROCESS = f"{OURS}|process_start_time_seconds"
# Every release has it, one series an engine and model: listing it is cheap.
RUNNING = "(vllm:|vllm_|ray_vllm_)num_requests_running"
_MATCHER = r'[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\\n]|\\.)*"'
_SELECTOR = re.compile(rf"\{{\s*({_MATCHER}(?:\s*,\s*{_MATCHER})*)?\s*,?\s*\}}")
_MOST_CHARACTERS = 2048


def inner(selector: str) -> str:
    """Matchers within the braces of a selector that names no metric; `InputError` otherwise."""
    match = _SELECTOR.fullmatch(selector.strip()) if len(selector) <= _MOST_CHARACTERS else None
    if not match:
        rule = 'must be matchers in braces, e.g. {job="vllm"}'
        raise InputError("options", "--selector", rule, f"{len(selector)} characters")
    return match[1] or ""


def select(names: str, labels: Mapping[str, str], more: str = "") -> str:
    """Selector of the metrics whose name matches `names` in full, with exactly these labels."""
    parts = [f"__name__=~{quoted(names)}", *(f"{k}={quoted(v)}" for k, v in labels.items()), more]
    return "{" + ",".join(part for part in parts if part) + "}"


def named(name: str, labels: Mapping[str, str], more: str = "") -> str:
    """Selector of one metric."""
    parts = [f"__name__={quoted(name)}", *(f"{k}={quoted(v)}" for k, v in labels.items()), more]
    return "{" + ",".join(part for part in parts if part) + "}"


def quoted(text: str) -> str:
    """A string of the query language; its escapes are a superset of JSON's for what labels hold."""
    return json.dumps(text, ensure_ascii=False)
