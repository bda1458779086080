"""How a victim's KV comes back: both estimates, and the frozen choice between them (SPEC §5).

`estimates` and `decide` are plain integers in and out, so that the compiled scheduler calls the
same rule as the lab does through `choose`.
"""

from typing import NamedTuple

from replay.config import RECOVERIES, Policy
from replay.events import NULL, Reason, Recovery

# Plain integers: a compiler takes them as constants. Policies by their place in RECOVERIES.
_ALWAYS_SWAP, _ADAPTIVE = RECOVERIES.index("swap"), RECOVERIES.index("adaptive")
_RECOMPUTE, _SWAP = int(Recovery.RECOMPUTE), int(Recovery.SWAP)
_ON_HOST, _INCOMPLETE = int(Reason.ON_HOST), int(Reason.INCOMPLETE)
_HOST_FULL, _TIE, _CHEAPER = int(Reason.HOST_FULL), int(Reason.TIE), int(Reason.CHEAPER)


class Choice(NamedTuple):
    """One victim's recovery, why it is not simply the policy's, and both estimates."""

    recovery: Recovery
    reason: Reason | None
    recompute_ticks: int
    swap_ticks: int


def choose(
    policy: Policy,
    context_tokens: int,
    *,
    on_host: bool = False,
    incomplete: bool = False,
    host_held_bytes: int = 0,
) -> Choice:
    """Decide for a victim of `context_tokens`; equal estimates go to recompute.

    `on_host`: its restore had not finished, so its host copy is still whole; `incomplete`: its
    prefill or replay had not finished, so there is no KV worth copying; `host_held_bytes`: what
    the host holds already.
    """
    resident_bytes = context_tokens * policy.kv_bytes_per_token
    ticks = estimates(
        context_tokens,
        resident_bytes,
        policy.prefill_tokens_per_tick,
        policy.transfer_bytes_per_tick,
    )
    capacity = policy.host_capacity_bytes
    full = 0 < capacity < host_held_bytes + resident_bytes
    recovery, reason = decide(RECOVERIES.index(policy.recovery), *ticks, on_host, incomplete, full)
    return Choice(Recovery(recovery), None if reason == NULL else Reason(reason), *ticks)


def estimates(tokens: int, size: int, prefill_rate: int, link_rate: int) -> tuple[int, int]:
    """Ticks to compute the tokens again, and to copy their `size` bytes out and back in."""
    return -(-tokens // prefill_rate), 2 * -(-size // link_rate)


def decide(
    policy: int,
    recompute_ticks: int,
    swap_ticks: int,
    on_host: bool,
    incomplete: bool,
    host_full: bool,
) -> tuple[int, int]:
    """Codes of the recovery and of the reason, NULL for none; `policy` is a place in RECOVERIES."""
    if on_host:
        return _SWAP, _ON_HOST
    if incomplete:
        return _RECOMPUTE, _INCOMPLETE
    reason = NULL
    swap = policy == _ALWAYS_SWAP
    if policy == _ADAPTIVE:
        swap = swap_ticks < recompute_ticks
        reason = _TIE if swap_ticks == recompute_ticks else _CHEAPER
    if not swap:
        return _RECOMPUTE, reason
    if host_full:
        return _RECOMPUTE, _HOST_FULL
    return _SWAP, reason
