"""What a client saw of one request, and the row that makes. Times are microseconds of the run."""

from dataclasses import dataclass
from typing import Any

from collectors.tpot import tpot_us
from replay.workload import Request

CLIENT_SCHEMA = "preemption-client/1"


@dataclass(slots=True)
class Seen:
    """One sent request as it goes on; `problem` says in one word what went wrong."""

    intended_us: int
    lateness_us: int
    sent_us: int
    status: str = "censored"
    problem: str | None = None
    http_status: int | None = None
    answered_us: int | None = None
    first_us: int | None = None
    last_us: int | None = None
    chunks: int = 0
    largest_gap_us: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None

    def token(self, now_us: int) -> None:
        """Take note of a chunk that brought tokens."""
        if self.last_us is None:
            self.first_us = now_us
        else:
            self.largest_gap_us = max(self.largest_gap_us or 0, now_us - self.last_us)
        self.last_us = now_us
        self.chunks += 1


def request_row(request: Request, intended_us: int, seen: Seen | None) -> dict[str, Any]:
    """Row of `measured_requests`; what was never sent (`seen` None) arrives when it was due."""
    row: dict[str, Any] = {
        "request_id": request.request_id,
        "arrival_us": intended_us,
        "prompt_tokens": request.prompt_tokens,
        "generated_tokens": None,
        "max_tokens": request.output_tokens,
        "priority": request.priority,
        "tenant": request.tenant,
        "prefix_blocks": list(request.prefix_blocks) if request.prefix_blocks else None,
        "status": "unsent",
        "finish_reason": None,
        "ttft_us": None,
        "tpot_us": None,
        "largest_gap_us": None,
        "e2e_us": None,
    }
    if seen is None:
        return row
    ended = seen.last_us is not None and seen.status == "ok"
    return row | {
        "arrival_us": seen.sent_us,
        "prompt_tokens": seen.prompt_tokens or request.prompt_tokens,
        "generated_tokens": seen.completion_tokens,
        "status": seen.status,
        "finish_reason": seen.finish_reason,
        "ttft_us": None if seen.first_us is None else seen.first_us - seen.sent_us,
        "tpot_us": tpot_us(seen.first_us, seen.last_us, seen.completion_tokens) if ended else None,
        "largest_gap_us": seen.largest_gap_us,
        "e2e_us": seen.last_us - seen.sent_us if ended and seen.last_us is not None else None,
    }


def client_row(request: Request, intended_us: int, seen: Seen | None) -> dict[str, Any]:
    """Row of the run's `client.parquet`, which is private: how sending and receiving went."""
    row: dict[str, Any] = {"request_id": request.request_id, "intended_us": intended_us}
    names = ("sent_us", "lateness_us", "answered_us", "http_status", "problem", "chunks")
    for name in (*names, "largest_gap_us"):
        row[name] = None if seen is None else getattr(seen, name)
    return row
