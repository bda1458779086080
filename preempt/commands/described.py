"""What `preempt workload describe` found, as lines for a person."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from collectors.durations import duration_text

_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.:-=+*#"
_QUANTILES = ("min", "p50", "p90", "p99", "max")
_WIDTH = 80
_LEAST_CELL = 9


def described(facts: Mapping[str, Any], *, can_say: Callable[[str], bool]) -> Iterator[str]:
    """Lines; `can_say` tells whether a text's characters can be shown."""
    yield from _arrivals(facts, _BARS if can_say(_BARS) else _ASCII_BARS)
    yield ""
    yield from _lengths(facts)
    yield ""
    yield from _demand(facts["kv_demand"])
    if prefix := facts["prefix"]:
        seen = prefix["seen_before_frac"]
        yield (
            f"prefix blocks    {prefix['blocks']:,} of {prefix['block_tokens']} tokens,"
            f" {prefix['distinct_blocks']:,} distinct,"
            + ("" if seen is None else f" {100 * seen:.1f} % seen before")
        )
    if tenants := facts["tenants"]:
        largest = _count(tenants["largest_requests"], "request")
        yield f"tenants          {tenants['tenants']:,}, the largest with {largest}"
    if priorities := facts["priorities"]:
        yield from _wrapped("priorities", [f"{value}: {n:,}" for value, n in priorities.items()])
    yield from _wrapped("odd rows", [f"{n:,} {what}" for what, n in facts["suspicious"].items()])


def _arrivals(facts: Mapping[str, Any], bars: str) -> Iterator[str]:
    """When requests came; of one request, and of several at one moment, there is no rate."""
    arrivals, rate, mean = facts["arrivals"], facts["rate"], facts["mean_requests_per_s"]
    requests = _count(facts["requests"], "request")
    if mean is None:
        yield f"requests         {requests}" + (" at once" if facts["requests"] > 1 else "")
        return
    yield f"requests         {requests} in {_seconds(facts['span_us'])}, {mean:.3g} a second"
    yield f"rate             {_drawn(rate['requests'], bars)}"
    most = _count(max(rate["requests"]), "request")
    yield f"                 0 to {most} a window of {_seconds(rate['window_us'])}"
    yield (
        f"arrivals         whole multiples of {arrivals['resolution']};"
        f" {arrivals['tied_requests']:,} tied, most at once {arrivals['largest_tie']:,}"
    )
    variation = arrivals["gap_variation"]
    yield (
        f"                 longest gap {_seconds(arrivals['longest_gap_us'])}"
        + ("" if variation is None else f"; gaps vary {variation:.2f} (Poisson: 1)")
    )


def _lengths(facts: Mapping[str, Any]) -> Iterator[str]:
    """A table whose columns are as wide as their numbers."""
    table = [["tokens", *_QUANTILES, "mean"]]
    for name in ("prompt_tokens", "output_tokens", "context_tokens"):
        row = facts[name]
        table.append([name, *(f"{row[q]:,}" for q in _QUANTILES), f"{row['mean']:,.1f}"])
    widths = [max(len(cell) + 1 for cell in column) for column in zip(*table, strict=True)]
    for name, *cells in table:
        told = (c.rjust(max(w, _LEAST_CELL)) for c, w in zip(cells, widths[1:], strict=True))
        yield f"{name:<15}" + "".join(told)


def _demand(demand: Mapping[str, Any]) -> Iterator[str]:
    blocks = _count(demand["largest_request_blocks"], "block")
    yield f"largest request  {blocks} of {demand['block_size']} tokens:"
    yield "                 the least capacity that can run all"
    peak, running = demand["peak_blocks"], demand["peak_running"]
    yield f"KV demand        peak {_count(peak, 'block')}, {_count(running, 'request')} at once,"
    yield (
        f"                 if each ran at once at {duration_text(demand['assumed_tpot_us'])}"
        " a token (assumed, not measured)"
    )


def _wrapped(title: str, told: list[str]) -> Iterator[str]:
    """Parts after a title, as many on a line as fit."""
    line = f"{title:<17}"
    for k, part in enumerate(told or ["none"]):
        text = part + ("," if k < len(told) - 1 else "")
        if line.strip() not in ("", title) and len(line) + len(text) > _WIDTH:
            yield line.rstrip()
            line = " " * 17
        line += text + " "
    yield line.rstrip()


def _drawn(counts: list[int], bars: str) -> str:
    most = max(counts)
    return "".join(" " if n == 0 else bars[min(8 * n // (most + 1), 7)] for n in counts)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("s" if number != 1 else "")


def _seconds(us: int) -> str:
    return f"{us / 1e6:,.6g} s"
