"""What the steps of a timed replay came to, and how far they left what their durations rest on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Greatest:
    """One number for each thing that a step's duration depends on."""

    prefill_tokens: int
    decode_requests: int
    kv_tokens: int


@dataclass(frozen=True)
class TimedSteps:
    """Steps that computed something, and the greatest of each size among them.

    `outside` of them went beyond the calibration's range (`beyond` counts by what, a step maybe
    under several), the first at tick `outside_since`; 0 and None without a calibration.
    """

    steps: int
    greatest: Greatest
    outside: int
    beyond: Greatest
    outside_since: int | None
