"""Whatever release or frontend wrote a page: one name per metric, and nothing counts twice."""

import json
import math
from pathlib import Path

import pytest
from test_exposition import IDLE, RECORDED, TEXT, page_bytes

from collectors.exposition.known import ALWAYS, CHECKED, KNOWN, Metric, Release
from collectors.exposition.names import canonical, not_found, release_of, status_of
from collectors.exposition.parse import OPENMETRICS, Page, RawSample, parse_page
from collectors.exposition.samples import Canonical, MetricSample, samples_frame

DOCUMENT = Path(__file__).parents[1] / "docs" / "metrics.md"


def read(page: str | bytes, content_type: str = TEXT) -> Canonical:
    """A fixture's page, or bytes, under canonical names."""
    body = page_bytes(page) if isinstance(page, str) else page
    return canonical(parse_page(body, content_type))


def values(found: Canonical, name: str) -> list[float | None]:
    """All values of one name, in the page's order."""
    return [sample.value for sample in found.samples if sample.name == name]


@pytest.mark.parametrize("release", RECORDED)
def test_every_metric_of_a_recorded_page_is_known_and_none_is_missing(release: str) -> None:
    """What the release exports by default is there; nothing is there that no table has."""
    found = read(release)
    assert ({}, {}) == (found.unmatched, found.superseded)
    assert [] == not_found(found.names, release)
    assert found.vllm
    assert found.process_start_s is not None
    assert 1.7e9 < found.created["num_preemptions", 0, "tinymodel", "{}"] < 1.9e9


def test_a_recorded_page_gives_its_numbers() -> None:
    """Counters without `_total`, a fraction, histograms with bounds as numbers."""
    found = read("0.32.0")
    assert MetricSample(0, "tinymodel", "num_preemptions", "{}", None, 39.0) in found.samples
    assert "vllm:num_preemptions_total" == found.names["num_preemptions"]
    assert "vllm:kv_cache_usage_perc" == found.names["kv_cache_usage_frac"]
    assert [0.0] == values(found, "kv_cache_usage_frac")
    bounds = [s.le for s in found.samples if s.name == "time_to_first_token_seconds_bucket"]
    assert (0.001, math.inf) == (bounds[0], bounds[-1])
    assert [32.0] == values(found, "time_to_first_token_seconds_count")
    labels = {s.labels for s in found.samples if s.name == "request_success"}
    assert '{"finished_reason":"length"}' in labels
    assert "48" == found.info["cache_config_info"][0]["num_gpu_blocks"]
    assert [] == [s for s in found.samples if "created" in s.name or "python" in s.name]


def test_a_server_without_a_request_yet_has_zeros_that_were_measured() -> None:
    """Its page lacks nothing that the release exports."""
    found = read(IDLE)
    assert [0.0] == values(found, "num_preemptions")
    assert [] == not_found(found.names, "0.32.0")


def test_a_histogram_whose_name_ends_in_total_keeps_it() -> None:
    """`iteration_tokens_total` is no counter."""
    assert [10669.0] == values(read("0.32.0"), "iteration_tokens_total_sum")


def test_old_and_new_names_on_one_page_are_the_same_numbers_once() -> None:
    """0.9.2 to 0.11.2 show both: the new one counts, nothing is added."""
    found = read("0.10.2")
    assert [0.25] == values(found, "kv_cache_usage_frac")
    assert [100.0] == values(found, "prefix_cache_queries")
    assert [4.0] == values(found, "inter_token_latency_seconds_count")
    assert "vllm:kv_cache_usage_perc" == found.names["kv_cache_usage_frac"]
    assert {
        "vllm:gpu_cache_usage_perc",
        "vllm:gpu_prefix_cache_queries_total",
        "vllm:time_per_output_token_seconds",
    } == set(found.superseded)
    assert 5 == len(found.samples)


def test_an_old_name_alone_stands_for_the_new_one() -> None:
    """The usage gauge and the inter-token latency, whose old name said TPOT."""
    found = read("0.6.0")
    assert [0.5] == values(found, "kv_cache_usage_frac")
    assert [4.0] == values(found, "inter_token_latency_seconds_count")
    assert "vllm:gpu_cache_usage_perc" == found.names["kv_cache_usage_frac"]
    assert "request_time_per_output_token_seconds" not in found.names


def test_counts_of_blocks_are_not_mixed_with_counts_of_tokens() -> None:
    """Prefix cache look-ups counted blocks up to 0.8.5: another name, not another scale."""
    found = read("0.8.0")
    assert [100.0] == values(found, "gpu_prefix_cache_queries")
    assert [] == values(found, "prefix_cache_queries")
    assert {None} == {s.engine for s in found.samples}


def test_recomputed_prompt_tokens_are_not_taken_for_work_lost_to_preemption() -> None:
    """The counter of 0.16 to 0.19 is the redone last token of a cached prompt."""
    assert [0.0] == values(read("0.17.1"), "prompt_tokens_recomputed")
    assert "not work lost" in KNOWN["prompt_tokens_recomputed"].meaning


def test_several_models_and_engines_stay_apart() -> None:
    """No series stands for another, and none wins by being last."""
    usage = {s.model for s in read("0.6.0").samples if "inter_token" in s.name}
    assert {"base", "adapter"} == usage
    found = read("two-engines")
    running = [s for s in found.samples if s.name == "num_requests_running"]
    assert [(0, 3.0), (1, 9.0)] == [(s.engine, s.value) for s in running]
    assert ['{"pid":"11"}', '{"pid":"12"}'] == [s.labels for s in running]
    assert ({}, None) == (found.created, found.process_start_s)


def test_openmetrics_gives_the_same_canonical_names() -> None:
    """A frontend that answers so whatever was asked; NaN is null."""
    found = read("openmetrics", OPENMETRICS)
    assert [5.0] == values(found, "num_preemptions")
    assert [1.0, 2.0] == values(found, "time_to_first_token_seconds_bucket")
    assert [None] == values(found, "kv_cache_usage_frac")
    assert {("num_preemptions", 0, "m", "{}"): 1795984188.5} == found.created


def test_names_without_a_colon_and_under_rays_prefix_are_vllms() -> None:
    """What a library or Ray made of the name is undone."""
    found = read("ray")
    assert [5.0] == values(found, "num_preemptions")
    assert [2.0] == values(found, "num_requests_running")
    assert "ray_vllm_num_preemptions_total" == found.names["num_preemptions"]


def test_a_counter_without_total_is_the_counter() -> None:
    """Some documentation, and some pages, leave it out."""
    assert [39.0] == values(read(b'vllm:num_preemptions{engine="0"} 39\n'), "num_preemptions")


def test_absent_unmatched_and_zero_are_three_things() -> None:
    """A known name that is not there, an unknown one that is, and a zero."""
    found = read(b"vllm:brand_new_thing_total 3\nvllm:num_preemptions_total 0\n")
    assert ["vllm:brand_new_thing_total"] == list(found.unmatched)
    assert [3.0] == values(found, "brand_new_thing")
    assert [0.0] == values(found, "num_preemptions")
    assert [] == values(found, "num_requests_running")
    assert "num_requests_running" in not_found(found.names, "0.32.0")
    assert "num_preemptions" not in not_found(found.names, "0.32.0")


def test_a_page_without_vllm_says_so() -> None:
    """Only what Python's client adds by itself: not a page of zeros."""
    found = read(b'python_info{version="3.12"} 1\nprocess_start_time_seconds 5\n')
    assert (False, [], 5.0) == (found.vllm, found.samples, found.process_start_s)


def test_hostile_labels_break_no_rule_of_the_contract() -> None:
    """Reserved, odd and enormous values find a place, or are left out."""
    body = (
        b'vllm:num_requests_running{engine="x",model_name="a\\nb",le="z"} 1\n'
        b'{"vllm:' + b"y" * 200 + b'"} 1\n'
        b'{"vllm:a\\nb"} 1\n'
        b"vllm: 1\nvllm:_total 1\n"
    )
    found = read(body)
    (sample,) = found.samples
    assert (None, "a\ufffdb", None) == (sample.engine, sample.model, sample.le)
    assert {"engine_name": "x", "le_text": "z"} == json.loads(sample.labels)


def test_labels_that_no_utf8_can_write_are_made_so() -> None:
    """A lone surrogate can come out of another server's JSON."""
    raw = RawSample("vllm:num_requests_running", {"a": "\ud800", "model_name": "\udfff"}, 1.0)
    (sample,) = canonical(Page([raw])).samples
    assert ("\ufffd", '{"a":"\ufffd"}') == (sample.model, sample.labels)


def test_a_beginning_that_is_no_time_dates_nothing() -> None:
    """An infinite `_created` would make every comparison with it a reset."""
    assert {} == read(b"vllm:num_preemptions_created +Inf\n").created


def test_what_only_the_old_engine_had_is_not_expected() -> None:
    """0.8.0 ran either engine, and the release does not say which."""
    assert "num_requests_swapped" not in not_found([], "0.8.0")
    assert "optional" == status_of("num_requests_swapped", "0.8.0")


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("num_preemptions", "0.32.0", "missing"),
        ("num_preemptions", None, "missing"),
        ("request_num_preemptions", "0.29.0", "not exported"),
        ("request_num_preemptions", "0.30.0+cpu", "missing"),
        ("request_num_preemptions", "nightly", "unknown"),
        ("num_requests_swapped", "0.32.0", "not exported"),
        ("kv_block_lifetime_seconds", "0.32.0", "optional"),
        ("brand_new_thing", "0.32.0", "unknown"),
        ("num_preemptions", "0.99.0", "missing"),
    ],
)
def test_why_a_metric_is_not_there_depends_on_the_release(
    name: str, version: str | None, expected: str
) -> None:
    """Not exported by this release is another thing than missing."""
    assert expected == status_of(name, version)


def test_of_an_unknown_release_only_what_all_have_is_expected() -> None:
    """It is collected all the same."""
    assert sorted(ALWAYS) == not_found([], "dev")
    assert {"num_preemptions", "time_to_first_token_seconds"} <= ALWAYS
    assert (0, 32, 0) == release_of("0.32.0rc1+cu129")


def test_samples_of_several_scrapes_are_one_frame_of_the_contract() -> None:
    """Columns in order, nulls where the page said nothing."""
    found = read("0.8.0")
    frame = samples_frame("r", [(0, 10, found.samples), (1, 20, []), (2, 30, found.samples)])
    assert [0] * 4 + [2] * 4 == frame["scrape"].to_list()
    assert ("r", 2, 30, None, "m", "num_preemptions", "{}", None, 0.0) == frame.row(-1)
    assert 0 == samples_frame("r", []).height


def shown(release: Release) -> str:
    """A release as people write it."""
    return ".".join(map(str, release))


def line(name: str, metric: Metric) -> str:
    """The table's line of one metric."""
    until = shown(metric.until or CHECKED)
    names = ", ".join(f"`{a.name}` {shown(a.since)} to {shown(a.until)}" for a in metric.aliases)
    when = f"{shown(metric.since)} to {until}" + (", optional" if metric.optional else "")
    return f"| `{name}` | {metric.kind} | {metric.unit} | {when} | {names} | {metric.meaning} |"


def test_the_document_lists_every_metric_as_the_code_knows_it() -> None:
    """Name, kind, unit, releases, other names and meaning."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    assert [line(n, m) for n, m in KNOWN.items()] == [k for k in lines if k.startswith("| `")]
