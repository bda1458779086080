"""Swap in the vllm-v1 walk: which recovery a victim gets, and the one link to the host.

Host bytes are held from the eviction until the restore completes, or the request does (SPEC §5;
docs/vllm-v1.md, "What-ifs").
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from replay.config import Policy
from replay.events import Reason, Recovery
from replay.oracle.requests import Progress


class Decision(NamedTuple):
    """A victim's recovery, why it is not simply the policy's, and both estimates in ticks."""

    recovery: Recovery
    reason: Reason | None
    recompute_ticks: int
    swap_ticks: int


class Host:
    """What the host holds, and who waits for the link."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.held_bytes = 0
        self.link_left = 0  # bytes, in this tick
        self.going_out: list[Progress] = []

    def bytes(self, tokens: int) -> int:
        """Size of the KV of so many tokens."""
        return tokens * self.policy.kv_bytes_per_token

    def decide(self, victim: Progress) -> Decision:
        """Choose the recovery of a victim, from what it loses."""
        policy, size = self.policy, self.bytes(victim.computed)
        recompute = -(-victim.computed // policy.prefill_tokens_per_tick)
        swap = 2 * -(-size // policy.transfer_bytes_per_tick)
        if victim.in_left:
            return Decision(Recovery.SWAP, Reason.ON_HOST, recompute, swap)
        if victim.work_left:
            return Decision(Recovery.RECOMPUTE, Reason.INCOMPLETE, recompute, swap)
        wanted, reason = policy.recovery == "swap", None
        if policy.recovery == "adaptive":
            wanted = swap < recompute
            reason = Reason.TIE if swap == recompute else Reason.CHEAPER
        if wanted and 0 < policy.host_capacity_bytes < self.held_bytes + size:
            return Decision(Recovery.RECOMPUTE, Reason.HOST_FULL, recompute, swap)
        return Decision(Recovery.SWAP if wanted else Recovery.RECOMPUTE, reason, recompute, swap)

    def copy_out(self, victim: Progress) -> None:
        """Start the swap-out of what a victim has computed."""
        victim.on_host_tokens = victim.computed
        victim.out_left = self.bytes(victim.computed)
        self.held_bytes += victim.out_left
        self.going_out.append(victim)

    def drain(self) -> Iterator[Progress]:
        """Start a tick's link and spend it on swap-outs, oldest first; gives each that is done."""
        self.link_left = self.policy.transfer_bytes_per_tick
        while self.going_out and self.link_left:
            oldest = self.going_out[0]
            moved = min(self.link_left, oldest.out_left)
            oldest.out_left -= moved
            self.link_left -= moved
            if oldest.out_left == 0:
                del self.going_out[0]
                yield oldest

    def restore(self, running: Sequence[Progress]) -> Iterator[tuple[Progress, int]]:
        """Spend the rest of the link in running order; gives each restore done, and its bytes."""
        for who in running:
            moved = min(self.link_left, who.in_left)
            who.in_left -= moved
            self.link_left -= moved
            if moved and who.in_left == 0:
                yield who, self._let_go(who)

    def drop(self, who: Progress) -> None:
        """Forget the host copy of a request that completed while it waited."""
        if who.out_left:
            self.going_out.remove(who)
            who.out_left = 0
        self._let_go(who)

    def _let_go(self, who: Progress) -> int:
        size = self.bytes(who.on_host_tokens)
        self.held_bytes -= size
        who.on_host_tokens = 0
        return size
