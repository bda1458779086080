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


class SpoolHook:
    """Packs one spool into one run, again and again."""

    def __init__(self, writer: RunWriter, spool: Path) -> None:
        self._packer = Packer(writer, spool)
        self.facts: dict[str, Any] = {}

    def pack(self, *, final: bool) -> None:
        """Pack what is new; `final` censors what has not ended, for nothing comes after it."""
        if self._packer.done:  # an earlier end was final: what came after it is another run's
            return
        self._packer.pack(final=final)
        if self._packer.sessions:
            self.facts = manifest_of(self._packer)
        if final and self._packer.sessions:
            self._packer.finish()

    def fill(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """The manifest with what the spool says."""
        if not self.facts:
            return manifest
        filled = manifest | {key: self.facts.get(key) for key in _OWN}
        for key in _SHARED:
            known = {name: value for name, value in manifest[key].items() if value is not None}
            filled[key] = {**manifest[key], **self.facts[key], **known}
        return filled
