"""Which device this engine runs on, as vLLM and the operating system tell it without waking one.

Called once, in the engine core, where workers may hold the devices and CUDA may not be initialised.
So a name is taken only from a driver's own library, which vLLM asks before any of this, or from a
runtime that is up in this process; whatever else would have to be woken up is unknown.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

# Platforms whose `get_device_name` asks NVML or AMD SMI; others go through torch.
_ASKS_A_DRIVER = ("NvmlCudaPlatform", "RocmPlatform")
_DRIVERS = {"cuda": "/sys/module/nvidia/version", "rocm": "/sys/module/amdgpu/version"}
_CPUS = "/proc/cpuinfo"
_MOST_BYTES = 64 * 2**10
_MOST_TEXT = 128


def device_of(config: Any, platform: Callable[[], Any]) -> dict[str, Any]:
    """`kind`, `name`, `count` and `driver` of the devices of this engine; null is unknown."""
    found = _try(platform)
    kind = _text(_try(lambda: found.device_name)) or _text(
        _try(lambda: config.device_config.device_type)
    )
    return {
        "kind": kind,
        "name": _cpu() if kind == "cpu" else _text(_try(lambda: _name(found))),
        "count": _try(lambda: _workers(config.parallel_config)),
        "driver": _text(_try(lambda: _read(_DRIVERS[kind or ""]))),
    }


def _workers(parallel: Any) -> int:
    """Devices of one engine: `world_size` would count all of them under some launchers."""
    context = getattr(parallel, "prefill_context_parallel_size", 1)
    return int(parallel.tensor_parallel_size * parallel.pipeline_parallel_size * context)


def _name(platform: Any) -> str | None:
    """The first device's name, where asking starts nothing."""
    if type(platform).__name__ not in _ASKS_A_DRIVER:
        runtime = getattr(sys.modules["torch"], platform.device_type)
        if not runtime.is_initialized():
            return None
    name: str = platform.get_device_name()
    return name


def _cpu() -> str | None:
    """The processor's model, or else the architecture: vLLM calls all of them cpu."""
    lines = (_try(lambda: _read(_CPUS)) or "").splitlines()
    models = (line.partition(":")[2] for line in lines if line.startswith("model name"))
    return _text(next(models, "")) or _text(_try(lambda: os.uname().machine))


def _read(path: str) -> str:
    with open(path, "rb") as file:  # noqa: PTH123 (nothing of pathlib is needed here)
        return file.read(_MOST_BYTES).decode("utf-8", "replace")


def _text(found: Any) -> str | None:
    """A short text that can be shown."""
    if not isinstance(found, str):
        return None
    return "".join(c for c in found if c.isprintable()).strip()[:_MOST_TEXT] or None


def _try(read: Callable[[], Any]) -> Any:
    """A value, or null where there is none."""
    try:
        return read()
    except Exception:  # noqa: BLE001 (an engine starts whatever its host is like)
        return None
