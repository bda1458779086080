"""How the load of a driven run was offered, as far as it bears on what the run may be read as.

A client that fell behind its schedule offered another load than its workload says, and latencies
hold its own backlog. Nothing corrects for that, so it is said wherever the run is shown.
"""

from collections.abc import Callable
from typing import Any

from replay.strict import printable


def driver_limitations(run_id: str, value: Callable[[str], Any]) -> list[str]:
    """Sentences for one run; `value` gives a manifest field by its dotted name, None if unknown."""
    name = printable(run_id)
    found: list[str] = []
    if value("kind") != "driven":
        return found
    match value("driver.behind"):
        case True:
            found.append(f"The load driver of {name} fell behind its schedule{_how(value)}.")
        case None:
            found.append(f"Whether the load of {name} kept to its schedule is not known.")
    if (limit := value("driver.concurrency")) is not None:
        found.append(
            f"The load of {name} was limited to {limit} requests in flight: where that many were,"
            " the next waited for the engine (closed loop)."
        )
    return found


def _how(value: Callable[[str], Any]) -> str:
    names = ("late_requests", "lateness_limit_us", "max_lateness_us")
    late, limit_us, most_us = (value(f"driver.{name}") for name in names)
    consequence = "its latencies include the client's own backlog"
    if late is None or limit_us is None or most_us is None:
        return f"; {consequence}"
    return (
        f" ({late} requests more than {limit_us / 1000:g} ms late, the latest by"
        f" {most_us / 1000:,.0f} ms); {consequence}"
    )
