"""What keeps a process small that collects for weeks on a host that is there for something else.

polars starts a thread for every core, and its allocator (jemalloc) keeps what was freed for a
while. A collector makes one small frame every few minutes: both only cost memory here. They read
the environment when they are loaded, so this comes first.
"""

import os
import sys

_SETTINGS = {
    "POLARS_MAX_THREADS": "1",
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0",
}


def keep_small() -> None:
    """Set what is not set, unless polars is there already: then it would change nothing."""
    if "polars" not in sys.modules:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
