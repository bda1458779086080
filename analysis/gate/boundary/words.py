"""A gate's boundary in plain words, before anything is replayed."""

from analysis.gate.boundary.modelled import MODELLED_FIELDS, tests_of
from analysis.gate.contract import ARRIVAL, Gate
from replay.strict import printable


def boundary_words(gate: Gate) -> str:
    """What is replayed, and what must not move."""
    if gate.boundary is None:
        return ""
    steps = ", ".join(f"{step:g}" for step in sorted(gate.boundary.steps))
    tests = tests_of(gate)
    names = ", ".join(dict.fromkeys(printable(t.predicate.id) for t in tests))
    if not tests:
        return "nothing can be asked: no check has a limit over latencies."
    return (
        f"both sides are replayed with {', '.join(gate.boundary.rates)} x {steps}, one at a time;"
        f" no step may move a modelled estimate of {names} across its limit."
    )


def boundary_needs(gate: Gate) -> list[str]:
    """What has to be given for it, beside the pairs."""
    if gate.boundary is None:
        return []
    lines = [
        "Boundary: a ledger of either side's configuration over one workload that the runs were"
        " offered (--ledger twice), more workloads as many more."
    ]
    if foreign := _foreign(gate):
        lines.append(f"No replay models {', '.join(foreign)}: the boundary stays inconclusive.")
    if gate.boundary.measured:
        speeds = " and ".join(f"{s:g}" for s in sorted(gate.boundary.steps))
        lines.append(
            f"Boundary, measured: at least one pair at {ARRIVAL} x {speeds} each"
            " (--boundary-baseline, --boundary-candidate), driven at so many times the pairs'"
            " --speed."
        )
    return lines


def stays_open(gate: Gate) -> bool:
    """Whether no ledger could decide the boundary."""
    return gate.boundary is not None and (not tests_of(gate) or bool(_foreign(gate)))


def _foreign(gate: Gate) -> list[str]:
    return sorted({f for t in tests_of(gate) for f in t.fields()} - set(MODELLED_FIELDS))
