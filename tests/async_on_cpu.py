"""A vLLM plugin of the tests: an engine core that schedules asynchronously, on the CPU as well.

There vLLM switches that off, whatever the command line says, for a worker without streams has
nothing to overlap. The core takes its scheduler class after the workers were started: those stay as
they are, and the core has AsyncScheduler and two batches in flight, as on a GPU.
"""

import importlib
from typing import Any


def register() -> None:
    """Entry point in `vllm.general_plugins`."""
    config = importlib.import_module("vllm.config").SchedulerConfig
    original = config.get_scheduler_cls

    def get_scheduler_cls(self: Any) -> Any:
        self.async_scheduling = True
        return original(self)

    config.get_scheduler_cls = get_scheduler_cls
