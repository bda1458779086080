"""Where the recorded runs and the demo's configuration are: installed, or in the checkout."""

from importlib.resources import files
from pathlib import Path

BASELINE, CANDIDATE = "base-1", "cand-80"
GATE = "blocks-48-to-80.toml"


def recorded(kind: str, name: str) -> Path:
    """Path of one recorded thing; `kind` is runs, configs or gates."""
    installed = Path(str(files("preempt").joinpath("recorded_data", kind, name)))
    return installed if installed.exists() else _checkout(kind, name)


def _checkout(kind: str, name: str) -> Path:
    return Path(__file__).parent.parent / "fixtures" / kind / name
