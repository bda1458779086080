"""How a victim's KV comes back: both estimates, and the frozen choice between them (SPEC §5)."""

from typing import NamedTuple

from replay.config import Policy
from replay.events import Reason, Recovery


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
    recompute_ticks = _ceil(context_tokens, policy.prefill_tokens_per_tick)
    swap_ticks = 2 * _ceil(resident_bytes, policy.transfer_bytes_per_tick)

    def chosen(recovery: Recovery, reason: Reason | None) -> Choice:
        return Choice(recovery, reason, recompute_ticks, swap_ticks)

    if on_host:
        return chosen(Recovery.SWAP, Reason.ON_HOST)
    if incomplete:
        return chosen(Recovery.RECOMPUTE, Reason.INCOMPLETE)
    reason = None
    swap = policy.recovery == "swap"
    if policy.recovery == "adaptive":
        swap = swap_ticks < recompute_ticks
        reason = Reason.TIE if swap_ticks == recompute_ticks else Reason.CHEAPER
    capacity = policy.host_capacity_bytes
    if swap and capacity and host_held_bytes + resident_bytes > capacity:
        return chosen(Recovery.RECOMPUTE, Reason.HOST_FULL)
    return chosen(Recovery.SWAP if swap else Recovery.RECOMPUTE, reason)


def _ceil(amount: int, rate: int) -> int:
    return -(-amount // rate)
