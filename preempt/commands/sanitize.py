"""`preempt sanitize`: a raw run or a workload in, what may be shared out; and the privacy check.

Thin over `collectors.sanitize`. The key is read from its file and goes nowhere else.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collectors.durations import duration_us
from preempt.commands import options
from preempt.commands.options import say
from preempt.commands.progress import progress_shown
from preempt.commands.workload_output import same_file, say_written, write_result
from replay.errors import InputError, OutputExists
from replay.output import check_new_directory, new_directory
from replay.strict import printable
from replay.workload_file import SUFFIXES, check_suffix

if TYPE_CHECKING:
    from collectors.run import Run
    from collectors.sanitize.options import Blur
    from collectors.sanitize.pseudonyms import Pseudonyms

_FOUND = 1


@click.command("sanitize", short_help="Make runs and workloads shareable; check that they are.")
@click.argument("path", metavar="IN", type=options.PATH)
@click.option("-o", "--output", "out", type=options.PATH, help="Workload file to write.")
@click.option("--run", "run_out", type=options.PATH, help="Directory for the shareable run.")
@click.option(
    "--key-file",
    type=options.PATH,
    help="Key of the pseudonyms; made, for its owner only, when it is not there.",
)
@click.option(
    "--round-arrivals",
    metavar="DURATION",
    help="Round arrivals down to a multiple, e.g. 100ms.",
)
@click.option(
    "--bucket-tokens", type=click.IntRange(2, 2**20), help="Round token counts up to a multiple."
)
@click.option(
    "--merge-tenants",
    type=click.IntRange(2),
    metavar="K",
    help="Merge tenants of fewer than K requests into one.",
)
@click.option("--drop-tenants", is_flag=True, help="Leave all tenants out.")
@click.option("--check", "only_check", is_flag=True, help="Only look whether IN may be shared.")
@options.max_requests
@options.force
@options.quiet
@options.as_json
def sanitize_command(
    *,
    path: Path,
    out: Path | None,
    run_out: Path | None,
    key_file: Path | None,
    round_arrivals: str | None,
    bucket_tokens: int | None,
    merge_tenants: int | None,
    drop_tenants: bool,
    only_check: bool,
    max_requests: int,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Make IN, a raw run's directory or a workload file, into what may be shared.

    Request ids and tenants become keyed pseudonyms, times offsets from the start, prefix blocks
    dense numbers; texts that are not on the allow-list do not come through. Columns and keys that
    no contract knows are refused by the reader before anything is written (exit 2), and the
    allow-list stands behind it. The same key gives the same pseudonyms in every run, another key
    none of them, and no key changes a schedule. Of a run, OUT is its workload and --run (by default
    OUT with the ending .run) the shareable run; both carry the same pseudonyms and join.

    --force replaces a workload and its attempts, never the directory of a run. Of a run that was
    killed while it wrote, it makes the rest.

    With --check nothing is written: IN, any file or directory, is searched for text, ids that are
    no pseudonyms, e-mail addresses, keys, paths, absolute times, and files that cannot be read.
    Columns are named, values never; exit 1 if there is any.

    \b
    Examples:
      preempt sanitize my-run -o shared/workload.parquet --key-file ~/.preempt-key
      preempt sanitize conv.parquet -o shared.parquet --key-file ~/.preempt-key --bucket-tokens 16
      preempt sanitize --check shared
    """
    from collectors.sanitize.options import Blur

    if only_check:
        if out or run_out or key_file:
            raise click.UsageError("--check writes nothing: leave out -o, --run and --key-file.")
        return _check(path, quiet=quiet, as_json=as_json)
    if out is None or key_file is None:
        raise click.UsageError("Missing option -o or --key-file (or --check).")
    if merge_tenants and drop_tenants:
        raise click.UsageError("--drop-tenants leaves none for --merge-tenants: leave out one.")
    check_suffix(out)
    rounded_us = duration_us(round_arrivals, "--round-arrivals") if round_arrivals else 1
    blur = Blur(rounded_us, bucket_tokens or 1, merge_tenants or 1, drop_tenants)
    key = _Key(key_file, quiet=quiet)
    with progress_shown(quiet=quiet) as progress:
        progress.phase(f"{printable(str(path), 200)}: sanitizing")
        if path.is_dir():
            run_out = out.with_suffix(".run") if run_out is None else run_out
            _check_outputs(path, out, run_out, key_file, force=force)
            summary = _run(path, out, run_out, key.pseudonyms, blur, force=force)
        else:
            if run_out is not None:
                raise click.UsageError("--run goes with a run's directory only.")
            _check_outputs(path, out, None, key_file, force=force)
            summary = _workload(path, out, key.pseudonyms, blur, max_requests, force=force)
    for line in summary["report"]:
        say(f"  {line}", quiet=quiet)
    if summary["workload"] is not None:
        say_written(summary, quiet=quiet)
    if as_json:
        options.print_json(summary)
    return 0


class _Key:
    """The key, read at once so that a bad one is told first; made only when it is needed."""

    def __init__(self, path: Path, *, quiet: bool) -> None:
        from collectors.sanitize.key import read_key

        self._path, self._quiet, self._found = path, quiet, read_key(path)

    def pseudonyms(self) -> "Pseudonyms":
        from collectors.sanitize.key import make_key
        from collectors.sanitize.pseudonyms import Pseudonyms

        if self._found is None:
            self._found = make_key(self._path)
            told = "made a key; keep it to get the same pseudonyms again"
            say(f"{printable(str(self._path), 200)}: {told}", quiet=self._quiet)
        return Pseudonyms(self._found)


def _check(path: Path, *, quiet: bool, as_json: bool) -> int:
    from collectors.sanitize.check import check
    from collectors.sanitize.words import contracts
    from preempt.ledger_words import ledger_words

    findings = check(path, contracts().with_more(ledger_words()))
    for one in findings:
        say(f"{one}", quiet=quiet)
    number = f"{len(findings)} finding{'s' * (len(findings) != 1)}"
    told = f"{number}; do not share it" if findings else "nothing found"
    say(f"{printable(str(path), 200)}: {told}", quiet=quiet)
    if as_json:
        rows = [{"place": f.place, "column": f.column, "kind": f.kind} for f in findings]
        options.print_json({"path": str(path), "findings": rows})
    return _FOUND if findings else 0


def _check_outputs(
    path: Path, out: Path, run_out: Path | None, key_file: Path, *, force: bool
) -> None:
    """Refuse before any work what would be lost or in the way, whatever --force says."""
    from collectors.traces.result import attempts_beside

    beside = attempts_beside(out)
    read = [key_file] if path.is_dir() else [path, attempts_beside(path), key_file]
    for written in (out, beside):
        if written.resolve() in [one.resolve() for one in read] or any(
            same_file(written, one) for one in read
        ):
            raise OutputExists(f"{written}: is a file to be read; choose another path")
        if written.exists() and not force:
            raise OutputExists(f"{written}: exists; choose another path or pass --force")
    if run_out is None:
        return
    empty = run_out.is_dir() and not any(run_out.iterdir())  # a killed run's: --force takes it
    check_new_directory(run_out, force=force and empty, owned=())
    inside = {p.resolve() for one in (out, run_out) for p in one.parents}
    if path.resolve() in inside:
        raise OutputExists(f"{out}: would lie in the raw run, which stays where it is")
    if run_out.resolve() in inside | {p.resolve() for p in key_file.parents}:
        raise OutputExists(f"{run_out}: is for the run alone; choose another path (--run)")


def _workload(
    path: Path,
    out: Path,
    pseudonyms: "Callable[[], Pseudonyms]",
    blur: "Blur",
    max_requests: int,
    *,
    force: bool,
) -> dict[str, Any]:
    from collectors.sanitize.workload import head_lines, read_attempts, shareable_workload
    from collectors.traces.result import ImportResult
    from replay.workload_frame import read_workload_batches

    if path.suffix not in SUFFIXES:
        if not path.exists():
            raise InputError(printable(str(path), 200), "", "cannot be read: there is nothing")
        rule = "must be a run's directory or a workload; preempt import makes one of other files"
        raise InputError(printable(str(path), 200), "", rule)
    batches = read_workload_batches(path, max_requests)
    attempts = read_attempts(path, batches.head, max_requests)
    shared, kept, report = shareable_workload(batches, attempts, pseudonyms(), blur)
    written = write_result(ImportResult(shared, kept), out, force=force)
    return written | {"report": [*report.lines(), *head_lines(batches.head)]}


def _run(
    path: Path,
    out: Path,
    run_out: Path,
    pseudonyms: "Callable[[], Pseudonyms]",
    blur: "Blur",
    *,
    force: bool,
) -> dict[str, Any]:
    """Write the run, its workload and its attempts: all of them, or none."""
    from collectors.run import read_run
    from collectors.sanitize.run import check_raw, shareable_run
    from collectors.sanitize.together import old_kept, place_taken
    from collectors.traces.result import ImportResult, attempts_beside
    from replay.workload_frame import batches_of

    raw = read_run(path)
    check_raw(raw)
    found = shareable_run(raw, pseudonyms(), blur)
    summary = _nothing_written() | {"run": str(run_out), "report": found.said}
    placed = list[Path]()
    with ExitStack() as stack:
        # Left last, when all are in their places or none is.
        stack.enter_context(_taken_back(placed))
        with new_directory(run_out, force=True, owned=()) as temporary:  # an empty one
            _write_run(found.run, temporary, run_out)
            stack.enter_context(place_taken(run_out, force=force))
            if found.workload is not None:
                new = [one for one in (out, attempts_beside(out)) if not one.exists()]
                stack.enter_context(old_kept((out, attempts_beside(out))))
                result = ImportResult(batches_of(found.workload), found.attempts)
                summary |= write_result(result, out, force=force)
                placed += new
    return summary


@contextmanager
def _taken_back(placed: list[Path]) -> Iterator[None]:
    """If the block fails, what it put where nothing was goes again."""
    try:
        yield
    except BaseException:
        for one in placed:
            one.unlink(missing_ok=True)
        raise


def _write_run(run: "Run", temporary: Path, run_out: Path) -> None:
    from collectors.sanitize.run import write_shareable

    try:
        write_shareable(run, temporary)
    except OutputExists as exc:
        if not isinstance(exc.__cause__, OSError):
            raise
        # Where it was being written is nothing its user knows.
        told = f"{run_out}: cannot be written: {exc.__cause__.strerror}"
        raise OutputExists(told) from exc.__cause__


def _nothing_written() -> dict[str, Any]:
    return {
        "workload": None,
        "attempts_file": None,
        "requests": 0,
        "attempts": {},
        "prompt_tokens": 0,
        "output_tokens": 0,
        "workload_sha256": None,
        "license_left_out": False,
    }
