"""`preempt collect`: what runs on the host of an engine, or beside it."""

from preempt.commands.lazy import lazy_group

COMMANDS = {
    "metrics": ("preempt.commands.collect_metrics:metrics_command", "Scrape one engine's metrics."),
    "drive": ("preempt.commands.collect_drive:drive_command", "Offer a workload to an engine."),
    "pack": ("preempt.commands.collect_pack:pack_command", "Turn a recorder's spool into a run."),
    "run": ("preempt.commands.collect_run:run_command", "Scrape many engines, as a service."),
    "prometheus": (
        "preempt.commands.collect_prometheus:prometheus_command",
        "Take samples that a Prometheus server already has.",
    ),
    "reparse": (
        "preempt.commands.collect_reparse:reparse_command",
        "Read a run's raw pages again with today's parser.",
    ),
}

collect_group = lazy_group(
    "collect",
    COMMANDS,
    help="""Collect evidence from a running vLLM, without touching what it does.

    A first look at a host: preempt doctor --url http://127.0.0.1:8000
    Every command writes a run directory, or adds to one: preempt load and preempt replay take it.
    """,
)
