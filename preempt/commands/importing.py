"""`preempt import`: a public trace, a result file or a collected run in, a workload file out.

A subcommand for each line of `collectors.traces.FORMATS` and `collectors.results.FORMATS`, and one
for runs, each with the options it has. Malformed input raises `InputError` and writes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collectors.formats import Format
from collectors.results import FORMATS as RESULTS
from collectors.traces import FORMATS as TRACES
from preempt.commands import options
from preempt.commands.import_asked import Asked
from preempt.commands.import_results import import_results
from replay.errors import InputError

if TYPE_CHECKING:
    from collectors.results.rows import Measured
    from collectors.traces.result import ImportResult

Option = Callable[[Any], Any]

_HELP = """Turn a public trace, a benchmark's result file or a run into a workload.

FILE may be gzip, or - for standard input. OUT ends in .parquet, .jsonl or .json. Requests that
cannot be replayed because they have no prompt or no output tokens are counted, and kept in OUT's
name with the ending .attempts.parquet. Any other row that breaks the format's rules is an error
that names its line, and nothing is written. --start and --count keep a window of the requests, the
first of them arriving at 0; the lab replays at most 64.

A format is marked, (from published rows) or so, if no whole file of it was at hand when its reader
was made.

\b
Example:
  preempt import azure AzureLLMInferenceTrace_conv.csv -o conv.parquet

The options of a format: preempt import FORMAT --help
"""
_MARKED = "Where the mark says so, no whole file was at hand: please report one that is refused."
_ALIKE = "What all formats have in common: preempt import --help"
_RESULTS = """\
-o makes a workload of the requests that ended well, --run a measured run of all of them for
preempt load, sql and report; the ids of requests are the same in both. Latencies are kept where
they mean what this project means by them (the run's manifest says what the tool means), else null.
Of several benchmarks in FILE, --run makes DIR, DIR-2 and so on; --index chooses one, for both.
--start and --count cut the workload, never the run."""
_START = click.option("--start", type=click.IntRange(0), help="First request to keep, from 0.")
_COUNT = click.option("--count", type=click.IntRange(1), help="How many requests to keep.")
_RUN = """\
A measured run, by its directory (with manifest.json).

--arrivals time (the default) takes what was offered, or else what was measured, by the clock.
--arrivals steps takes what reached one engine, each request arriving at the step that could first
schedule it: replay it with tick_us = 1.

\b
Examples:
  preempt import run my-run --start 100 --count 500 -o part.jsonl
  preempt import run my-run --arrivals steps -o steps.parquet
"""


class _Formats(click.Group):
    """Formats in sections; an unknown one is told which there are."""

    def __init__(self, sections: Mapping[str, Sequence[click.Command]], **settings: Any) -> None:
        commands = [command for section in sections.values() for command in section]
        super().__init__(commands=commands, **settings)
        self._sections = sections

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every format with its mark."""
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(str(one.name), one.short_help or "") for one in commands])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the format."""
        if args[0] not in self.commands and not ctx.resilient_parsing:
            ctx.fail(f"No such format {args[0]!r}; FORMAT is one of {', '.join(self.commands)}.")
        return super().resolve_command(ctx, args)


def _command(
    name: str, line: str, text: str, own: Sequence[Option], read: Callable[..., dict[str, Any]]
) -> click.Command:
    """A subcommand with the options of its `own`; `read` gives what `--json` prints."""

    def command(
        *,
        file: Path,
        out: Path | None,
        max_requests: int,
        start: int | None,
        count: int | None,
        force: bool,
        quiet: bool,
        as_json: bool,
        **chosen: Any,
    ) -> None:
        asked = Asked(file, out, max_requests, start, count, force, quiet)
        asked.check()
        summary = read(asked, **chosen)
        if as_json:
            options.print_json(summary)

    common = (_START, _COUNT, options.max_requests, options.force, options.quiet, options.as_json)
    for option in reversed((*own, *common)):
        option(command)
    return click.command(name, help=f"{text}\n{_ALIKE}", short_help=line)(command)


def _page(form: Format[Any], text: str, *examples: str) -> str:
    parts = [f"{form.line}.", form.about, *([_MARKED] if form.origin else []), text]
    shown = "\n".join(f"  preempt import {example}" for example in examples)
    return "\n\n".join(filter(None, parts)) + f"\n\n\b\nExamples:\n{shown}\n"


def _file(metavar: str = "FILE") -> Option:
    return click.argument("file", metavar=metavar, type=options.PATH)


def _out(*, required: bool) -> Option:
    return click.option(
        "-o", "--output", "out", required=required, type=options.PATH, help="Workload file."
    )


def _trace(name: str, form: "Format[ImportResult]") -> click.Command:
    def read(asked: Asked, **chunk: int) -> dict[str, Any]:
        return asked.write(asked.cut(form.read(asked.file, asked.max_requests, **chunk)))

    own = [_file(), _out(required=True)]
    if form.block_tokens is not None:
        told = "Tokens of the chunk a hash id stands for."
        kind, usual = click.IntRange(1), form.block_tokens
        own.append(
            click.option("--block-tokens", type=kind, default=usual, show_default=True, help=told)
        )
    examples = f"{name} {form.file} -o w.parquet", f"{name} {form.file} --count 64 -o lab.json"
    return _command(name, form.line, _page(form, "", *examples), own, read)


def _result(name: str, form: "Format[list[Measured]]") -> click.Command:
    def read(asked: Asked, run_out: Path | None, index: int | None) -> dict[str, Any]:
        context = click.get_current_context()
        if asked.out is None and run_out is None:
            raise click.UsageError("Missing option '-o' / '--output' or '--run'.", context)
        if asked.out is None and asked.windowed:
            raise click.UsageError("--start and --count cut the workload: give -o.", context)
        found = form.read(asked.file, asked.max_requests)
        return import_results(found, asked, run=run_out, index=index)

    run = click.option(
        "--run", "run_out", metavar="DIR", type=options.PATH, help="Measured run to create."
    )
    chosen = click.option(
        "--index", type=click.IntRange(1), help="Take one benchmark of several, counted from 1."
    )
    examples = f"{name} {form.file} -o w.parquet", f"{name} {form.file} --run my-run"
    own = [_file(), _out(required=False), run, chosen]
    return _command(name, form.line, _page(form, _RESULTS, *examples), own, read)


def _read_run(asked: Asked, arrivals: str | None, engine: int | None) -> dict[str, Any]:
    from collectors.run import engine_of, read_run, run_workload
    from collectors.traces.result import ImportResult
    from replay.workload_frame import batches_of

    run = read_run(asked.file)
    if engine is not None:
        engine = engine_of(run, engine)
    start, count = asked.start or 0, asked.count
    workload = run_workload(run, start, count, arrivals=arrivals or "time", engine=engine)
    if len(workload) > asked.max_requests:
        rule = f"must hold at most {asked.max_requests} requests"
        raise InputError(asked.place, "", rule, f"{len(workload)}")
    return asked.write(ImportResult(batches_of(workload)))


import_command = _Formats(
    {
        "Public traces and runs": [
            *(_trace(name, form) for name, form in TRACES.items()),
            _command(
                "run",
                "a measured run, its directory (with manifest.json)",
                _RUN,
                [_file("DIR"), _out(required=True), options.arrivals, options.engine],
                _read_run,
            ),
        ],
        "Result files, which carry measured latencies too": [
            _result(name, form) for name, form in RESULTS.items()
        ],
    },
    name="import",
    help=_HELP,
    short_help="Traces, result files and runs to workloads.",
    options_metavar=None,
    subcommand_metavar="FORMAT FILE [OPTIONS]",
)
