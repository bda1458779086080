"""What is missing of a run that is read while it is collected, said to whoever reads it."""

from pathlib import Path

from preempt.commands.options import say
from replay.strict import printable


def say_unfinished(run: Path, *, quiet: bool) -> None:
    """Warn, a line, where a run directory holds what no reader of it sees yet."""
    if warning := _unfinished(run):
        say(f"{printable(str(run), 200)}: {warning}", quiet=quiet)


def _unfinished(run: Path) -> str | None:
    from collectors.manifest import read_manifest
    from collectors.scrape.journal import journal_numbers

    manifest = read_manifest(run / "manifest.json")
    if manifest["kind"] == "driven" and manifest["drain_end_us"] is None:
        return (
            "the drive has not ended, so its requests are not in it; of one that was killed,"
            " preempt collect drive --finish makes them"
        )
    if journal_numbers(run):
        return (
            "collection has not ended: scrapes since its last part are in its journal, and not in"
            " this; read it again later, or after preempt collect reparse if it was killed"
        )
    return None
