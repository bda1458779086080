"""What a replay refuses before it allocates anything: too many, too large, too late."""

from collections.abc import Callable
from dataclasses import replace

from replay.config import Config
from replay.errors import InputError
from replay.workload import Check, Request, Workload


def check_limits(workload: Workload, config: Config, place: str) -> None:
    """Refuse more requests than the limits, and each request that `request_check` refuses."""
    limits = config.limits
    if len(workload) > limits.max_requests:
        rule = f"must hold at most {limits.max_requests} requests (limits.max_requests)"
        raise InputError(place, "", rule, str(len(workload)))
    check = request_check(config)
    for position, request in enumerate(workload.requests):
        check(request, f"{place}: request {position}")


def request_check(config: Config, *, keep_oversize: bool = False) -> Check:
    """What this configuration asks of each request: to arrive in time, and to fit the pool.

    The check raises `InputError` at the place it is given; a reader gives the line.
    """
    engine, limits, tick_us = config.engine, config.limits, config.engine.tick_us or 1
    fits = _FITS[engine.profile]

    def check(request: Request, place: str) -> None:
        tick = request.arrival_us // tick_us
        if tick >= limits.max_ticks:
            rule = (
                f"must come before tick {limits.max_ticks} (limits.max_ticks;"
                f" a larger engine.tick_us, now {tick_us}, covers more time)"
            )
            raise InputError(place, "arrival_us", rule, f"{request.arrival_us} (tick {tick})")
        if not keep_oversize and not fits(request, config):
            rule = (
                f"must fit {engine.capacity_blocks} blocks of {engine.block_size} tokens"
                " (--on-oversize drop leaves such requests out)"
            )
            tokens = request.prompt_tokens + request.output_tokens
            raise InputError(place, "prompt_tokens + output_tokens", rule, str(tokens))

    return check


def drop_oversize(workload: Workload, config: Config, place: str) -> tuple[Workload, list[str]]:
    """Leave out what could never fit; gives the rest and the ids left out."""
    fits = _FITS[config.engine.profile]
    wrong = {k for k, r in enumerate(workload.requests) if not fits(r, config)}
    kept = tuple(r for k, r in enumerate(workload.requests) if k not in wrong)
    ids = [r.request_id for k, r in enumerate(workload.requests) if k in wrong]
    if not kept:
        raise InputError(place, "", "must hold a request that fits", f"{len(ids)} that cannot")
    if not ids:
        return workload, ids
    note = dict(workload.provenance or {}) | {"oversize_dropped": len(ids)}
    return replace(workload, requests=kept, provenance=note), ids


def _fits_lab(request: Request, config: Config) -> bool:
    tokens = request.prompt_tokens + request.output_tokens
    return -(-tokens // config.engine.block_size) <= config.engine.capacity_blocks


def _fits_vllm(request: Request, config: Config) -> bool:
    engine, tokens = config.engine, request.prompt_tokens + request.output_tokens
    blocks = -(-(tokens - 1) // engine.block_size)  # the last token needs no KV
    return blocks <= engine.capacity_blocks and tokens <= (engine.max_model_len or 0)


_FITS: dict[str, Callable[[Request, Config], bool]] = {"lab": _fits_lab, "vllm-v1": _fits_vllm}
