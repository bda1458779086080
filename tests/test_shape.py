"""Workloads made of workloads are exactly what the same done by hand on their requests is."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from collectors.traces import FORMATS
from collectors.traces.result import ImportResult, write_attempts
from preempt.commands.workload import workload_group
from replay.describe import Assumed, describe_workload
from replay.errors import InputError, OutputExists
from replay.shape import merged, scaled, sliced, tiled
from replay.strict import MAX_SAFE_INTEGER
from replay.workload import Request, Workload
from replay.workload_file import read_workload, write_workload
from replay.workload_frame import batches_of, workload_of, write_workload_batches
from tests.test_workload_frame import workloads

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "fixtures"
MOONCAKE = FIXTURES / "traces" / "mooncake-conversation-head.jsonl"
FACTORS = st.fractions(Fraction(1, 50), 50, max_denominator=1000)


def plain(workload: Workload) -> list[tuple[Any, ...]]:
    """Requests as tuples."""
    return [
        (r.request_id, r.arrival_us, r.prompt_tokens, r.output_tokens, r.prefix_blocks)
        for r in workload.requests
    ]


def request(k: int, arrival_us: int, blocks: tuple[int, ...] | None = None) -> Request:
    """A request of 20 tokens in and 5 out."""
    return Request(f"{k:08}-x", arrival_us, 20, 5, prefix_blocks=blocks)


@given(workload=workloads(), start=st.integers(0, 2**53), length=st.integers(1, 2**53))
def test_a_slice_of_time_keeps_what_arrives_in_it(
    workload: Workload, start: int, length: int
) -> None:
    """From the first moment on, before the last, and the first request arrives at 0."""
    kept = [r for r in workload.requests if start <= r.arrival_us < start + length]
    batches = batches_of(workload)
    if not kept:
        with pytest.raises(InputError, match="must keep at least one request; the last arrives at"):
            sliced(batches, "w", from_us=start, until_us=start + length)
        return
    found = workload_of(sliced(batches, "w", from_us=start, until_us=start + length), "w")
    zero = kept[0].arrival_us
    assert [replace(r, arrival_us=r.arrival_us - zero) for r in kept] == list(found.requests)


@given(workload=workloads(), time=FACTORS, prompt=FACTORS, output=FACTORS)
def test_scaling_is_exact_arithmetic(
    workload: Workload, time: Fraction, prompt: Fraction, output: Fraction
) -> None:
    """Arrivals down, lengths to the nearest and at least 1, blocks within the prompt."""
    chunk = workload.prefix_block_tokens

    def by_hand(r: Request) -> tuple[Any, ...]:
        tokens = max(1, (r.prompt_tokens * prompt * 2 + 1) // 2)
        blocks = r.prefix_blocks or ()
        if chunk:
            filled = r.prompt_tokens // chunk if prompt > 1 else len(blocks)
            blocks = blocks[:filled][: -(-tokens // chunk)]
        generated = max(1, (r.output_tokens * output * 2 + 1) // 2)
        return r.request_id, r.arrival_us * time // 1, tokens, generated, blocks or None

    expected = [by_hand(r) for r in workload.requests]
    batches = scaled(batches_of(workload), "w", time=time, prompt=prompt, output=output)
    if any(max(row[1:4]) > MAX_SAFE_INTEGER for row in expected):
        with pytest.raises(InputError, match=r"must stay within 2\^53 - 1"):
            list(batches)
        return
    assert expected == plain(workload_of(batches, "w"))


def test_merging_orders_by_arrival_and_then_by_argument() -> None:
    """Ties keep the order of the workloads, and of each its own."""
    one = Workload((request(0, 5), request(1, 5)))
    two = Workload((request(2, 0), request(3, 5)))
    parts = {"one": batches_of(one), "two": batches_of(two)}
    found = workload_of(merged(parts, renumber=False, same_prefixes=False), "m")
    assert ["00000002-x", "00000000-x", "00000001-x", "00000003-x"] == [
        r.request_id for r in found.requests
    ]
    assert "merge" == (found.provenance or {})["shaped"][0]["tool"]


@pytest.mark.parametrize(
    ("same", "expected"), [(False, [(0, 1), (3, 2)]), (True, [(0, 1), (1, 0)])]
)
def test_prefix_blocks_of_merged_workloads_are_apart_unless_they_are_said_to_be_the_same(
    same: bool,
    expected: list[tuple[int, ...]],
) -> None:
    """A number of one file says nothing about another file's."""
    parts = {
        "one": batches_of(Workload((request(0, 0, (0, 1)),), 16)),
        "two": batches_of(Workload((request(1, 1, (1, 0)),), 16)),
    }
    found = workload_of(merged(parts, renumber=False, same_prefixes=same), "m")
    assert expected == [r.prefix_blocks for r in found.requests]


def test_ids_that_two_workloads_share_need_new_ones() -> None:
    """Two imports both begin with 00000000: without --renumber that is refused."""
    parts = {name: batches_of(Workload((request(0, 0),))) for name in ("one", "two")}
    with pytest.raises(InputError, match="--renumber gives new ones"):
        merged(parts, renumber=False, same_prefixes=False)
    found = workload_of(merged(parts, renumber=True, same_prefixes=False), "m")
    assert ["00000000-merge", "00000001-merge"] == [r.request_id for r in found.requests]


def test_workloads_of_different_chunks_do_not_merge() -> None:
    """A block of 16 tokens is no block of 512."""
    parts = {
        str(chunk): batches_of(Workload((request(chunk, 0, (0,)),), chunk)) for chunk in (16, 512)
    }
    with pytest.raises(InputError, match="prefix_block_tokens must be the same"):
        merged(parts, renumber=True, same_prefixes=False)


def test_only_a_slice_keeps_the_engine_s_arrival_times(tmp_path: Path) -> None:
    """What is moved, mixed or repeated arrives anew, and is written as any other workload."""
    requests = tuple(replace(request(k, k), engine_arrival_us=9 - k) for k in range(4))
    late = batches_of(Workload(requests))
    found = workload_of(sliced(late, "w", from_us=1, until_us=3), "w")
    assert [(0, 8), (1, 7)] == [(r.arrival_us, r.engine_arrival_us) for r in found.requests]
    one, anew = Fraction(1), batches_of(Workload((request(7, 0),)))
    for k, made in enumerate(
        (
            scaled(late, "w", time=one, prompt=one, output=one),
            merged({"a": late, "b": anew}, renumber=False, same_prefixes=False),
            tiled(late, "w", 2, period_us=None, same_prefixes=False),
        )
    ):
        path = tmp_path / f"{k}.parquet"
        write_workload_batches(made, path, ".parquet")
        assert {None} == {r.engine_arrival_us for r in read_workload(path).requests}


def test_tiles_follow_each_other_by_a_mean_gap_and_share_nothing() -> None:
    """Three copies of 0 and 10 us: the next begins at 20, and its text is its own."""
    workload = Workload((request(0, 0, (0, 1)), request(1, 10, (0,))), 16)
    found = workload_of(
        tiled(batches_of(workload), "w", 3, period_us=None, same_prefixes=False), "w"
    )
    assert [
        ("00000000-tile", 0, 20, 5, (0, 1)),
        ("00000001-tile", 10, 20, 5, (0,)),
        ("00000002-tile", 20, 20, 5, (2, 3)),
        ("00000003-tile", 30, 20, 5, (2,)),
        ("00000004-tile", 40, 20, 5, (4, 5)),
        ("00000005-tile", 50, 20, 5, (4,)),
    ] == plain(found)
    same = tiled(batches_of(workload), "w", 2, period_us=100, same_prefixes=True)
    assert [(0, (0, 1)), (10, (0,)), (100, (0, 1)), (110, (0,))] == [
        (r.arrival_us, r.prefix_blocks) for r in workload_of(same, "w").requests
    ]


def test_a_copy_begins_in_the_unit_of_the_arrivals() -> None:
    """Of whole milliseconds the mean gap is one, too: an export in milliseconds stays possible."""
    workload = Workload((request(0, 0), request(1, 1_000), request(2, 3_000)))
    found = tiled(batches_of(workload), "w", 2, period_us=None, same_prefixes=False)
    assert [0, 1_000, 3_000, 5_000, 6_000, 8_000] == [
        r.arrival_us for r in workload_of(found, "w").requests
    ]


def test_requests_that_all_arrive_at_once_need_a_period() -> None:
    """There is no gap to repeat them by."""
    batches = batches_of(Workload((request(0, 0), request(1, 0))))
    with pytest.raises(InputError, match="--period is needed: all requests arrive at once"):
        tiled(batches, "w", 2, period_us=None, same_prefixes=False)


@pytest.mark.parametrize(("times", "period", "rule"), [(2, 10, "overlap"), (2**20, 2**40, "2.53")])
def test_tiles_that_overlap_or_run_too_far_are_refused(times: int, period: int, rule: str) -> None:
    """The arrivals would no longer be in order, or no integer a workload can hold."""
    workload = Workload((request(0, 0), request(1, 10)))
    with pytest.raises(InputError, match=rule):
        tiled(batches_of(workload), "w", times, period_us=period, same_prefixes=False)


def test_a_description_has_the_numbers_of_the_requests() -> None:
    """Counts, nearest-rank quantiles, ties, the least capacity and the peak of the KV demand."""
    rows = [(0, 10, 1), (0, 20, 5), (2_000_000, 31, 2), (2_000_000, 31, 2)]
    workload = Workload(
        tuple(Request(str(k), at, prompt, out) for k, (at, prompt, out) in enumerate(rows))
    )
    facts = describe_workload(batches_of(workload), Assumed(tpot_us=1_000_000, block_size=16))
    assert (4, 2_000_000, 1.5) == tuple(
        facts[name] for name in ("requests", "span_us", "mean_requests_per_s")
    )
    assert {
        "min": 10,
        "p50": 20,
        "p90": 31,
        "p99": 31,
        "max": 31,
        "sum": 92,
        "mean": 23.0,
    } == facts["prompt_tokens"]
    assert ("1 s", 4, 2, 2_000_000) == tuple(
        facts["arrivals"][name]
        for name in ("resolution", "tied_requests", "largest_tie", "longest_gap_us")
    )
    # At 2 s the second still holds its 2 blocks, and two of 2 blocks each arrive.
    demand = facts["kv_demand"]
    assert (2, 6, 3) == tuple(
        demand[name] for name in ("largest_request_blocks", "peak_blocks", "peak_running")
    )
    assert {"one output token": 1, "same arrival and lengths as the row before": 1} == facts[
        "suspicious"
    ]
    assert 4 == sum(facts["rate"]["requests"])


def test_no_tenant_is_named() -> None:
    """A description can be shown to anybody."""
    workload = Workload((Request("a", 0, 5, 5, tenant="ACME"), Request("b", 0, 5, 5, tenant="X")))
    facts = describe_workload(batches_of(workload), Assumed())
    assert {"tenants": 2, "largest_requests": 1} == facts["tenants"]
    assert "ACME" not in str(facts)


@given(workload=workloads())
def test_any_workload_can_be_described(workload: Workload) -> None:
    """Whatever its numbers, up to the largest."""
    facts = describe_workload(batches_of(workload), Assumed())
    assert len(workload) == facts["requests"] == sum(facts["rate"]["requests"])
    assert sum(r.output_tokens for r in workload.requests) == facts["output_tokens"]["sum"]


def run(*arguments: object) -> Result:
    """Run `preempt workload`; its own errors are raised as the top level would see them."""
    return CliRunner().invoke(
        workload_group, [str(a) for a in arguments], catch_exceptions=False, standalone_mode=False
    )


def test_each_tool_writes_a_workload_of_another_hash_that_says_what_was_done(
    tmp_path: Path,
) -> None:
    """Provenance grows by one entry a tool; an output that exists stays."""
    first = tmp_path / "w.json"
    write_workload(Workload((request(0, 0), request(1, 1_500_000))), first, ".json")
    hashes, path = {read_workload(first).sha256}, first
    for k, arguments in enumerate(
        (
            ("scale", "--time", "1/2", "--prompt", "2"),
            ("tile", "--times", "2"),
            ("slice", "--from", "0s", "--until", "2s"),
            ("merge", "--renumber"),
        )
    ):
        out = tmp_path / f"{k}.json"
        run(arguments[0], path, *arguments[1:], "-o", out)
        with pytest.raises(OutputExists, match="exists"):
            run(arguments[0], path, *arguments[1:], "-o", out)
        hashes.add(read_workload(out).sha256)
        path = out
    found = read_workload(path)
    assert 5 == len(hashes)
    assert ["merge"] == [one["tool"] for one in (found.provenance or {})["shaped"]]
    before = (found.provenance or {})["shaped"][0]["of"][0]["shaped"]
    assert ["scale", "tile", "slice"] == [one["tool"] for one in before]


def test_attempts_of_another_workload_never_stay_beside_a_tools_output(tmp_path: Path) -> None:
    """Refused without --force; removed with it; and what is no attempts' file is never touched."""
    first, out = tmp_path / "w.parquet", tmp_path / "o.parquet"
    write_workload(Workload((request(0, 0),)), first, ".parquet")
    beside = tmp_path / "o.attempts.parquet"
    write_attempts(ImportResult(batches_of(Workload((request(0, 0),)))), beside)
    with pytest.raises(OutputExists, match=r"o\.attempts\.parquet: exists"):
        run("scale", first, "--prompt", "2", "-o", out)
    run("scale", first, "--prompt", "2", "-o", out, "--force")
    assert not beside.exists()
    beside.write_text("precious")
    with pytest.raises(OutputExists, match="holds no attempts; move it"):
        run("scale", first, "--prompt", "2", "-o", out, "--force")
    assert "precious" == beside.read_text()
    with pytest.raises(OutputExists, match="ends as the attempts of a workload do"):
        run("scale", first, "-o", tmp_path / "x.attempts.parquet")


def test_describe_fits_a_narrow_terminal(tmp_path: Path) -> None:
    """No line is wider than 80 columns, for a trace with everything in it."""
    path, blocks = tmp_path / "w.parquet", 0
    for line in MOONCAKE.read_text().splitlines():
        blocks += len(json.loads(line)["hash_ids"])
    write_workload(FORMATS["mooncake"].read(MOONCAKE).workload, path, ".parquet")
    lines = run("describe", path).stdout.splitlines()
    assert 80 >= max(map(len, lines))
    assert any(line.startswith(f"prefix blocks    {blocks:,} of 512 tokens") for line in lines)


def test_a_terminated_tool_takes_its_unfinished_file_with_it(tmp_path: Path) -> None:
    """SIGTERM ends it as Ctrl-C does: nothing is left, and the code says what ended it."""
    path = tmp_path / "w.parquet"
    write_workload(Workload((request(0, 0), request(1, 5))), path, ".parquet")
    code = "from preempt.main import main; import sys; main(sys.argv[1:])"
    arguments = [
        "workload",
        "tile",
        str(path),
        "--times",
        "1000000",
        "-o",
        str(tmp_path / "o.jsonl"),
    ]
    with subprocess.Popen([sys.executable, "-c", code, *arguments, "-q"], cwd=ROOT) as process:
        deadline = time.monotonic() + 60
        while not any(p.name.startswith(".o.jsonl.") for p in tmp_path.iterdir()):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.terminate()
        assert 128 + signal.SIGTERM == process.wait(60)
    assert [path] == list(tmp_path.iterdir())
