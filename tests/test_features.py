"""What a replay does not model is named, and wherever it is, nothing is called exact."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from collectors.features import not_modelled
from collectors.run import read_run
from collectors.run_config import not_replayed
from preempt.commands.fidelity import fidelity_command
from preempt.commands.replay import replay_command

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
HOSTILE = "\x1b[31mSecretSpec"


class Sample(NamedTuple):
    """A canonical sample, as far as this module looks."""

    name: str
    value: float | None
    labels: str = "{}"


def header(**sections: Any) -> dict[str, Any]:
    """A recorder's header of an engine that does nothing a replay does not."""
    plain: dict[str, Any] = {
        "schema": "preemption-spool/1",
        "parallel": {"tensor": 2, "pipeline": 1, "data": 1},
        "scheduler": {"scheduling_policy": "priority", "prefill_schedule_interval": 1},
        "cache_groups": [{"kind": "FullAttentionSpec", "block_size": 32}],
        "features": {
            "speculative": False,
            "lora": False,
            "kv_connector": None,
            "multimodal": False,
            "sleep_mode": False,
        },
    }
    return plain | sections


PLAIN_CACHE = {
    "block_size": "32",
    "sliding_window": "None",
    "is_attention_free": "False",
    "mamba_block_size": "None",
    "mamba_cache_mode": "none",
    "kv_offloading_size": "None",
    "kv_offloading_backend": "native",
}


def test_an_engine_that_does_what_a_replay_does_has_nothing_named() -> None:
    """Neither its header nor its page's labels, names or counters say a word."""
    page = [
        Sample("request_params_n_sum", 12),
        Sample("request_params_n_count", 12),
        Sample("external_prefix_cache_queries", 0),
        Sample("mm_cache_queries", None),
        Sample("engine_sleep_state", 1, '{"sleep_state": "awake"}'),
        Sample("engine_sleep_state", 0, '{"sleep_state": "discard_all"}'),
        Sample("num_requests_waiting_by_reason", 4, '{"reason": "capacity"}'),
        Sample("num_requests_waiting_by_reason", 0, '{"reason": "deferred"}'),
    ]
    info = {"cache_config_info": [PLAIN_CACHE]}
    names = ["num_preemptions", "vllm:kv_cache_usage_perc", "request_prefill_kv_computed_tokens"]
    assert [] == not_modelled(header(), info, names, page)
    assert [] == not_modelled(None, {})


@pytest.mark.parametrize(
    ("sections", "word"),
    [
        ({"cache_groups": [{"kind": "SlidingWindowSpec"}]}, "sliding window"),
        ({"cache_groups": [{"kind": "MambaSpec"}]}, "Mamba"),
        ({"cache_groups": [{"kind": "ChunkedLocalAttentionSpec"}]}, "chunked local"),
        ({"cache_groups": [{"kind": "FullAttentionSpec"}] * 2}, "2 groups of KV blocks"),
        ({"features": {"speculative": True}}, "speculative decoding"),
        ({"features": {"lora": True}}, "LoRA"),
        ({"features": {"kv_connector": "OffloadingConnector"}}, "KV connector"),
        ({"features": {"multimodal": True}}, "multimodal"),
        ({"features": {"sleep_mode": True}}, "sleep mode"),
        ({"features": {"structured": True}}, "structured output"),
        ({"features": {"attention_free": True}}, "attention-free"),
        ({"parallel": {"pipeline": 2}}, "pipeline parallelism"),
        ({"parallel": {"decode_context": 2}}, "context parallelism"),
        ({"scheduler": {"prefill_schedule_interval": 4}}, "prefill_schedule_interval"),
        ({"scheduler": {"max_num_active_seqs": 8}}, "max_num_active_seqs"),
        ({"features": {"custom_scheduler": True}}, "scheduler class"),
        ({"features": {"n_greater_than_1": True}}, "n > 1"),
        ({"features": {"pooling": True}}, "pooling"),
        ({"features": {"encoder_decoder": True}}, "encoder's output"),
        ({"features": {"ec_connector": True}}, "multimodal"),
        ({"features": {"streaming_input": True}}, "streaming input"),
        ({"features": {"pipeline_parallel": True}, "parallel": {"pipeline": 2}}, "pipeline"),
    ],
)
def test_a_feature_that_the_recorder_saw_is_named(sections: dict[str, Any], word: str) -> None:
    """One sentence for each, with the word that people know it by."""
    (sentence,) = not_modelled(header(**sections), {})
    assert word in sentence


@pytest.mark.parametrize(
    ("label", "value", "word"),
    [
        ("sliding_window", "4096", "sliding window"),
        ("is_attention_free", "True", "attention-free"),
        ("mamba_block_size", "2096", "Mamba"),
        ("kv_offloading_size", "64.0", "offloading"),
    ],
)
def test_a_feature_in_the_labels_of_the_cache_is_named(label: str, value: str, word: str) -> None:
    """The page tells it although there is no recorder; one engine of several is enough."""
    info = {"cache_config_info": [PLAIN_CACHE, PLAIN_CACHE | {label: value}]}
    (sentence,) = not_modelled(None, info)
    assert word in sentence


def test_adapters_are_named_once_any_request_used_one() -> None:
    """Room for adapters alone is no adapter."""
    none = {"max_lora": "4", "running_lora_adapters": "", "waiting_lora_adapters": ""}
    assert [] == not_modelled(None, {"lora_requests_info": [none]})
    used = none | {"running_lora_adapters": "sql"}
    (sentence,) = not_modelled(None, {"lora_requests_info": [none, used]})
    assert "LoRA" in sentence


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("vllm:spec_decode_num_drafts_total", "speculative"),
        ("spec_decode_num_accepted_tokens", "speculative"),
        ("ray_vllm_nixl_bytes_transferred_sum", "KV connector"),
        ("kv_offload_size_bucket", "offloading"),
    ],
)
def test_a_metric_that_only_a_feature_has_names_it(name: str, word: str) -> None:
    """Under whatever prefix the page has."""
    (sentence,) = not_modelled(None, {}, [name])
    assert word in sentence
    assert [sentence] == not_modelled(None, {}, (), [Sample(name, 0)])


@pytest.mark.parametrize(
    ("samples", "word"),
    [
        ([Sample("external_prefix_cache_queries", 7)], "KV connector"),
        ([Sample("mm_cache_queries", None), Sample("mm_cache_queries", 2)], "multimodal"),
        ([Sample("request_params_n_sum", 7), Sample("request_params_n_count", 4)], "n > 1"),
        ([Sample("engine_sleep_state", 1, '{"sleep_state": "discard_all"}')], "sleep mode"),
        ([Sample("num_requests_waiting_by_reason", 1, '{"reason": "deferred"}')], "waited for"),
    ],
)
def test_a_counter_that_moved_names_what_was_used(samples: list[Sample], word: str) -> None:
    """Metrics that every page has speak once they are above zero."""
    (sentence,) = not_modelled(None, {}, (), samples)
    assert word in sentence


def test_an_option_that_nobody_knows_is_named_where_it_is_set() -> None:
    """A later release's option may change any step; what is known to be harmless says nothing."""
    quiet = {"scheduler": ["max_num_seqs", "stream_interval"], "cache": ["block_size"]}
    assert [] == not_modelled(header(options_set=quiet), {})
    told = quiet | {"scheduler": ["policy", "brand_new"], "engine": ["diffusion_config"]}
    (sentence,) = not_modelled(header(options_set=told), {})
    assert "not at their defaults: scheduler.brand_new, engine.diffusion_config" in sentence


def test_many_options_that_nobody_knows_are_counted() -> None:
    """Some are named; a name that is no option's is not repeated."""
    names = [HOSTILE, *(f"option_{k}" for k in range(20))]
    (sentence,) = not_modelled(header(options_set={"cache": names}), {})
    assert sentence.endswith("cache.option_6 and 13 more")
    assert "Secret" not in sentence
    for odd in ([HOSTILE], {"scheduler": HOSTILE, "cache": [7, None, {}]}, "x", None):
        assert [] == not_modelled(header(options_set=odd), {})


@pytest.mark.parametrize(("limit", "said"), [(None, 0), (64, 0), (48, 1), ([HOSTILE], 1)])
def test_a_step_of_fewer_tokens_than_the_batch_may_have_is_named(limit: Any, said: int) -> None:
    """A replay has one limit for both."""
    sizes = {"max_num_batched_tokens": 64, "max_num_scheduled_tokens": limit}
    found = not_modelled(header(scheduler=sizes), {})
    assert said == len(found)
    assert all("max_num_scheduled_tokens" in sentence for sentence in found)


def test_what_several_sources_say_is_said_once() -> None:
    """Header, page labels and counters of one feature give one sentence."""
    found = not_modelled(
        header(features={"kv_connector": "X"}),
        {"cache_config_info": [{"kv_offloading_size": "8"}]},
        ["nixl_xfer_time_seconds_sum"],
        [Sample("external_prefix_cache_hits", 1)],
    )
    assert 1 == len(found)


@pytest.mark.parametrize(
    "sections",
    [
        {"cache_groups": [{"kind": HOSTILE}]},
        {"cache_groups": [HOSTILE, 7, None, {"kind": ["x"]}, {"kind": HOSTILE}]},
        {"features": [HOSTILE], "parallel": None, "scheduler": "x", "cache_groups": {}},
        {"features": {"kv_connector": HOSTILE, "lora": [], "speculative": {}}},
        {"scheduler": {"max_num_active_seqs": [HOSTILE]}},
        {"parallel": {"pipeline": HOSTILE, "decode_context": 1e300}},
    ],
)
def test_a_header_of_any_shape_is_read_and_never_repeated(sections: dict[str, Any]) -> None:
    """Odd types say nothing; a kind or class nobody knows is not printed."""
    found = not_modelled(header(**sections), {})
    assert not any("Secret" in sentence for sentence in found)
    assert all(sentence.isprintable() for sentence in found)


def test_labels_of_any_shape_are_read() -> None:
    """Labels that are no JSON object, and values that are no number, say nothing."""
    odd = ["", "[]", "7", '{"sleep_state": 7}', '{"sleep_state"']
    samples = [Sample("engine_sleep_state", 1, labels) for labels in odd]
    samples += [Sample("mm_cache_queries", float("nan")), Sample("mm_cache_queries", float("inf"))]
    assert [] == not_modelled(None, {"cache_config_info": [{}]}, (), samples)


# Runs.


def run_with(folder: Path, **facts: Any) -> Path:
    """A copy of a recorded run whose manifest has more to say."""
    run = Path(shutil.copytree(RUNS / "base-1", folder / "run"))
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | facts))
    return run


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, []),
        ({"not_modelled": None, "recorder": None}, []),
        ({"not_modelled": []}, []),
        ({"not_modelled": ["a thing", "a thing", "another"]}, ["a thing", "another"]),
        ({"recorder": {"dropped_records": 0, "complete": True}}, []),
        ({"recorder": {"dropped_records": None, "complete": None}}, []),
        ({"recorder": {"dropped_records": 3}}, ["the recorder dropped 3 records"]),
        ({"recorder": {"complete": False}}, []),  # so it is of any engine that lives on
    ],
)
def test_a_run_says_what_its_replay_lacks(
    tmp_path: Path, facts: Mapping[str, Any], expected: list[str]
) -> None:
    """What its collectors saw and the replay has not, and records that nobody has."""
    found = not_replayed(read_run(run_with(tmp_path, **facts)))
    assert len(expected) == len(found)
    assert all(said.startswith(begin) for said, begin in zip(found, expected, strict=True))


def test_exact_is_withheld_by_replay_and_fidelity_where_a_feature_was_seen(tmp_path: Path) -> None:
    """One line `not exact: …` for each feature, and a list of them in the JSON form."""
    runner = CliRunner()
    sentence = "speculative decoding was on"
    run, ledger = run_with(tmp_path, not_modelled=[sentence]), tmp_path / "ledger"
    replayed = runner.invoke(replay_command, [str(run), "--out", str(ledger)])
    assert 0 == replayed.exit_code, replayed.stderr
    assert f"not exact: {sentence}" in replayed.stderr
    joined = runner.invoke(fidelity_command, [str(ledger), str(run)])
    assert f"not exact: {sentence}" in joined.stderr.splitlines()
    as_json = runner.invoke(fidelity_command, [str(ledger), str(run), "--json", "-q"])
    assert [sentence] == json.loads(as_json.stdout)["not_exact"]
