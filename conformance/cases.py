"""Cases that put a scheduler under pressure, over every option it has, from one seed.

A case is a plain JSON object: `name`, `config` (tables as in a configuration file),
`prefix_block_tokens` and `requests` (workload rows). The same release, count and seed always give
the same cases, so a result can be kept and compared later.
"""

import itertools
import random
from collections.abc import Iterator, Mapping
from typing import Any

from replay.rules import OPTIONS, lacking

Case = dict[str, Any]
Row = dict[str, Any]

# What must be exercised, alone and in every pair; some releases lack the option for it.
FEATURES = {
    "caching": "enable_prefix_caching",
    "async": "async_scheduling",
    "priority": "scheduling_policy",
    "chunked": "enable_chunked_prefill",
    "watermark": "watermark",
    "no-reserve": "scheduler_reserve_full_isl",
}
BLOCK_SIZES = (1, 2, 3, 4, 5, 8, 8, 16, 16, 32)
LETTERS = "ARaré中𝛼"  # ids tie-break as UTF-8 bytes
# Ticks after the last arrival: some ties make vLLM evict in circles for ever.
BOUND = 2000
KINDS = (
    "plain",
    "ties",
    "burst",
    "long",
    "tiny",
    "shared",
    "trickle",
    "decode",
    "decode",
    "inverted",
)


def features_of(release: str, rule: str | None = None) -> tuple[str, ...]:
    """The features this release has an option for; with a rule, those that both have."""
    missing = lacking(f"vllm-{release}") | (lacking(rule) if rule else frozenset())
    return tuple(feature for feature, option in FEATURES.items() if option not in missing)


def generate(release: str, count: int, seed: int, rule: str | None = None) -> Iterator[Case]:
    """`count` cases for one release; every pair of features comes round again and again.

    With a `rule` they stay within what that rule can follow.
    """
    features = features_of(release, rule)
    turns = [{f} for f in features] + [set(pair) for pair in itertools.combinations(features, 2)]
    turns += [turn for turn in turns if "watermark" in turn]  # it prevents preemptions
    turns += [set(), set(features)]
    for number in range(count):
        rng = random.Random(f"{release}/{seed}/{number}")  # noqa: S311 (repeatable)
        wanted = turns[number % len(turns)] | {f for f in features if _chance(rng, 25)}
        yield _case(f"{seed}-{number:04d}", release, rule, wanted, rng)


def overtaken(release: str, count: int, seed: int, rule: str | None = None) -> Iterator[Case]:
    """Those of `generate`'s cases that are under priority, some requests coming late.

    Their `engine_arrival_us` is earlier than that of requests which reached the scheduler before
    them, as of long prompts: the clock is read first, then the text becomes tokens.
    """
    for case in generate(release, count, seed, rule):
        if case["config"]["engine"]["scheduling_policy"] == "priority":
            rng = random.Random(f"{release}/{seed}/{case['name']}/overtaken")  # noqa: S311
            yield case | {"name": f"{case['name']}-overtaken", "requests": _late(case, rng)}


def _late(case: Case, rng: random.Random) -> list[Row]:
    rows = case["requests"]
    in_order = sorted(range(len(rows)), key=lambda k: rows[k]["arrival_us"])
    most = rng.choice([2, 5, len(rows)])
    before = [
        place - (rng.randint(1, most) if _chance(rng, 40) else 0) for place in range(len(rows))
    ]
    by_clock = sorted(range(len(rows)), key=lambda place: before[place])
    at = {in_order[place]: time for time, place in enumerate(by_clock)}
    return [row | {"engine_arrival_us": at[k]} for k, row in enumerate(rows)]


def _chance(rng: random.Random, percent: int) -> bool:
    return rng.randrange(100) < percent


def _case(name: str, release: str, rule: str | None, wanted: set[str], rng: random.Random) -> Case:
    kind = rng.choice(KINDS)
    if "caching" in wanted and _chance(rng, 40):
        kind = "shared"
    if "watermark" in wanted and _chance(rng, 60):
        kind = "decode"
    if {"async", "priority"} <= wanted and _chance(rng, 30):
        kind = "inverted"
    block_size = rng.choice([1, 2]) if kind == "inverted" else rng.choice(BLOCK_SIZES)
    chunk = _chunk_tokens(block_size, rng) if kind == "shared" or _chance(rng, 40) else None
    tick_us = rng.choice([1, 1, 7, 1000])
    requests = _requests(kind, block_size, chunk, tick_us, rng)
    engine = _engine(wanted, requests, block_size, rng)
    engine |= {"rule": rule or f"vllm-{release}", "tick_us": tick_us}
    last = max(r["arrival_us"] for r in requests) // tick_us
    return {
        "name": f"{name}-{kind}",
        "config": {"engine": within(engine, release, rule), "limits": {"max_ticks": last + BOUND}},
        "prefix_block_tokens": chunk,
        "requests": requests,
    }


def _chunk_tokens(block_size: int, rng: random.Random) -> int:
    """Often no multiple of the block size: a block may then span two chunks."""
    return rng.choice([block_size, 2 * block_size, 3 * block_size + 1, max(1, block_size // 2), 5])


def _requests(
    kind: str, block_size: int, chunk: int | None, tick_us: int, rng: random.Random
) -> list[Row]:
    count = {"tiny": 6, "long": 12}.get(kind, rng.randint(16, 40))
    unit = min(12, max(4, block_size)) if kind != "tiny" else 2
    longest = {"long": 24, "decode": 2}.get(kind, 6) * unit
    most = {"decode": 20}.get(kind, 10) * unit
    few = 4 if kind == "inverted" else most
    arrivals = _arrivals(kind, count, tick_us, rng)
    ids = [f"{rng.choice(LETTERS)}{n}" for n in rng.sample(range(10**4), count)]
    priorities = rng.choice([[0], [0, 0, 1], [0, 1, 2, 3], [-2, 5], list(range(-8, 8))])
    groups = [[rng.randrange(50) for _ in range(8)] for _ in range(rng.randint(1, 4))]
    rows = []
    for number in range(count):
        prompt = rng.randint(1, longest)
        row: Row = {
            "request_id": ids[number],
            "arrival_us": arrivals[number],
            "prompt_tokens": prompt,
            "output_tokens": rng.choice(
                [1, 2, most, *(rng.randint(1, n) for n in (few, few, most))]
            ),
            # "inverted": who came first, and runs first, is whom priority preempts first.
            "priority": -number if kind == "inverted" else rng.choice(priorities),
        }
        if chunk is not None and _chance(rng, 85):
            row["prefix_blocks"] = _prefix(prompt, chunk, rng.choice(groups), rng)
        rows.append(row)
    return rows


def _arrivals(kind: str, count: int, tick_us: int, rng: random.Random) -> list[int]:
    """In microseconds; "ties" and "burst" share theirs, "trickle" leaves idle gaps."""
    gap = {"ties": 4, "burst": 0, "decode": 1, "trickle": 30}.get(kind, 2)
    ticks, now = [], 0
    for _ in range(count):
        ticks.append(now)
        now += rng.choice([0, 0, gap]) if kind == "ties" else rng.randint(0, gap)
    spread = 0 if kind == "ties" else tick_us - 1
    arrivals = [tick * tick_us + rng.randint(0, spread) for tick in ticks]
    if _chance(rng, 30):
        rng.shuffle(arrivals)
    return arrivals


def _prefix(prompt: int, chunk: int, group: list[int], rng: random.Random) -> list[int] | None:
    """A shared beginning of this length, sometimes leaving it for ids of its own."""
    most = -(-prompt // chunk)
    length = rng.randint(0, min(most, len(group)))
    ids = group[:length]
    if length < most and _chance(rng, 30):
        ids = [*ids, rng.randrange(50)]
    return ids or None


def _engine(
    wanted: set[str], requests: list[Row], block_size: int, rng: random.Random
) -> dict[str, Any]:
    longest = max(r["prompt_tokens"] + r["output_tokens"] for r in requests)
    least = max(-(-(r["prompt_tokens"] + r["output_tokens"] - 1) // block_size) for r in requests)
    chunked = "chunked" in wanted
    if chunked:
        budget = rng.choice([rng.randint(3, 24), rng.randint(25, 99)])
    else:
        # A request that outgrows the budget could never be resumed: seldom.
        budget = (
            rng.randint(longest // 2, longest)
            if _chance(rng, 8)
            else rng.randint(longest, 3 * longest)
        )
    capacity = least + rng.choice([0, 1, least // 2, least, least, 2 * least, 3 * least])
    engine: dict[str, Any] = {
        "profile": "vllm-v1",
        "block_size": block_size,
        "capacity_blocks": capacity,
        "max_num_seqs": rng.choice([3, 8, 16, 256]),
        "max_num_batched_tokens": budget,
        "max_model_len": longest + rng.choice([0, 0, 1, 100]),
        "scheduling_policy": "priority" if "priority" in wanted else "fcfs",
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": rng.choice([0, 0, 0, 1, 3, 8]),
        "enable_prefix_caching": "caching" in wanted,
        "async_scheduling": "async" in wanted,
    }
    mark = rng.choice([0.03, 0.06, 0.1, 0.2])
    engine["scheduler_reserve_full_isl"] = "no-reserve" not in wanted
    engine["watermark"] = mark if "watermark" in wanted else 0.0
    return engine


def within(engine: Mapping[str, Any], release: str, rule: str | None = None) -> dict[str, Any]:
    """These options as that release can take them, and held to what the rule knows."""
    missing = lacking(f"vllm-{release}")
    held = {key: OPTIONS[key].without for key in (lacking(rule) if rule else ()) if key in engine}
    return {key: value for key, value in {**engine, **held}.items() if key not in missing}
