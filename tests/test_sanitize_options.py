"""What may be blurred on purpose: in run, workload and attempts alike, and counted."""

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sanitize_tools import (
    BASE,
    attempts,
    counting,
    done,
    event_row,
    manifest,
    raw_run,
    request_row,
    sample_row,
    sanitized,
    workload,
    write,
)

from collectors.run import run_workload
from collectors.sanitize.options import Blur
from collectors.sanitize.pseudonyms import RARE_TENANT, TENANT
from collectors.sanitize.tenants import merged_tenants
from replay.workload import Request, Workload

PerTestFile = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=25,
)


def blurred_run(folder: Path) -> Path:
    """A raw run whose rows are not in the order of arrival, with everything that is blurred."""
    rows = [
        request_row(f"r{k}", 1_000_000 + 90_000 * place, prompt_tokens=33 * (k + 1), tenant="t")
        | {"cached_tokens": 5, "max_tokens": 17, "engine_arrival_us": 1_000_001}
        for k, place in enumerate((3, 1, 2, 0))
    ]
    events = [event_row(f"r{k}", k) for k in range(4)]
    samples = [sample_row("num_preemptions"), sample_row("prompt_tokens", 77.0)]
    return raw_run(folder, manifest(), requests=rows, events=events, samples=samples)


def test_rounded_arrivals_and_bucketed_tokens_are_the_same_in_run_and_workload(
    tmp_path: Path,
) -> None:
    """Times go down, tokens up, in every table; what would tell them anyway is left out."""
    options = ("--round-arrivals", "100ms", "--bucket-tokens", "16")
    result = done(sanitized(blurred_run(tmp_path / "raw"), tmp_path / "shared", *options))
    run, made = result.read_run(), result.read_workload()
    assert made.requests == run_workload(run).requests
    assert [1_000_000, 1_000_000, 1_100_000, 1_200_000] == run.requests["arrival_us"].to_list()
    assert [144, 80, 112, 48] == run.requests["prompt_tokens"].to_list()
    assert {16} == set(run.requests["generated_tokens"]) == set(run.requests["cached_tokens"])
    assert {32} == set(run.requests["max_tokens"])
    assert {1_000_000} == set(run.requests["engine_arrival_us"])
    assert (0, 0) == (run.events.height, run.steps.height)
    assert ["num_preemptions"] == run.samples["name"].to_list()
    assert [0, 0, 100_000, 200_000] == result.column("arrival_us")
    assert "measured_events: 0 of 4 rows kept" in result.ended.err


def test_rounded_arrivals_and_bucketed_tokens_of_a_workload_file(tmp_path: Path) -> None:
    """A file's arrivals go down and its tokens up, its attempts' too; provenance says so."""
    path = write(workload(provenance=counting(failed=1)), tmp_path / "raw" / "w.json")
    attempts(path, [(1, "failed", 5_390_000, 1, None)])
    options = ("--round-arrivals", "200ms", "--bucket-tokens", "100")
    result = done(sanitized(path, tmp_path / "shared", *options))
    assert [0, 200_000, 1_000_000] == result.column("arrival_us")
    assert [600, 600, 100] == result.column("prompt_tokens")
    assert [100, 100, 100] == result.column("output_tokens")
    kept = pl.read_parquet(result.folder / "w.attempts.parquet")
    assert [(200_000, 100, None)] == kept.select(
        "arrival_us", "prompt_tokens", "output_tokens"
    ).rows()
    provenance = result.read_workload().provenance
    assert provenance is not None
    assert {
        "arrivals_rounded_down_to_us": 200_000,
        "tokens_rounded_up_to": 100,
        "tenants": "pseudonyms",
        "tenants_merged_below_requests": None,
    } == provenance["sanitized"]


def test_a_driven_run_with_every_option_still_matches_its_workload(tmp_path: Path) -> None:
    """What was offered, measured and written as the workload stay one and the same."""
    options = ("--round-arrivals", "1s", "--bucket-tokens", "64", "--merge-tenants", "90")
    result = done(sanitized(BASE, tmp_path / "shared", *options))
    run, made = result.read_run(), result.read_workload()
    assert made.requests == run_workload(run).requests
    rows = {row["request_id"]: row for row in run.requests.iter_rows(named=True)}
    for request in made.requests:
        row = rows[request.request_id]
        assert (row["prompt_tokens"], row["tenant"]) == (request.prompt_tokens, request.tenant)
        assert 0 == request.prompt_tokens % 64 == request.output_tokens % 64
        assert 0 == request.arrival_us % 1_000_000


def test_a_bucket_never_leaves_what_a_contract_holds(tmp_path: Path) -> None:
    """The greatest token count there is has no room for rounding up, and stays."""
    most = 2**53 - 1
    path = write(Workload((Request("a", 0, most, 1),)), tmp_path / "w.jsonl")
    result = done(sanitized(path, tmp_path / "shared", "--bucket-tokens", 1024))
    assert [most] == result.column("prompt_tokens")
    assert [1024] == result.column("output_tokens")


TENANTS = st.lists(st.sampled_from([None, "a", "b", "c", "d", "tenant-rare"]), min_size=1)


@given(tenants=TENANTS, least=st.integers(2, 6))
@PerTestFile
def test_every_tenant_left_has_k_requests(
    tmp_path_factory: pytest.TempPathFactory, tenants: list[str | None], least: int
) -> None:
    """Whoever has too few is merged, with the next rarest if needed, or dropped with all."""
    folder = tmp_path_factory.mktemp("k")
    requests = tuple(Request(f"r{k}", k, 1, 1, tenant=t) for k, t in enumerate(tenants))
    path = write(Workload(requests), folder / "w.jsonl")
    result = done(sanitized(path, folder / "shared", "--merge-tenants", least))
    made = result.column("tenant")
    counted = Counter(name for name in made if name is not None)
    assert all(n >= least for n in counted.values())
    assert all(name == RARE_TENANT or TENANT.fullmatch(name) for name in counted)
    assert all(now is None for was, now in zip(tenants, made, strict=True) if was is None)
    enough = {name for name, n in Counter(tenants).items() if name and n >= least}
    assert len(enough) - 1 <= len(counted.keys() - {RARE_TENANT})  # one helps at most


@given(
    counts=st.lists(
        st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9)), min_size=1, max_size=3
    ),
    least=st.integers(2, 8),
)
def test_k_requests_in_every_table_that_shows_the_tenant(
    counts: list[dict[str, int]], least: int
) -> None:
    """A tenant with enough requests in one table and too few in another is rare."""
    merged = merged_tenants(counts, Blur(tenants=least))
    for count in counts:
        shown: Counter[str] = Counter()
        for name, n in count.items():
            called = merged.get(name, name)
            if called is not None:
                shown[called] += n
        assert all(n == 0 or n >= least for n in shown.values())


def test_rare_tenants_are_merged_in_all_of_a_run(tmp_path: Path) -> None:
    """Offered, measured and workload rows agree on who is rare."""
    names = ["big", "big", "big", "x", "y", "z"]
    offered = Workload(tuple(Request(f"r{k}", k, 10, 1, tenant=t) for k, t in enumerate(names)))
    rows = [request_row(f"r{k}", k, tenant=t) for k, t in enumerate(names)]
    found = manifest()
    found["workload"]["workload_sha256"] = offered.sha256
    run = raw_run(tmp_path / "raw", found, offered=offered, requests=rows)
    result = done(sanitized(run, tmp_path / "shared", "--merge-tenants", 3))
    made = result.read_run()
    assert made.offered is not None
    told = result.column("tenant")
    assert told == made.requests["tenant"].to_list() == [r.tenant for r in made.offered.requests]
    assert [RARE_TENANT] * 3 == told[3:]
    assert 1 == len(set(told[:3]))
    assert "tenants: 4 became 2 pseudonyms, 3 merged as rare, 0 dropped" in result.ended.err


def test_tenants_can_be_dropped_altogether(tmp_path: Path) -> None:
    """Neither a workload nor a run has any tenant then."""
    path = write(workload(), tmp_path / "w.parquet")
    assert [None] * 3 == done(sanitized(path, tmp_path / "a", "--drop-tenants")).column("tenant")
    result = done(sanitized(BASE, tmp_path / "b", "--drop-tenants"))
    made = result.read_run()
    assert made.offered is not None
    assert {None} == {*result.column("tenant"), *made.requests["tenant"]}
    assert {None} == {r.tenant for r in made.offered.requests}
