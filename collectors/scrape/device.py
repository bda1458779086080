"""Which device this host has, through NVML where Python has a module for it.

It is the collector's host that is asked, so the answer counts only for an engine on the same host.
A host has devices; how many of them the engine uses is known only where there is one.
"""

import os
import platform
from importlib import import_module
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

_MOST_TEXT = 128
_OTHER_KINDS = ("/dev/kfd", "/dev/accel", "/dev/dri/renderD128", "/dev/davinci0", "/dev/nvidia0")


def is_here(url: str) -> bool:
    """Whether a target's address is this host's own."""
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")


def device_facts(nvml: ModuleType | Any | None = None) -> dict[str, Any]:
    """The manifest's `device` of this host; nulls where neither NVML nor the system tells."""
    if nvml is None:
        nvml = _nvml()
    found = None if nvml is None else _from_nvml(nvml)
    return found or _without_nvml()


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


def _without_nvml() -> dict[str, Any]:
    from pathlib import Path

    unknown = {"kind": None, "name": None, "count": None, "driver": None}
    # A sidecar sees none of the devices that the engine in the next container uses.
    beside = "KUBERNETES_SERVICE_HOST" in os.environ
    if beside or any(Path(device).exists() for device in _OTHER_KINDS):
        return unknown
    name = platform.processor() or platform.machine() or None
    return {**unknown, "kind": "cpu", "name": name, "count": 1}


def _text(value: str | bytes) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return "".join(c for c in text if c.isprintable())[:_MOST_TEXT]
