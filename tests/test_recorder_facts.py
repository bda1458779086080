"""What the recorder tells of an engine: whatever a release or a host is like, nothing is raised."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collectors.pack.facts import facts_of as manifest_facts
from collectors.spool import Header

sys.path.insert(0, str(Path(__file__).parents[1] / "collectors" / "recorder"))

from preemption_ledger_recorder import device, facts, options
from preemption_ledger_recorder.scheduler import recorded

BARE: Any = SimpleNamespace(
    cache_config=SimpleNamespace(),
    kv_cache_config=SimpleNamespace(num_blocks=9),
    vllm_config=SimpleNamespace(
        cache_config=SimpleNamespace(block_size=16),
        parallel_config=SimpleNamespace(tensor_parallel_size=2, pipeline_parallel_size=1),
        scheduler_config=SimpleNamespace(policy="priority"),
        model_config=SimpleNamespace(),
    ),
)


def nowhere() -> None:
    """A release that does not say what it runs on."""
    raise ImportError


class NvmlCudaPlatform:
    """vLLM's platform of that name."""

    device_name, device_type = "cuda", "cuda"

    def get_device_name(self) -> str:
        """As NVML gives it."""
        return "Fake 9000\x1b" + "!" * 500


class NonNvmlCudaPlatform(NvmlCudaPlatform):
    """The other one, which asks torch."""


def config_of(tensor: int, pipeline: int) -> Any:
    """A configuration that tells workers and nothing else."""
    sizes = {"tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline}
    return SimpleNamespace(parallel_config=SimpleNamespace(**sizes))


def test_the_device_is_told_as_the_engine_knows_it() -> None:
    """Its kind, a name that can be shown, one device for each worker."""
    found = device.device_of(config_of(4, 2), NvmlCudaPlatform)
    assert ("cuda", 8) == (found["kind"], found["count"])
    assert found["name"].startswith("Fake 9000!")
    assert 128 == len(found["name"])


def test_an_engine_on_a_cpu_names_the_processor() -> None:
    """Every processor is cpu to vLLM; the operating system knows which one it is."""
    found = device.device_of(config_of(1, 1), lambda: SimpleNamespace(device_name="cpu"))
    assert ("cpu", 1, None) == (found["kind"], found["count"], found["driver"])
    assert found["name"] not in {None, "cpu", ""}


@pytest.mark.parametrize("up", [False, True])
def test_no_device_is_woken_for_its_name(monkeypatch: pytest.MonkeyPatch, up: bool) -> None:
    """Where torch would have to initialise CUDA, the name is unknown."""
    runtime = SimpleNamespace(is_initialized=lambda: up)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=runtime))
    found = device.device_of(config_of(1, 1), NonNvmlCudaPlatform)
    assert ("cuda", up) == (found["kind"], found["name"] is not None)


def test_a_platform_that_fails_leaves_the_kind_that_the_configuration_names() -> None:
    """Nothing of it is raised, and nothing is guessed."""
    config = config_of(2, 1)
    config.device_config = SimpleNamespace(device_type="xpu")
    expected = {"kind": "xpu", "name": None, "count": 2, "driver": None}
    assert expected == device.device_of(config, nowhere)
    assert {None} == set(device.device_of(SimpleNamespace(), nowhere).values())


@dataclass
class Options:
    """A release's options, of which some are computed."""

    policy: str = "fcfs"
    brand_new: int | None = None
    share: float = 0.5
    sizes: list[int] = field(default_factory=list)
    computed: int = field(default=0, init=False)
    _hidden: int = 0


def test_options_that_are_not_at_their_defaults_are_told_by_name() -> None:
    """Whatever a release calls them; of what was computed nothing is said, and no value of any."""
    changed = Options("priority", brand_new=7, sizes=[1], _hidden=5)
    changed.computed = 9
    config = SimpleNamespace(scheduler_config=changed, cache_config=Options(share=0.25))
    expected = {"engine": [], "scheduler": ["policy", "brand_new"], "cache": ["share"]}
    assert expected == options.options_set(config)


def test_optional_parts_of_a_configuration_are_told_where_they_are_there() -> None:
    """A part that nobody has heard of may change what is scheduled."""

    @dataclass
    class Config:
        diffusion_config: object | None = None
        lora_config: object | None = None
        name: str = ""

    expected = {"engine": ["diffusion_config"], "scheduler": [], "cache": []}
    assert expected == options.options_set(Config(diffusion_config=object(), name="x"))


def test_the_manifest_gets_the_device_that_the_engine_names() -> None:
    """Not what the collector sees of its own host."""
    told = facts.facts_of(BARE, lambda: "0.32.0", NvmlCudaPlatform)
    found = manifest_facts(Header(0, 0, 1, 1, told), "spool")["device"]
    assert told["device"] == found
    assert ("cuda", 2) == (found["kind"], found["count"])


def test_an_engine_that_tells_nothing_gives_a_header_of_nulls() -> None:
    """A fact that a release does not have costs no other."""
    told = facts.facts_of(BARE, lambda: None, nowhere)
    assert (9, 8, 16, None) == tuple(
        told["cache"][name]
        for name in ("num_gpu_blocks", "capacity_blocks", "block_size", "kv_bytes_per_token")
    )
    assert (2, None, "priority", None) == (
        told["parallel"]["tensor"],
        told["parallel"]["data"],
        told["scheduler"]["scheduling_policy"],
        told["features"]["lora"],
    )


@pytest.mark.parametrize(
    ("served", "model", "told"),
    [
        ("tiny", "/srv/models/x", "tiny"),
        (["tiny", "other"], "/srv/models/x", "tiny"),
        ("/srv/models/x", "/srv/models/x", None),
        ("./x", "./x", None),
        ("org/model", "org/model", "org/model"),
        (None, "org/model", None),
    ],
)
def test_the_model_is_told_by_its_served_name_only(
    served: Any, model: str, told: str | None
) -> None:
    """A path of the host is none."""
    config = SimpleNamespace(served_model_name=served, model=model)
    assert told == facts._served_name(config)


def scheduler_of(module: str, name: str) -> Any:
    """A watched scheduler of a class with that name."""
    kind: type = type(name, (), {"__module__": module})
    return object.__new__(recorded(kind))


@pytest.mark.parametrize(
    ("module", "name", "custom"),
    [
        ("vllm.v1.core.sched.scheduler", "Scheduler", False),
        ("vllm.v1.core.sched.async_scheduler", "AsyncScheduler", False),
        ("vllm.v1.core.sched.diffusion_scheduler", "DiffusionScheduler", True),
        ("mine", "Scheduler", True),
    ],
)
def test_a_scheduler_class_that_a_replay_does_not_know_is_told(
    module: str, name: str, custom: bool
) -> None:
    """However it was chosen: by an option, or by vLLM itself for a kind of model."""
    assert f"{module}.{name}" == facts._class_name(scheduler_of(module, name))
    assert custom is (facts._class_name(scheduler_of(module, name)) not in facts._SCHEDULERS)
