"""What a ledger does not model, and where it leaves what vLLM does; it travels in every export."""

from replay.config import Config

LIMITATIONS = (
    "Independent requests only: no beam groups, speculative branches or distributed cache"
    " ownership; prefix sharing only where the profile models it.",
    "Current vLLM V1 recovers a preempted request by recomputation; swap is a historical systems"
    " comparison and no flag to turn on.",
    "Modelled ticks are not latency.",
)


def what_ifs(config: Config) -> tuple[str, ...]:
    """One sentence for each way in which a replay is not what its engine does; the lab has none."""
    if config.engine.profile == "lab":
        return ()
    policy, found = config.policy, []
    if policy.recovery != "recompute":
        found.append(
            f"What-if: recovery {policy.recovery}; no current vLLM release swaps at preemption."
        )
    if policy.victim != "rule":
        found.append(f"What-if: victim rule {policy.victim} instead of the engine's own.")
    if config.assumed_from is not None:
        found.append(
            f"Rule {config.engine.rule} was not checked;"
            f" it is assumed to decide as {config.assumed_from}."
        )
    return tuple(found)


def labels(config: Config) -> dict[str, list[str]]:
    """What every export of a ledger says: `limitations`, and for an engine's profile `what_ifs`."""
    said = {"limitations": list(LIMITATIONS)}
    if config.engine.profile != "lab":
        said["what_ifs"] = list(what_ifs(config))
    return said
