"""The recorder's spool, packed into the run that is being scraped; only this knows both."""

from pathlib import Path
from typing import Any

from collectors.pack.packer import Packer
from collectors.pack.summary import manifest_of
from collectors.writer import RunWriter

# What the spool knows of a run and no page does.
_OWN = ("recorder", "preemptions", "not_modelled", "workload")
# What both may know: the page's word stays, the spool fills what is null.
_SHARED = ("engine", "model", "device", "parallel", "cache", "scheduler", "clocks")
_OVER = "a spool was packed here to its end: what the engine did since is not in this run"


class SpoolHook:
    """Packs one spool into one run, again and again, and deletes what of it is packed."""

    def __init__(self, writer: RunWriter, spool: Path) -> None:
        self._packer = Packer(writer, spool)
        self._kept: set[Path] = set()  # parts that could not be deleted
        self.facts: dict[str, Any] = {}
        self.replaced = False  # an engine of another configuration is in the place of the run's

    def pack(self, *, final: bool) -> int:
        """Pack what is new; parts that now, for the first time, could not be deleted.

        `final` censors what has not ended, for its engine is another one's run from here on.
        """
        if self._packer.done:  # by `collect pack`
            return 0
        packed = self._packer.pack(final=final)
        kept = {path for path in packed if not _deleted(path)}
        new, self._kept = len(kept - self._kept), kept
        if self._packer.sessions:
            self.facts = manifest_of(self._packer)
        self.replaced = self._packer.replaced
        return new

    def fill(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """The manifest with what the spool says."""
        if self._packer.done:
            return _over(manifest)
        if not self.facts:
            return manifest
        filled = manifest | {key: self.facts.get(key) for key in _OWN}
        for key in _SHARED:
            known = {name: value for name, value in manifest[key].items() if value is not None}
            filled[key] = {**manifest[key], **self.facts[key], **known}
        return filled


def _over(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a run that gets no more of its spool."""
    recorder = manifest.get("recorder")
    if not recorder or _OVER in (recorder.get("notes") or ()):
        return manifest
    notes = [*(recorder.get("notes") or ()), _OVER]
    return manifest | {"recorder": recorder | {"complete": False, "notes": notes}}


def _deleted(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True
