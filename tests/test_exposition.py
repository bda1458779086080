"""Pages of real and documented servers become samples; a broken line costs that line only."""

import gzip
import math
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from collectors.exposition.parse import OPENMETRICS, Page, RawSample, parse_page

PAGES = Path(__file__).parents[1] / "fixtures" / "pages"
TEXT = "text/plain; version=1.0.0; charset=utf-8"
RECORDED = ("0.12.0", "0.17.1", "0.28.0", "0.32.0")
IDLE = "0.32.0-idle"


def page_bytes(name: str) -> bytes:
    """A page of the fixtures, recorded or written by hand."""
    packed = PAGES / f"{name}.txt.gz"
    if packed.exists():
        return gzip.decompress(packed.read_bytes())
    return (PAGES / f"{name}.txt").read_bytes()


def one(line: str) -> RawSample:
    """The only sample of a page of one line."""
    page = parse_page(f"{line}\n".encode(), TEXT)
    assert [] == page.problems
    (sample,) = page.samples
    return sample


@pytest.mark.parametrize("release", [*RECORDED, IDLE])
def test_a_recorded_page_reads_as_the_prometheus_client_reads_it(release: str) -> None:
    """Every sample, in order, nothing more; no problem, and the page is whole."""
    body = page_bytes(release)
    page = parse_page(body, TEXT)
    expected = [(s.name, s.labels, s.value) for f in prometheus(body.decode()) for s in f.samples]
    assert sorted(expected, key=str) == sorted(page.samples, key=str)
    assert ([], True, "prometheus") == (page.problems, page.complete, page.format)


def test_an_openmetrics_page_reads_as_the_prometheus_client_reads_it() -> None:
    """Exemplars and time stamps are dropped, the samples stay."""
    body = page_bytes("openmetrics")
    page = parse_page(body, f"{OPENMETRICS}; version=1.0.0")
    lines = [line for line in body.decode().splitlines() if "kv_cache" not in line]
    # What its stricter parser would refuse: one series with a time stamp, the others without.
    text = "\n".join(line.replace("2 1795984190.5 #", "2 #") for line in lines) + "\n"
    expected = [(s.name, s.labels, s.value) for f in openmetrics(text) for s in f.samples]
    assert sorted(expected, key=str) == sorted(page.samples[:-1], key=str)
    assert math.isnan(page.samples[-1].value)
    assert ([], True, "openmetrics") == (page.problems, page.complete, page.format)


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("text/plain; version=1.0.0", "prometheus"),  # a version that OpenMetrics has, too
        ("text/plain; version=0.0.4", "prometheus"),
        ("application/openmetrics-text; version=0.0.1", "openmetrics"),
        ("Application/OpenMetrics-Text", "openmetrics"),
        (None, "openmetrics"),
        ("application/octet-stream", "openmetrics"),
    ],
)
def test_the_media_type_says_the_format_and_else_the_last_line(
    content_type: str | None, expected: str
) -> None:
    """Not the version parameter: 1.0.0 is a version of both."""
    assert expected == parse_page(b"a 1\n# EOF\n", content_type).format
    assert "prometheus" == parse_page(b"a 1\n", None).format


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a 1", RawSample("a", {}, 1.0)),
        ("a{} 1", RawSample("a", {}, 1.0)),
        ('a{x="1",} 1', RawSample("a", {"x": "1"}, 1.0)),
        ('a { x = "1" , y = "2" } 1', RawSample("a", {"x": "1", "y": "2"}, 1.0)),
        (r'a{x="\\\"\n}\t"} 1', RawSample("a", {"x": '\\"\n}\\t'}, 1.0)),
        ('a{x="} 5 # {"} 1', RawSample("a", {"x": "} 5 # {"}, 1.0)),
        ('a{x="1"} 1 1395066363000', RawSample("a", {"x": "1"}, 1.0)),
        ('a{x="1"} 1 # {t="}"} 0.5', RawSample("a", {"x": "1"}, 1.0)),
        ("a 1 # 0.5", RawSample("a", {}, 1.0)),
        ('a 1 # {t="b"} 0.5', RawSample("a", {}, 1.0)),
        ('{"vllm:a"} 1', RawSample("vllm:a", {}, 1.0)),
        ('{"vllm.a","x.y"="1"} 1', RawSample("vllm.a", {"x.y": "1"}, 1.0)),
        ("a 1e-3", RawSample("a", {}, 0.001)),
        ("a +Inf", RawSample("a", {}, math.inf)),
        ("a -Inf", RawSample("a", {}, -math.inf)),
        ("a 1\r", RawSample("a", {}, 1.0)),
    ],
)
def test_a_line_gives_its_sample(line: str, expected: RawSample) -> None:
    """Escapes, exemplars with and without braces, time stamps, quoted names, carriage returns."""
    assert expected == one(line)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("a{x=1} 1", "no series"),
        ('a{x="1" y="2"} 1', "no series"),
        ('a{x="1",x="2"} 1', "no series"),
        ('a{x="1} 1', "no series"),
        ("1a 1", "no series"),
        ("c", "no value"),
        ("a b", "no number"),
        ("a 1_000", "no number"),
        ("a 0x10", "no number"),
        ('a{x="' + "y" * 70_000 + '"} 1', "too long"),
        ("a 2", "a series that was there before"),
    ],
)
def test_a_bad_line_is_reported_by_number_and_the_rest_is_kept(line: str, kind: str) -> None:
    """Never with its text, which can hold anything."""
    page = parse_page(f"# HELP a A\na 1\n{line}\nb 2\n".encode(), TEXT)
    assert [(3, kind)] == page.problems
    assert [("a", 1.0), ("b", 2.0)] == [(s.name, s.value) for s in page.samples]


@pytest.mark.parametrize(
    "body",
    [
        b"a 1\nb 2",
        b"a 1\n# HELP b B\n",
        b'h_bucket{le="1"} 1\n',
        b'h_bucket{le="1"} 1\nh_bucket{le="+Inf"} 1\n',
        b'h_count 1\nh_bucket{le="1"} 1\n',
    ],
)
def test_a_page_that_ends_in_the_middle_is_not_complete(body: bytes) -> None:
    """In a line, between a family's HELP and TYPE, or in a histogram."""
    assert not parse_page(body, TEXT).complete


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"a 1\n# HELP b B\n# TYPE b histogram\n", TEXT),
        (b"a 1\n# TYPE b histogram\n# HELP b B\n", TEXT),
        (b'h_sum 1\nh_count 1\nh_bucket{le="1"} 1\nh_bucket{le="+Inf"} 1\n', TEXT),
        (b'h_count 1\nh_bucket{le="+Inf"} 1\n# EOF\n', OPENMETRICS),
        (b"# TYPE a counter\n# EOF", OPENMETRICS),
    ],
)
def test_a_page_that_only_looks_cut_is_complete(body: bytes, content_type: str) -> None:
    """A server without a request yet ends in a family without samples; some end in buckets."""
    assert parse_page(body, content_type).complete


def test_openmetrics_without_its_end_is_not_complete() -> None:
    """However it ends; a line behind the end is a problem."""
    assert not parse_page(b"a 1\n", OPENMETRICS).complete
    page = parse_page(b"a 1\n# EOF\nb 2\n", OPENMETRICS)
    assert [(3, "a line after the end")] == page.problems


def test_every_cut_of_a_page_within_a_line_is_noticed() -> None:
    """At a line's end a cut shows only in a histogram or behind a header; HTTP knows the length."""
    body = page_bytes("0.32.0")
    cuts = [at for at in range(1, len(body), 997) if body[at - 1] != ord("\n")]
    assert cuts
    assert not any(parse_page(body[:at], TEXT).complete for at in cuts)


def test_a_page_of_too_many_series_is_cut_with_a_problem() -> None:
    """Memory is bounded by the number of samples and the length of a line."""
    body = "".join(f"a{k} 1\n" for k in range(11)).encode()
    page = parse_page(body, TEXT, most_samples=10)
    assert 10 == len(page.samples)
    assert [(11, "too many series")] == page.problems
    assert page.cut
    assert not parse_page(body, TEXT).cut


def test_problems_are_bounded_and_all_of_them_counted() -> None:
    """A page of garbage is not kept as a list of complaints, but says how many it is worth."""
    page = parse_page(b"?\n" * 5000 + b"a x\n" * 3, TEXT)
    assert (100, {"no series": 5000, "no number": 3}) == (len(page.problems), page.kinds)


@pytest.mark.parametrize(
    "line",
    [
        "a " + "1" * 60_000 + "." + "1" * 10 + "x",
        "a{" + " " * 60_000 + 'y="1" z',
        'a{x="' + "\\" * 60_000,
        "a{" + 'x="}",' * 10_000 + "} 1 # {}",
        "a" + "}{" * 30_000,
    ],
)
def test_a_line_made_to_be_slow_takes_time_by_its_length(line: str) -> None:
    """Ten of each would take minutes if a parser tried every way to read them."""
    before = time.process_time()
    parse_page(f"{line}\n".encode() * 10, TEXT)
    assert 10 > time.process_time() - before


def test_types_are_bounded_like_samples() -> None:
    """A page of declarations is not kept whole, and an enormous one not at all."""
    body = b"".join(b"# TYPE a%d gauge\n" % k for k in range(20))
    assert 10 == len(parse_page(body, TEXT, most_samples=10).types)
    page = parse_page(b"# TYPE a " + b"x" * 70_000 + b"\n", TEXT)
    assert ({}, [(1, "too long")]) == (page.types, page.problems)


def test_bytes_that_are_no_utf8_are_a_problem_and_the_sample_stays() -> None:
    """The replacement character stands for them."""
    page = parse_page(b'a{x="\xff"} 1\n', TEXT)
    assert [RawSample("a", {"x": "\ufffd"}, 1.0)] == page.samples
    assert [(1, "not UTF-8")] == page.problems


@given(st.binary(max_size=300))
def test_any_bytes_give_a_page(body: bytes) -> None:
    """Nothing on a page raises."""
    assert isinstance(parse_page(body, None), Page)


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8)


@given(labels=st.dictionaries(NAMES, TEXTS), value=st.floats(allow_nan=False))
def test_what_is_written_by_the_rules_is_read_back(labels: dict[str, str], value: float) -> None:
    """Any label value, escaped as the format says, and any number."""
    pairs = ",".join(
        f'{key}="{text}"'
        for key, text in (
            (k, v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
            for k, v in labels.items()
        )
    )
    shown = {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, repr(value))
    assert RawSample("a", labels, value) == one(f"a{{{pairs}}} {shown}")
