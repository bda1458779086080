"""What every format of `preempt import` is asked for, and what is done about it alike."""

import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preempt.commands.workload_output import same_file, say_written, write_result
from replay.errors import InputError, OutputExists
from replay.strict import printable
from replay.workload_file import check_suffix

if TYPE_CHECKING:
    from collectors.traces.result import ImportResult


@dataclass(frozen=True)
class Asked:
    """What to read, and which part of it goes where."""

    file: Path
    out: Path | None
    max_requests: int
    start: int | None
    count: int | None
    force: bool
    quiet: bool

    @property
    def windowed(self) -> bool:
        """Whether a part of the requests was asked for."""
        return self.start is not None or self.count is not None

    @property
    def place(self) -> str:
        """What messages call the file."""
        return printable(str(self.file), 200)

    def check(self) -> None:
        """Refuse before anything is read an output nobody can write, and a pipe that has a name."""
        if self.out is not None:
            check_suffix(self.out)
            if same_file(self.out, self.file):
                raise OutputExists(f"{self.out}: is the file to be read; choose another path")
        try:
            mode = self.file.stat().st_mode
        except (OSError, ValueError):  # standard input, or the reader says what is wrong
            return
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode) and str(self.file) != "-":
            rule = "must be a file, or - with the pipe as standard input"
            raise InputError(self.place, "", rule, "a pipe or a device")

    def cut(self, result: "ImportResult") -> "ImportResult":
        """The window of requests that was asked for."""
        from replay.workload_frame import window_batches

        if not self.windowed:
            return result
        part = window_batches(result.batches, self.start or 0, self.count, self.place)
        return replace(result, batches=part)

    def write(self, result: "ImportResult") -> dict[str, Any]:
        """Write the workload and say so; what `--json` prints."""
        assert self.out is not None  # noqa: S101 - or nobody calls it
        summary = write_result(result, self.out, force=self.force)
        say_written(summary, quiet=self.quiet)
        return summary
