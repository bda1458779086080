"""Entry point of `preempt`: finds the subcommand, and turns what goes wrong into one line.

Subcommands are imported only when they run, so `preempt --help` does not wait for polars or
duckdb. Exit codes are SPEC §12's; an error class carries its own in `exit_code`.
"""

import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from preempt.commands.lazy import LazyGroup
from preempt.commands.options import say
from preempt.lost_signals import TERMINATED, coming_again
from replay.errors import is_interrupt
from replay.version import __version__

INTERNAL, INTERRUPTED, USAGE = 70, 130, 2
# The reader had enough, as with `| head`: what a shell calls death by SIGPIPE.
_CLOSED_PIPE = 128 + signal.SIGPIPE

# Name -> where it lives and its line in `preempt --help`, in the order of a first day's work.
COMMANDS = {
    "demo": ("preempt.commands.demo:demo_command", "The whole pipeline on recorded data."),
    "import": ("preempt.commands.importing:import_command", "Turn traces and more into workloads."),
    "export": ("preempt.commands.exporting:export_command", "Write a workload for a replayer."),
    "sanitize": (
        "preempt.commands.sanitize:sanitize_command",
        "Make runs and workloads shareable.",
    ),
    "workload": ("preempt.commands.workload:workload_group", "Look at workloads and shape them."),
    "doctor": ("preempt.commands.doctor:doctor_command", "Look at a vLLM: what can be collected."),
    "collect": ("preempt.commands.collect:collect_group", "Collect evidence from a running vLLM."),
    "replay": ("preempt.commands.replay:replay_command", "Replay a workload into a ledger."),
    "verify": ("preempt.commands.replay:verify_command", "Check ledgers with the oracle."),
    "calibrate": (
        "preempt.commands.calibrate:calibrate_command",
        "Fit step durations to a run, for timed replays.",
    ),
    "load": ("preempt.commands.store:load_command", "Load ledgers and runs: DuckDB or a lake."),
    "sql": ("preempt.commands.store:sql_command", "Query a store or a lake, read-only."),
    "fidelity": ("preempt.commands.fidelity:fidelity_command", "Join a ledger with its own run."),
    "gate": ("preempt.commands.gate:gate_group", "Decide whether a change may roll out."),
    "compare": (
        "preempt.commands.compare:compare_command",
        "Drive both sides of a change in pairs, and judge it.",
    ),
    "report": ("preempt.commands.report:report_command", "Write a report of ledgers and runs."),
}


@click.group(
    cls=LazyGroup,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Start with:  preempt demo
Exit codes:  0 done or pass, 1 a check failed, 2 bad input or usage, 3 inconclusive,
             4 refused as not comparable, 70 internal error, 130 interrupted.
Completion:  eval "$(_PREEMPT_COMPLETE=bash_source preempt)"   (or zsh_source, fish_source)
""",
)
@click.version_option(__version__, prog_name="preempt")
def cli() -> None:
    """Find out which vLLM request paid for KV-cache preemption, and what it cost.

    Replays a workload under declared recovery policies, joins the modelled ledger with what a
    real engine measured, and decides rollout gates. Modelled numbers are never shown as measured.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    _usable_streams()
    terminated = False

    def terminate(*_: object) -> None:
        nonlocal terminated
        terminated = True
        sys.exit(TERMINATED)

    # As an exception it lets writers take their unfinished files with them; servers have their own.
    signal.signal(signal.SIGTERM, terminate)
    try:
        with coming_again():
            code = _run(arguments)
    except BrokenPipeError:  # nobody read the error either
        code = _CLOSED_PIPE
    # A library the signal came into may have made another error of it, as DuckDB does.
    if code and terminated:
        code = TERMINATED
    _let_go_of_streams()
    sys.exit(code)


def _run(arguments: Sequence[str] | None) -> int:
    stdout = sys.stdout
    try:
        code = cli.main(arguments, prog_name="preempt", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as exc:
        click.echo(exc.format_message(), err=True)
        return USAGE
    except click.ClickException as exc:
        context = getattr(exc, "ctx", None)
        path = context.command_path if context else "preempt"
        return _fail(f"{exc.format_message()} See: {path} --help", USAGE)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return _CLOSED_PIPE
    except SystemExit as exc:
        # Click answers a closed pipe itself, with 1 and another stdout.
        return _code(exc.code) if sys.stdout is stdout else _CLOSED_PIPE
    except Exception as exc:  # noqa: BLE001 (nothing may leave as a traceback)
        return _unexpected(exc)
    return _code(code)


def _code(code: object) -> int:
    return code if isinstance(code, int) else 0


def _let_go_of_streams() -> None:
    """Drop what cannot be written: Python would try again at exit, and end with 120 for it."""
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _usable_streams() -> None:
    """Give a process started without output somewhere to write, and no text it cannot say."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 (open while we run)
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _unexpected(exc: Exception) -> int:
    if is_interrupt(exc):
        return _fail("interrupted", INTERRUPTED)
    if (code := getattr(exc, "exit_code", None)) is not None:
        return _fail(str(exc), code)
    if isinstance(exc, OSError):
        where = f"{exc.filename}: " if exc.filename else ""
        return _fail(f"{where}{exc.strerror or exc}", USAGE)
    if os.environ.get("PREEMPT_DEBUG"):
        traceback.print_exc()
    frame = traceback.extract_tb(exc.__traceback__)[-1]
    place = f"{type(exc).__name__} at {Path(frame.filename).name}:{frame.lineno}"
    return _fail(f"internal error, {place}; PREEMPT_DEBUG=1 shows more, please report it", INTERNAL)


def _fail(message: str, code: int) -> int:
    say(f"preempt: {message}")
    return code
