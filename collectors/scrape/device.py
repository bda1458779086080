"""Which device this host has, through NVML where Python has a module for it.

It is the collector's host that is asked. An address of this host may be the near end of a tunnel,
so the answer is a hint that the manifest marks as such; an engine itself is asked by its recorder.
Where NVML says nothing, nothing is known: that a host has no NVIDIA driver makes no engine a CPU's.
"""

from importlib import import_module
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

_MOST_TEXT = 128
OF_THIS_HOST = (
    "device is what NVML tells of the collector's host: an engine behind a tunnel has another,"
    " and of several devices it may use some"
)


def is_here(url: str) -> bool:
    """Whether a target's address is this host's own."""
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")


def device_facts(nvml: ModuleType | Any | None = None) -> dict[str, Any]:
    """The manifest's `device` of this host; nulls where NVML does not tell.

    A host has devices; how many of them the engine uses is known only where there is one.
    """
    if nvml is None:
        nvml = _nvml()
    found = None if nvml is None else _from_nvml(nvml)
    return found or {"kind": None, "name": None, "count": None, "driver": None}


def _nvml() -> Any | None:
    try:
        return import_module("pynvml")
    except ImportError:
        return None


def _from_nvml(nvml: Any) -> dict[str, Any] | None:
    try:
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 (a host without the driver; the module's error class varies)
        return None
    try:
        count = int(nvml.nvmlDeviceGetCount())
        if not count:
            return None
        handles = [nvml.nvmlDeviceGetHandleByIndex(k) for k in range(count)]
        names = sorted({_text(nvml.nvmlDeviceGetName(handle)) for handle in handles})
        return {
            "kind": "cuda",
            "name": ", ".join(names)[:_MOST_TEXT],
            "count": 1 if count == 1 else None,
            "driver": _text(nvml.nvmlSystemGetDriverVersion()),
        }
    except Exception:  # noqa: BLE001 (as above)
        return None
    finally:
        nvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return "".join(c for c in text if c.isprintable())[:_MOST_TEXT]
