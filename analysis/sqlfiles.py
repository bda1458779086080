"""The SQL of this package: one statement, table or view per file, its grain in the first comment.

Python only binds parameters; nothing here is put together from text.
"""

from functools import cache
from importlib.resources import files

# Order matters: a view may use those before it.
TABLES = (
    "store_info",
    "modelled_ledgers",
    "modelled_requests",
    "modelled_events",
    "measured_runs",
    "measured_workloads",
    "measured_requests",
    "measured_events",
    "measured_steps",
    "metric_samples",
    "gate_results",
)
VIEWS = (
    "modelled_side",
    "measured_side",
    "ledger_arrivals",
    "all_differences",
    "join_differences",
    "joined_requests",
    "fidelity_requests",
    "fidelity_scores",
    "limitations",
    "what_ifs",
    "flagged_requests",
    "preemption_costs",
    "run_status_counts",
    "preemption_counter",
    "preemption_counter_totals",
    "measured_request_groups",
    "modelled_request_groups",
    "measured_groups",
    "modelled_groups",
    "measured_distributions",
    "modelled_distributions",
    "measured_victim_waits",
    "measured_victims",
    "modelled_victim_waits",
    "histogram_increases",
    "histogram_totals",
    "histogram_intervals",
    "pressure_windows",
    "pressure_seconds",
    "pressure_episodes",
)


@cache
def sql(kind: str, name: str) -> str:
    """Text of one file; `kind` is tables, views, joins or queries."""
    return files("analysis").joinpath("sql", kind, f"{name}.sql").read_text("utf-8")


@cache
def names(kind: str) -> tuple[str, ...]:
    """Names of all files of a kind, sorted."""
    found = (f.name for f in files("analysis").joinpath("sql", kind).iterdir())
    return tuple(sorted(n.removesuffix(".sql") for n in found if n.endswith(".sql")))


def first_comment(text: str) -> str:
    """The comment a file begins with, without its dashes."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    return "\n".join(lines)


def quoted(name: str) -> str:
    """An identifier as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string as SQL takes it, where no parameter is allowed."""
    return "'" + text.replace("'", "''") + "'"
