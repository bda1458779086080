"""The service's configuration file: what it may say, and how a mistake in it is named."""

from pathlib import Path

import pytest

from collectors.scrape.run import Rotation
from collectors.service.settings import Collect, Settings, Target, parse_settings, read_settings
from replay.errors import InputError
from replay.strict import parse_toml

LEAST = """
[collect]
output = "runs"
[[targets]]
name = "chat"
url = "http://127.0.0.1:8000"
"""
ALL = """
[collect]
output = "/var/lib/x"
interval = "500ms"
timeout = "2s"
rediscover = "1m"
most_page = "1MiB"
rotate_every = "10m"
rotate_rows = 1000
keep_age = "30d"
keep_bytes = "20GiB"
listen = "[::1]:0"
[[targets]]
name = "pods"
dns = "vllm.default.svc"
port = 8080
scheme = "https"
ca_file = "ca.pem"
cert_file = "cert.pem"
key_file = "key.pem"
bearer_token_file = "token"
[[targets]]
name = "listed"
file_sd = "targets.json"
[[targets]]
name = "here"
url = "http://127.0.0.1:8000/metrics"
spool = "/var/spool/x"
"""


def parsed(text: str) -> Settings:
    """Settings of a text, its paths relative to /etc/x."""
    return parse_settings(parse_toml(text, "x.toml"), "x.toml", Path("/etc/x"))


def test_the_smallest_file_has_every_default() -> None:
    """An output and one target are enough, and paths are relative to the file."""
    expected = Settings(
        Collect(Path("/etc/x/runs")), (Target("chat", url="http://127.0.0.1:8000"),)
    )
    assert expected == parsed(LEAST)
    assert ("127.0.0.1", 9108) == expected.collect.listen


def test_every_key_is_read() -> None:
    """Times become microseconds, sizes bytes, paths absolute."""
    collect, (pods, listed, here) = parsed(ALL).collect, parsed(ALL).targets
    assert (
        Collect(
            output=Path("/var/lib/x"),
            interval_us=500_000,
            timeout_us=2_000_000,
            rediscover_us=60_000_000,
            most_page_bytes=2**20,
            rotation=Rotation(rows=1000, age_us=600_000_000),
            keep_age_us=30 * 86_400_000_000,
            keep_bytes=20 * 2**30,
            listen=("::1", 0),
        )
        == collect
    )
    assert ("vllm.default.svc", 8080, "https") == (pods.dns, pods.port, pods.scheme)
    assert Path("/etc/x/token") == pods.credentials({}).token_file
    assert Path("/etc/x/targets.json") == listed.file_sd
    assert Path("/var/spool/x") == here.spool


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('output = "runs"', "", "x.toml: collect.output is required"),
        ('output = "runs"', 'output = "runs"\nintervall = "1s"', "did you mean interval"),
        ('output = "runs"', 'output = "runs"\ninterval = "0s"', "collect.interval must be whole"),
        ('output = "runs"', 'output = "runs"\ninterval = 1', "collect.interval must be a string"),
        ('output = "runs"', 'output = "runs"\nkeep_bytes = "1GB"', "collect.keep_bytes must be a"),
        ('output = "runs"', 'output = "runs"\nlisten = "9108"', "collect.listen must be host:port"),
        ('output = "runs"', 'output = "runs"\nlisten = "a:99999"', "collect.listen must be host"),
        ('name = "chat"', "", "x.toml: targets[0].name is required"),
        ('name = "chat"', 'name = "../chat"', "targets[0].name must be 1 to 63 of a-z"),
        ('url = "http://127.0.0.1:8000"', "", "targets[0] must have one of url, file_sd, dns"),
        ('url = "http://127.0.0.1:8000"', 'url = "http://h:1"\ndns = "h"', "got url, dns"),
        ('url = "http://127.0.0.1:8000"', 'url = "http://u:p@h:1"', "targets[0].url must have no"),
        ('url = "http://127.0.0.1:8000"', 'dns = "a b"', "targets[0].dns must be a name"),
        ('url = "http://127.0.0.1:8000"', 'url = "http://h:1"\nport = 1', "goes with dns only"),
        ('url = "http://127.0.0.1:8000"', 'dns = "h"\nport = 70000', "must be <= 65535"),
        ('url = "http://127.0.0.1:8000"', 'dns = "h"\nspool = "s"', "a spool is one engine's"),
        ('name = "chat"', 'name = "chat"\nkey_file = "k"', "key_file needs cert_file"),
        ('name = "chat"', 'name = "chat"\nbearer_token = "x"', "did you mean bearer_token_file"),
        ("[[targets]]", "[targets]", "targets must be 1 to 200 tables"),
        ("[collect]", "[collector]", "did you mean collect"),
    ],
)
def test_a_mistake_is_named_with_its_place(old: str, new: str, said: str) -> None:
    """File, table, key and rule, and never a value that could be a secret."""
    with pytest.raises(InputError) as caught:
        parsed(LEAST.replace(old, new))
    assert said in str(caught.value)
    assert str(caught.value).startswith("x.toml: ")
    assert "u:p" not in str(caught.value)


def test_two_targets_need_two_names() -> None:
    """The name is a directory's."""
    with pytest.raises(InputError, match=r"targets\[1\]\.name must be unique"):
        parsed(LEAST + '[[targets]]\nname = "chat"\ndns = "h"\n')


def test_two_targets_need_two_spools() -> None:
    """What one packs is deleted, and the other would miss it."""
    more = 'spool = "s"\n[[targets]]\nname = "b"\nurl = "http://h:1"\nspool = "s"\n'
    with pytest.raises(InputError, match=r"targets\[1\]\.spool must be unique"):
        parsed(LEAST + more)


def test_a_token_of_the_environment_is_for_targets_without_a_file() -> None:
    """A file comes first; an empty variable is none."""
    target = Target("a", url="http://h:1")
    assert (
        "PREEMPT_BEARER_TOKEN" == target.credentials({"PREEMPT_BEARER_TOKEN": "x"}).token_variable
    )
    assert target.credentials({"PREEMPT_BEARER_TOKEN": ""}).token_variable is None
    own = Target("a", url="http://h:1", bearer_token_file=Path("t"))
    assert own.credentials({"PREEMPT_BEARER_TOKEN": "x"}).token_variable is None


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """As every other input."""
    with pytest.raises(InputError, match="cannot be read"):
        read_settings(tmp_path / "none.toml")
