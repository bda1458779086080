"""Which options of an engine are not at their defaults: names only, for whoever reads them later.

A release has options that nobody here has heard of. What they do is unknown, but that one is set
tells a reader that its model of the scheduler may lack something.
"""

import dataclasses
from typing import Any

_SECTIONS = {"scheduler": "scheduler_config", "cache": "cache_config"}
_MOST = 64


def options_set(config: Any) -> dict[str, list[str]]:
    """Names by section; `engine` has the optional parts of the configuration that are there."""
    found = {"engine": _set(config, parts=True)}
    for section, name in _SECTIONS.items():
        found[section] = _set(getattr(config, name, None), parts=False)
    return found


def _set(options: Any, *, parts: bool) -> list[str]:
    """Fields that differ from the class's plain defaults; what is computed has none."""
    if not dataclasses.is_dataclass(options):
        return []
    names = []
    for field in dataclasses.fields(options):
        default = getattr(field.default, "default", field.default)  # of pydantic's Field, or plain
        plain = default is None or (type(default) in {bool, int, float, str} and not parts)
        if plain and field.init and not field.name.startswith("_"):
            value = getattr(options, field.name, default)
            if value is not default and (parts or value != default):
                names.append(field.name)
    return names[:_MOST]
