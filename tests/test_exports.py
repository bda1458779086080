"""Exported workloads: what a replayer makes of the file is the workload's own work."""

import gzip
import json
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.exports import FORMATS, hash_ids
from collectors.exports.hash_ids import MOST_HASH_IDS
from collectors.traces import FORMATS as TRACES
from preempt.commands.exporting import export_command
from replay.errors import InputError, OutputExists
from replay.strict import MAX_SAFE_INTEGER
from replay.workload import Request, Workload
from replay.workload_file import write_workload
from replay.workload_frame import batches_of

CHECKOUT = Path(__file__).resolve().parent.parent
FIXTURES = CHECKOUT / "fixtures" / "traces"
WHOLE = CHECKOUT.parent / "shared" / "traces" / "mooncake_conversation_trace.jsonl.gz"
MOONCAKE = FIXTURES / "mooncake-conversation-head.jsonl"
AZURE = FIXTURES / "azure-2023-conv-head.csv"

PerTestFile = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
    max_examples=60,
)


@st.composite
def workloads(draw: st.DrawFn, unit_us: int = 1) -> Workload:
    """Workloads with all, some or none of their chunks named, of ties and long gaps."""
    chunk = draw(st.none() | st.sampled_from([1, 16, 512]))
    requests = []
    for k in range(draw(st.integers(1, 8))):
        prompt = draw(st.integers(1, 5 * (chunk or 16)))
        most = -(-prompt // chunk) if chunk else 0
        blocks = draw(st.lists(st.integers(0, 4) | st.just(10**12), max_size=most)) if most else []
        requests.append(
            Request(
                f"r{k}",
                unit_us * draw(st.integers(0, 3) | st.integers(0, 2**40)),
                prompt,
                draw(st.integers(1, 2**53 - 1)),
                priority=draw(st.sampled_from([0, 0, -1])),
                tenant=draw(st.sampled_from([None, "t"])),
                prefix_blocks=tuple(blocks) or None,
            )
        )
    return Workload(tuple(requests), chunk)


def export(tmp_path: Path, trace_format: str, workload: Workload, **options: Any) -> Path:
    """The workload as a file of the format."""
    form, out = FORMATS[trace_format], tmp_path / "out.jsonl"
    found = hash_ids.look(batches_of(workload), form, "here", **options)
    hash_ids.write(batches_of(workload), form, found, out)
    return out


def save(workload: Workload, path: Path) -> None:
    """Write a workload file."""
    write_workload(workload, path, path.suffix)


def run_export(*args: object) -> Result:
    """Run the command; its own errors are raised as the top level would see them."""
    return CliRunner().invoke(
        export_command, [str(a) for a in args], catch_exceptions=False, standalone_mode=False
    )


def named(requests: tuple[Request, ...], chunk: int | None) -> list[list[object]]:
    """Of each request its chunks, an unnamed one by its own place."""
    of = chunk or 1
    return [
        [
            *(r.prefix_blocks or ()),
            *(
                f"{r.request_id}.{n}"
                for n in range(len(r.prefix_blocks or ()), -(-r.prompt_tokens // of))
            ),
        ]
        for r in requests
    ]


def same_equalities(first: list[list[object]], second: list[list[object]]) -> bool:
    """Whether two places are equal in one exactly if they are in the other."""
    before = [one for row in first for one in row]
    after = [one for row in second for one in row]
    pairs = set(zip(before, after, strict=True))
    return len(pairs) == len(set(before)) == len(set(after))


# Mooncake


@PerTestFile
@given(workload=workloads(unit_us=1000))
def test_a_round_trip_over_mooncake_keeps_every_number(tmp_path: Path, workload: Workload) -> None:
    """Times after the first, lengths, order and which chunks are equal come back as they were."""
    out = export(tmp_path, "mooncake", workload)
    chunk = workload.prefix_block_tokens or 512
    back = TRACES["mooncake"].read(out, block_tokens=chunk).workload
    zero = workload.requests[0].arrival_us
    assert [(r.arrival_us - zero, r.prompt_tokens, r.output_tokens) for r in workload.requests] == [
        (r.arrival_us, r.prompt_tokens, r.output_tokens) for r in back.requests
    ]
    assert chunk == back.prefix_block_tokens
    expected = named(workload.requests, chunk)
    assert same_equalities(expected, [list(r.prefix_blocks or ()) for r in back.requests])


@PerTestFile
@given(workload=workloads())
def test_a_round_trip_over_a_timed_trace_keeps_every_number(
    tmp_path: Path, workload: Workload
) -> None:
    """To the microsecond: times after the first, lengths, order and which chunks are equal."""
    out = export(tmp_path, "vllm-bench", workload)
    chunk = workload.prefix_block_tokens or 16
    back = TRACES["timed-trace"].read(out, block_tokens=chunk).workload
    zero = workload.requests[0].arrival_us
    assert [(r.arrival_us - zero, r.prompt_tokens, r.output_tokens) for r in workload.requests] == [
        (r.arrival_us, r.prompt_tokens, r.output_tokens) for r in back.requests
    ]
    expected = named(workload.requests, chunk)
    assert same_equalities(expected, [list(r.prefix_blocks or ()) for r in back.requests])


def test_the_published_mooncake_rows_come_back_byte_for_byte(tmp_path: Path) -> None:
    """Imported and exported, they are the lines of the file they came from."""
    out = export(tmp_path, "mooncake", TRACES["mooncake"].read(MOONCAKE).workload)
    assert MOONCAKE.read_text().splitlines() == out.read_text().splitlines()


@pytest.mark.skipif(not WHOLE.is_file(), reason="the whole trace is not in the repository")
def test_the_whole_mooncake_trace_comes_back_byte_for_byte(tmp_path: Path) -> None:
    """All 12,031 published lines, imported and exported, are the same bytes."""
    result, form, out = TRACES["mooncake"].read(WHOLE), FORMATS["mooncake"], tmp_path / "out.jsonl"
    hash_ids.write(result.batches, form, hash_ids.look(result.batches, form, "here"), out)
    assert gzip.decompress(WHOLE.read_bytes()) == out.read_bytes()


def test_arrivals_between_milliseconds_are_refused_or_rounded_aloud(tmp_path: Path) -> None:
    """Without --round-ms nothing is written; with it, the changed ones are counted."""
    workload, out = tmp_path / "w.jsonl", tmp_path / "new" / "out.jsonl"
    save(TRACES["azure"].read(AZURE).workload, workload)
    rule = r"w\.jsonl: arrival_us must be whole milliseconds; --round-ms rounds them down, got 200"
    with pytest.raises(InputError, match=rule.replace("200", r"\d+ that are not")):
        run_export("mooncake", workload, "-o", out)
    assert not out.parent.exists()
    done = run_export("mooncake", workload, "-o", out, "--round-ms", "--json")
    arrivals = [r.arrival_us for r in TRACES["azure"].read(AZURE).workload.requests]
    changed = sum(us % 1000 != 0 for us in arrivals)
    assert changed == json.loads(done.stdout)["rounded"]
    assert f"rounded down to whole milliseconds: {changed} arrivals\n" in done.stderr
    assert [us // 1000 for us in arrivals] == [
        json.loads(line)["timestamp"] for line in out.read_text().splitlines()
    ]


# vLLM's benchmark


def timed_trace(path: Path, chunk: int) -> list[tuple[str, int, int, list[tuple[int, int]]]]:
    """What `vllm bench serve` 0.32.0 makes of a file: time, lengths, and pieces of the prompt.

    A piece is its hash id and its size: equal pieces are equal tokens. The prompt ends where the
    ids do, or where it is long enough.
    """
    found = []
    for line in path.read_text().splitlines():
        row = json.loads(line, parse_float=str)
        left, pieces = row["input_length"], []
        for one in row.get("hash_ids", []):
            size = min(chunk, left)
            pieces.append((one, size))
            left -= size
            if left <= 0:
                break
        prompt = sum(size for _, size in pieces)
        found.append((row["timestamp"], prompt, row["output_length"], pieces))
    return found


@PerTestFile
@given(workload=workloads())
def test_vllm_bench_sends_the_lengths_times_and_prefixes_of_the_workload(
    tmp_path: Path, workload: Workload
) -> None:
    """Its prompts have the whole length, its times are exact, and equal chunks are equal tokens."""
    chunk = workload.prefix_block_tokens or 16
    found = timed_trace(export(tmp_path, "vllm-bench", workload), chunk)
    requests = workload.requests
    assert [
        (f"{r.arrival_us // 10**6}.{r.arrival_us % 10**6:06}", r.prompt_tokens, r.output_tokens)
        for r in requests
    ] == [(time, prompt, output) for time, prompt, output, _ in found]
    ids: list[list[object]] = [[one for one, _ in pieces] for *_, pieces in found]
    assert same_equalities(named(requests, chunk), ids)


def test_the_command_to_run_is_printed_and_splits_as_a_shell_would(tmp_path: Path) -> None:
    """Chunk, unit, number of prompts and a fixed hash seed are in it, the path quoted."""
    workload, out = tmp_path / "w.jsonl", tmp_path / "a file.jsonl"
    save(TRACES["mooncake"].read(MOONCAKE).workload, workload)
    done = run_export("vllm-bench", workload, "-o", out, "--json")
    words = shlex.split(done.stderr.splitlines()[-1])
    assert ["PYTHONHASHSEED=0", "vllm", "bench", "serve"] == words[:4]
    options = dict(pairwise(words))
    assert {
        "--backend": "vllm",
        "--dataset-name": "timed_trace",
        "--dataset-path": str(out),
        "--timed-trace-chunk-hash-size": "512",
        "--timed-trace-sec-multiplier": "1",
        "--num-prompts": "60",
    }.items() <= options.items()
    assert "--ignore-eos" in words
    assert done.stderr.splitlines()[-1] == json.loads(done.stdout)["command"]


# What is lost, and what cannot be written


def test_what_has_no_place_in_the_file_is_named(tmp_path: Path) -> None:
    """Priorities and tenants are counted, ids and provenance named, and none is in the file."""
    requests = (
        Request("s3cret-id", 0, 40, 1, priority=-7, tenant="s3cret-tenant"),
        Request("other", 5, 1, 1, tenant="x"),
    )
    workload, out = tmp_path / "w.jsonl", tmp_path / "out.jsonl"
    save(Workload(requests, name="s3cret-name"), workload)
    done = run_export("vllm-bench", workload, "-o", out, "--json")
    assert (
        "left out: request ids, name and provenance (its licence and attribution too),"
        " the priority of 1 requests, the tenant of 2 requests\n"
    ) in done.stderr
    assert (
        f"{out}: 2 requests, 41 prompt tokens, 2 output tokens, 4 hash ids of 16 tokens"
        " (4 of them new), workload_sha256 "
    ) in done.stderr
    assert "s3cret" not in done.stderr + done.stdout + out.read_text()
    assert {
        "block_tokens": 16,
        "command": done.stderr.splitlines()[-1],
        "file": str(out),
        "fresh_hash_ids": 4,
        "hash_ids": 4,
        "output_tokens": 2,
        "prompt_tokens": 41,
        "requests": 2,
        "rounded": 0,
        "with_priority": 1,
        "with_tenant": 2,
        "workload_sha256": Workload(requests).sha256,
    } == json.loads(done.stdout)


def test_quiet_export_prints_nothing(tmp_path: Path) -> None:
    """With --quiet both streams stay empty."""
    workload = tmp_path / "w.jsonl"
    save(Workload((Request("a", 0, 1, 1),)), workload)
    done = run_export("mooncake", workload, "-o", tmp_path / "out.jsonl", "--quiet")
    assert ("", "") == (done.stdout, done.stderr)


def test_a_prompt_of_too_many_chunks_is_refused(tmp_path: Path) -> None:
    """A line of a gigabyte is nobody's replay; the request is named by its place."""
    most = 16 * MOST_HASH_IDS
    fits = Workload((Request("a", 0, most, 1),))
    (line,) = export(tmp_path, "vllm-bench", fits).read_text().splitlines()
    assert MOST_HASH_IDS == len(json.loads(line)["hash_ids"])
    huge = Workload((Request("a", 0, 1, 1), Request("b", 0, 2**53 - 1, 1)))
    with pytest.raises(InputError) as caught:
        export(tmp_path, "vllm-bench", huge)
    expected = f"here: request 1: prompt_tokens must be at most {most} (65536 hash ids), got more"
    assert expected == str(caught.value)


def test_the_longest_line_is_one_the_importer_takes(tmp_path: Path) -> None:
    """Even with the longest ids, what is written can be read again."""
    tokens, highest = 16 * MOST_HASH_IDS, MAX_SAFE_INTEGER - MOST_HASH_IDS - 1
    requests = (Request("a", 0, 16, 1, prefix_blocks=(highest,)), Request("b", 0, tokens, 1))
    out = export(tmp_path, "mooncake", Workload(requests, 16))
    back = TRACES["mooncake"].read(out, block_tokens=16)
    assert [16, tokens] == [r.prompt_tokens for r in back.workload.requests]


def test_ids_that_leave_no_room_for_new_ones_are_refused(tmp_path: Path) -> None:
    """A new id must be new, and no larger than JSON readers can hold."""
    request = Request("a", 0, 33, 1, prefix_blocks=(MAX_SAFE_INTEGER - 1,))
    with pytest.raises(
        InputError, match=r"prefix_blocks must leave room for 2 new ids below 2\^53"
    ):
        export(tmp_path, "mooncake", Workload((request,), 16))
    for tokens, own in ((16, MAX_SAFE_INTEGER), (17, MAX_SAFE_INTEGER - 1)):
        fits = Request("a", 0, tokens, 1, prefix_blocks=(own,))
        out = export(tmp_path, "mooncake", Workload((fits,), 16))
        assert MAX_SAFE_INTEGER == json.loads(out.read_text())["hash_ids"][-1]
        out.unlink()


def test_the_chunk_of_a_workload_with_prefix_blocks_is_its_own(tmp_path: Path) -> None:
    """--block-tokens chooses it for a workload that has none, and contradicts no other."""
    named_one, plain = Workload((Request("a", 0, 40, 1),), 32), Workload((Request("a", 0, 40, 1),))
    with pytest.raises(
        InputError, match=r"must be the workload's own prefix_block_tokens, 32, got"
    ):
        export(tmp_path, "mooncake", named_one, block_tokens=16)
    for workload, chunk, ids in ((named_one, 32, 2), (plain, 8, 5), (plain, None, 1)):
        out = export(tmp_path, "mooncake", workload, block_tokens=chunk)
        assert [*range(ids)] == json.loads(out.read_text())["hash_ids"]


def test_parts_of_any_size_give_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How much text is made at once changes no byte, and no new id comes twice."""
    workload = TRACES["azure"].read(AZURE).workload
    whole = export(tmp_path, "vllm-bench", workload).read_bytes()
    monkeypatch.setattr(hash_ids, "_PART_HASH_IDS", 100)
    monkeypatch.setattr(hash_ids, "_PART_ROWS", 7)
    assert whole == export(tmp_path, "vllm-bench", workload).read_bytes()
    ids = [i for line in whole.splitlines() for i in json.loads(line)["hash_ids"]]
    assert [*range(len(ids))] == ids


def test_export_checks_its_paths_before_it_reads(tmp_path: Path) -> None:
    """Another ending, an existing file and the workload itself are refused."""
    with pytest.raises(InputError, match=r"out\.json: must end in \.jsonl$"):
        run_export("mooncake", tmp_path / "absent", "-o", tmp_path / "out.json")
    workload = tmp_path / "w.jsonl"
    save(Workload((Request("a", 0, 1, 1),)), workload)
    with pytest.raises(OutputExists, match="is the file to be read"):
        run_export("mooncake", workload, "-o", workload, "--force")
    (tmp_path / "out.jsonl").write_bytes(b"mine")
    with pytest.raises(OutputExists, match=r"out\.jsonl: exists"):
        run_export("mooncake", workload, "-o", tmp_path / "out.jsonl")
    assert b"mine" == (tmp_path / "out.jsonl").read_bytes()


def test_a_damaged_workload_leaves_no_file(tmp_path: Path) -> None:
    """The error names its line; nothing is left where the output would be."""
    workload = tmp_path / "w.jsonl"
    save(Workload((Request("a", 0, 1, 1),)), workload)
    workload.write_bytes(workload.read_bytes() + b"{}\n")
    with pytest.raises(InputError, match=r"w\.jsonl:3: "):
        run_export("mooncake", workload, "-o", tmp_path / "new" / "out.jsonl")
    assert ["w.jsonl"] == [p.name for p in tmp_path.iterdir()]


def test_a_parquet_workload_is_exported_as_its_other_forms_are(tmp_path: Path) -> None:
    """The three forms of a workload give one file."""
    source = TRACES["mooncake"].read(MOONCAKE).workload
    texts = set()
    for suffix in (".parquet", ".jsonl", ".json"):
        save(source, tmp_path / f"w{suffix}")
        run_export("mooncake", tmp_path / f"w{suffix}", "-o", tmp_path / "o.jsonl", "--force", "-q")
        texts.add((tmp_path / "o.jsonl").read_text())
    assert 1 == len(texts)


def test_round_ms_goes_with_mooncake_only(tmp_path: Path) -> None:
    """The other trace keeps every microsecond, so there is nothing to round."""
    args = ["vllm-bench", "w.jsonl", "-o", str(tmp_path / "o.jsonl"), "--round-ms"]
    done = CliRunner().invoke(export_command, args)
    assert (2, True) == (done.exit_code, "goes with FORMAT mooncake only" in done.stderr)


def test_help_shows_every_format_with_an_example() -> None:
    """A person with a workload finds the command to type."""
    text = run_export("--help").output
    for name, form in FORMATS.items():
        assert form.description in text
        assert f"preempt export {name} " in text


def test_timestamps_are_text_of_the_formats_unit() -> None:
    """Milliseconds are whole, seconds have six digits."""
    frame = pl.DataFrame({"arrival_us": [0, 1_000, 61_114_001, MAX_SAFE_INTEGER]})
    seconds = frame.select(FORMATS["vllm-bench"].timestamp())["arrival_us"]
    assert ["0.000000", "0.001000", "61.114001", "9007199254.740991"] == seconds.to_list()
    milliseconds = frame.select(FORMATS["mooncake"].timestamp())["arrival_us"]
    assert ["0", "1", "61114", "9007199254740"] == milliseconds.to_list()
