"""What a replay refuses before it allocates anything: too many, too large, too late."""

from dataclasses import replace

from replay.config import Config
from replay.errors import InputError
from replay.strict import MAX_SAFE_INTEGER
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
    limits, tick_us, most = config.limits, config.engine.tick_us, _most_tokens(config)
    last_us = MAX_SAFE_INTEGER - config.longest_us()

    def check(request: Request, place: str) -> None:
        if tick_us is None:
            if request.arrival_us > last_us:
                rule = (
                    f"must be at most {last_us}, so that limits.max_ticks steps of [timing] end by"
                    " 2^53 - 1 (a smaller limits.max_ticks covers more)"
                )
                raise InputError(place, "arrival_us", rule, str(request.arrival_us))
        elif (tick := request.arrival_us // tick_us) >= limits.max_ticks:
            rule = (
                f"must come before tick {limits.max_ticks} (limits.max_ticks;"
                f" a larger engine.tick_us, now {tick_us}, covers more time)"
            )
            raise InputError(place, "arrival_us", rule, f"{request.arrival_us} (tick {tick})")
        if not keep_oversize and request.prompt_tokens + request.output_tokens > most:
            raise _oversize(request, config, place)

    return check


def drop_oversize(workload: Workload, config: Config, place: str) -> tuple[Workload, list[str]]:
    """Leave out what could never fit; gives the rest and the ids left out."""
    most = _most_tokens(config)
    large = [r.prompt_tokens + r.output_tokens > most for r in workload.requests]
    ids = [r.request_id for r, wrong in zip(workload.requests, large, strict=True) if wrong]
    if not ids:
        return workload, ids
    kept = tuple(r for r, wrong in zip(workload.requests, large, strict=True) if not wrong)
    if not kept:
        raise InputError(place, "", "must hold a request that fits", f"{len(ids)} that cannot")
    note = dict(workload.provenance or {}) | {"oversize_dropped": len(ids)}
    return replace(workload, requests=kept, provenance=note), ids


def _bounds(config: Config) -> list[tuple[int, str]]:
    """Most tokens (prompt and output) a request may come to, and the rule that says so."""
    engine = config.engine
    pool = engine.capacity_blocks * engine.block_size
    fit = f"must fit {engine.capacity_blocks} blocks of {engine.block_size} tokens"
    if engine.max_model_len is None:
        return [(pool, fit)]
    return [
        (engine.max_model_len, f"must be at most engine.max_model_len, {engine.max_model_len}"),
        (pool + 1, f"{fit}, engine.capacity_blocks, without the last token, which needs no KV"),
    ]


def _most_tokens(config: Config) -> int:
    return min(most for most, _ in _bounds(config))


def _oversize(request: Request, config: Config, place: str) -> InputError:
    tokens = request.prompt_tokens + request.output_tokens
    rule = next(rule for most, rule in _bounds(config) if tokens > most)
    rule += " (--on-oversize drop leaves such requests out)"
    return InputError(place, "prompt_tokens + output_tokens", rule, str(tokens))
