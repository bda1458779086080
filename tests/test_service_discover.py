"""Which engines a target has now, and where on the disk each goes."""

import asyncio
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from collectors.service.discover import (
    Instance,
    Resolve,
    Unknown,
    file_sd_urls,
    instances_of,
    system_resolver,
)
from collectors.service.names import instance_name
from collectors.service.settings import Target
from replay.errors import InputError


def answering(*addresses: str, error: Exception | None = None) -> Resolve:
    """A resolver that gives these addresses, or fails."""

    async def resolve(host: str, port: int) -> list[str]:
        del host, port
        if error is not None:
            raise error
        return list(addresses)

    return resolve


NOBODY = answering()


def found(target: Target, resolve: Resolve = NOBODY) -> list[Instance]:
    """Engines of a target."""
    return asyncio.run(instances_of(target, resolve))


def test_a_name_gives_an_engine_for_each_address() -> None:
    """Names of directories are made of digits, whatever the name was."""
    target = Target("pods", dns="vllm.default.svc", port=8080)
    expected = [
        Instance("pods", "10.0.0.7_8080", "http://10.0.0.7:8080"),
        Instance("pods", f"v6-{1:032x}_8080", "http://[::1]:8080"),
    ]
    assert expected == found(target, answering("::1", "10.0.0.7"))


def test_a_name_without_addresses_has_no_engine() -> None:
    """A service without pods is known to be empty, which is not unknown."""
    target = Target("pods", dns="none.invalid")
    assert [] == found(target, answering(error=socket.gaierror(socket.EAI_NONAME, "no")))


@pytest.mark.parametrize(
    "error",
    [socket.gaierror(socket.EAI_AGAIN, "later"), OSError("no"), UnicodeError("label too long")],
)
def test_a_resolver_that_fails_says_nothing(error: Exception) -> None:
    """Unknown is neither empty nor an error of ours."""
    with pytest.raises(Unknown, match="could not be resolved"):
        found(Target("pods", dns="h"), answering(error=error))


def test_too_many_engines_are_refused() -> None:
    """A name that resolves to a thousand addresses is no deployment of vLLM."""
    many = [f"10.0.{k // 256}.{k % 256}" for k in range(1000)]
    with pytest.raises(Unknown, match="more than 500"):
        found(Target("pods", dns="h"), answering(*many))


def test_the_machines_resolver_knows_this_machine() -> None:
    """An address resolves to itself, without any network."""
    with ThreadPoolExecutor(1) as threads:
        resolve = system_resolver(threads)
        assert ["127.0.0.1"] == asyncio.run(resolve("127.0.0.1", 8000))  # type: ignore[arg-type]


def test_a_file_sd_file_is_read_as_prometheus_reads_it(tmp_path: Path) -> None:
    """Groups of addresses; scheme and metrics path come from the labels."""
    path = tmp_path / "targets.json"
    labels = {"__scheme__": "https", "__metrics_path__": "/x/metrics", "team": "a"}
    groups = [
        {"targets": ["10.0.0.1:8000", "gpu-host:8000"]},
        {"targets": ["[fe80::1]:8000"], "labels": labels},
    ]
    path.write_text(json.dumps(groups))
    expected = [
        "http://10.0.0.1:8000",
        "http://gpu-host:8000",
        "https://[fe80::1]:8000/x/metrics",
    ]
    assert expected == file_sd_urls(path)
    assert 3 == len(found(Target("listed", file_sd=path)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "must be a list of target groups"),
        ("[", "must be JSON"),
        ('[{"targets": "10.0.0.1:8000"}]', "must be a list of host:port"),
        ('[{"targets": [1]}]', "must be strings"),
        ('[{"targets": ["a:1/metrics"]}]', "must be host:port"),
        ('[{"targets": ["user:secret@a:1"]}]', "must have no user"),
        ('[{"targets": ["a:1"], "labels": {"__scheme__": "file"}}]', "must be http"),
        ('[{"targets": ["a:1"], "labels": {"__metrics_path__": "x"}}]', "begins with /"),
        ('[{"targets": ["a\\n:1"]}]', "must be http"),
    ],
)
def test_a_broken_file_sd_file_is_unknown(tmp_path: Path, text: str, said: str) -> None:
    """As a whole, so that a file cut in two does not end half of the engines."""
    path = tmp_path / "targets.json"
    path.write_text(text)
    with pytest.raises(Unknown) as caught:
        found(Target("listed", file_sd=path))
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_yaml_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """Prometheus takes either; one form is enough here."""
    with pytest.raises(InputError, match=r"must be the JSON form .*, got YAML"):
        file_sd_urls(tmp_path / "targets.yml")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://10.0.0.1:8000", "10.0.0.1_8000"),
        ("https://10.0.0.1", "10.0.0.1_443_https"),
        ("http://10.0.0.1/metrics", "10.0.0.1_80"),
        ("http://[::1]:1", f"v6-{1:032x}_1"),
    ],
)
def test_an_address_names_its_directory(url: str, name: str) -> None:
    """In digits, the same every time."""
    assert name == instance_name(url)


def test_no_host_name_gets_into_a_path() -> None:
    """It is hashed, and so is another path of the same server."""
    names = {
        instance_name(f"http://{host}:8000{path}")
        for host in ("..", "x" * 300, "gpu-7.example")
        for path in ("", "/other/metrics")
    }
    assert all("/" not in name and ".." not in name and len(name) < 64 for name in names)
    assert 6 == len(names)
