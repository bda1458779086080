"""The recorder's spool, packed into the run that is being scraped; only this knows both."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collectors.pack.facts import merged
from collectors.pack.packer import Packer
from collectors.pack.summary import manifest_of, of_others
from collectors.writer import RunWriter
from replay.errors import ReplayError

# What the spool knows of a run and no page does.
_OWN = ("recorder", "preemptions", "not_modelled", "workload")
# What both may know: the page's word stays, the spool fills what is null.
_SHARED = ("engine", "model", "device", "parallel", "cache", "scheduler", "clocks")
_OVER = "a spool was packed here to its end: what the engine did since is not in this run"
_ABSENT = "no spool yet: no engine with the recorder has started"
_MOST_REASON = 500
_FAILED = "the spool could not be packed, and is tried again: "


class SpoolHook:
    """Packs one spool into one run, again and again, and deletes what of it is packed.

    `problem` is why the last attempt failed, in our words; None if it did not. A directory that is
    not there is no failure: `absent`, an engine makes it when it starts.
    """

    def __init__(self, writer: RunWriter, spool: Path) -> None:
        self._writer, self._spool = writer, spool
        self._packer: Packer | None = None
        self._kept: set[Path] = set()  # parts that could not be deleted
        self.facts: dict[str, Any] = {}
        self.replaced = False  # an engine of another configuration is in the place of the run's
        self.absent = False
        self.problem: str | None = None

    def pack(self, *, final: bool) -> int:
        """Pack what is new; parts that now, for the first time, could not be deleted.

        `final` censors what has not ended, for its engine is another one's run from here on.
        """
        self.problem = None
        try:
            if self._packer is None:
                self._packer = Packer(self._writer, self._spool)
            if self._packer.done:  # by `collect pack`
                return 0
            self.absent = not os.path.lexists(self._spool)
            return 0 if self.absent else self._pack(self._packer, final=final)
        except (OSError, ReplayError) as exc:
            self.problem = _reason(exc, self._spool)
            raise

    def fill(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """The manifest with what the spool says, and what is wrong with it."""
        filled = self._filled(manifest)
        if self._packer is not None and self._packer.done:
            return filled
        recorder = filled.get("recorder")
        notes = [
            note
            for note in (recorder or {}).get("notes") or ()
            if note != _ABSENT and not note.startswith(_FAILED)
        ]
        if self.problem is not None:
            notes.append(f"{_FAILED}{self.problem}")
        elif self.absent and not self.facts:
            notes.append(_ABSENT)
        elif not recorder:
            return filled
        return filled | {"recorder": {**(recorder or _NOTHING), "notes": notes}}

    def _pack(self, packer: Packer, *, final: bool) -> int:
        packed = packer.pack(final=final)
        kept = {path for path in packed if not _deleted(path)}
        new, self._kept = len(kept - self._kept), kept
        if packer.sessions or packer.unread:
            self.facts = manifest_of(packer)
        self.replaced = packer.replaced
        return new

    def _filled(self, manifest: dict[str, Any]) -> dict[str, Any]:
        if self._packer is not None and self._packer.done:
            return _over(manifest)
        if not self.facts:
            return manifest
        filled = manifest | {key: self.facts.get(key) for key in _OWN}
        pages = of_others(manifest.get("not_modelled"))
        filled["not_modelled"] = merged(pages, self.facts["not_modelled"])
        for key in _SHARED:
            known = {name: value for name, value in manifest[key].items() if value is not None}
            told = {} if key == "device" and self.facts[key]["kind"] is not None else known
            filled[key] = {**manifest[key], **self.facts[key], **told}
        return filled


# What is known of a recorder of which there is nothing.
_NOTHING: Mapping[str, Any] = {
    "version": None,
    "engines": None,
    "dropped_records": None,
    "complete": None,
    "sources": None,
}


def _reason(exc: OSError | ReplayError, spool: Path) -> str:
    """Why packing failed: a rule of ours, or the kind of error; nothing that anybody sent."""
    if isinstance(exc, OSError):
        return type(exc).__name__
    return str(exc).replace(f"{spool}/", "")[:_MOST_REASON]


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
