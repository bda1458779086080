"""What operators install: units that systemd accepts, manifests that Kubernetes would."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from collectors.service import begin
from collectors.service.settings import parse_settings
from preempt.commands.collect_run import run_command

ROOT = Path(__file__).parent.parent
UNITS = ROOT / "deploy" / "systemd"
MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
SCHEMA = json.loads((ROOT / "fixtures" / "kubernetes" / "kubernetes-1.37.json").read_text())
ANALYZE = shutil.which("systemd-analyze")


def documents() -> list[tuple[str, dict[str, Any]]]:
    """Every object of every manifest, with a name for people."""
    return [
        (f"{path.name}:{found['kind']}", found)
        for path in MANIFESTS
        for found in yaml.safe_load_all(path.read_text())
    ]


def validator(kind: str) -> Draft202012Validator:
    """What checks objects of one kind."""
    return Draft202012Validator({"$ref": SCHEMA["kinds"][kind], "$defs": SCHEMA["$defs"]})


def containers() -> list[dict[str, Any]]:
    """Our own containers in all manifests."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            if str(value.get("image", "")).startswith("preemption-ledger"):
                yield value
            for inner in value.values():
                yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    return [found for _, document in documents() for found in walk(document)]


@pytest.mark.skipif(ANALYZE is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """Every directive is known and every value is one; the program is one that is here."""
    for unit in UNITS.iterdir():
        text = unit.read_text().replace("/opt/preempt/bin/preempt", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    units = sorted(str(path) for path in tmp_path.iterdir())
    found = subprocess.run(
        [str(ANALYZE), "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    assert (0, "") == (found.returncode, found.stderr)
    assert 3 == len(units)


# What our units use of systemd.unit, .service, .exec, .kill, .resource-control and .timer (man 5),
# and what a value of it looks like. A directive that is not here is one that nobody checked.
BOOLEAN = re.compile(r"yes|no")
TIME = re.compile(r"[0-9]+(ms|s|min|h)?")
UNIT = re.compile(r"[a-z0-9-]+\.(target|service|timer)")
MODE = re.compile(r"0[0-7]{3}")
ANYTHING = re.compile(r".+")
DIRECTIVES = {
    "Unit": {
        "Description": ANYTHING,
        "Documentation": re.compile(r"(https?|man|file):\S+"),
        "Wants": UNIT,
        "After": UNIT,
        "Conflicts": UNIT,
    },
    "Service": {
        "Type": re.compile(r"simple|exec|forking|oneshot|dbus|notify|notify-reload|idle"),
        "ExecStart": re.compile(r"/\S+( \S+)*"),
        "ExecReload": re.compile(r"/\S+( \S+)*"),
        "Restart": re.compile(r"no|on-success|on-failure|on-abnormal|on-watchdog|on-abort|always"),
        "RestartSec": TIME,
        "TimeoutStartSec": TIME,
        "TimeoutStopSec": TIME,
        "KillMode": re.compile(r"control-group|mixed|process|none"),
        "DynamicUser": BOOLEAN,
        "StateDirectory": re.compile(r"[a-z][a-z0-9-]*"),
        "StateDirectoryMode": MODE,
        "UMask": MODE,
        "LoadCredential": re.compile(r"[a-z]+:/\S+"),
        "MemoryMax": re.compile(r"[0-9]+[KMG]"),
        "CPUWeight": re.compile(r"[1-9][0-9]{0,3}"),
        "IOWeight": re.compile(r"[1-9][0-9]{0,3}"),
        "Nice": re.compile(r"-?(1?[0-9]|20)"),
        "TasksMax": re.compile(r"[0-9]+"),
        "NoNewPrivileges": BOOLEAN,
        "CapabilityBoundingSet": re.compile(r""),
        "ProtectSystem": re.compile(r"yes|no|full|strict"),
        "ProtectHome": re.compile(r"yes|no|read-only|tmpfs"),
        "PrivateTmp": BOOLEAN,
        "PrivateDevices": BOOLEAN,
        "ProtectClock": BOOLEAN,
        "ProtectControlGroups": BOOLEAN,
        "ProtectHostname": BOOLEAN,
        "ProtectKernelLogs": BOOLEAN,
        "ProtectKernelModules": BOOLEAN,
        "ProtectKernelTunables": BOOLEAN,
        "ProtectProc": re.compile(r"noaccess|invisible|ptraceable|default"),
        "RestrictAddressFamilies": re.compile(r"AF_[A-Z0-9]+( AF_[A-Z0-9]+)*"),
        "RestrictNamespaces": BOOLEAN,
        "RestrictRealtime": BOOLEAN,
        "RestrictSUIDSGID": BOOLEAN,
        "LockPersonality": BOOLEAN,
        "SystemCallArchitectures": re.compile(r"native"),
        "SystemCallFilter": re.compile(r"~?@[a-z-]+"),
        "SystemCallErrorNumber": re.compile(r"E[A-Z]+"),
    },
    "Timer": {
        "OnCalendar": re.compile(r"\*:0/[1-9][0-9]?"),
        "AccuracySec": TIME,
        "Persistent": BOOLEAN,
    },
    "Install": {"WantedBy": UNIT},
}
SECTIONS = {".service": {"Unit", "Service", "Install"}, ".timer": {"Unit", "Timer", "Install"}}


def mistakes(name: str, text: str) -> list[str]:
    """Lines of a unit that break a rule; lines that are commented out count as if they were not."""
    found, section, seen = [], "", set()
    for line in re.sub(r"^#(?=[A-Z]\w+=)", "", text, flags=re.MULTILINE).splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = line.strip("[]")
            bad = section not in SECTIONS[Path(name).suffix] or line != f"[{section}]"
        else:
            key, _, value = line.partition("=")
            rule = DIRECTIVES.get(section, {}).get(key)
            bad = rule is None or not rule.fullmatch(value) or (section, key) in seen
            seen.add((section, key))
        if bad:
            found.append(line)
    return found


@pytest.mark.parametrize("unit", sorted(UNITS.iterdir()), ids=lambda path: path.name)
def test_every_line_of_a_unit_is_one_that_systemd_knows(unit: Path) -> None:
    """Its section has that directive, and the directive such a value; no tool is needed."""
    assert [] == mistakes(unit.name, unit.read_text())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("NoNewPrivileges=", "NoNewPriviledges="),
        ("ProtectSystem=strict", "ProtectSystem=stict"),
        ("[Service]", "[service]"),
        ("[Service]", "[Timer]"),
        ("MemoryMax=512M", "MemoryMax=512MB"),
        ("ExecStart=/opt", "ExecStart=opt"),
        ("#LoadCredential=token:", "#LoadCredential="),
        ("UMask=0077", "UMask=0077\nUMask=0022"),
    ],
)
def test_a_mistake_in_a_unit_is_noticed(old: str, new: str) -> None:
    """Names, values, sections, and what is said twice."""
    text = (UNITS / "preempt-collect.service").read_text()
    assert old in text
    assert mistakes("preempt-collect.service", text.replace(old, new))


def test_a_unit_is_started_by_something_that_is_there() -> None:
    """The service and the timer by their targets, the other service by the timer of its name."""
    names = {unit.name for unit in UNITS.iterdir()}
    assert {
        "preempt-collect.service",
        "preempt-collect-once.service",
        "preempt-collect-once.timer",
    } == names
    for name in names - {"preempt-collect-once.service"}:
        (wanted,) = re.findall(r"^WantedBy=(.*)$", (UNITS / name).read_text(), re.MULTILINE)
        assert ("timers.target" if name.endswith(".timer") else "multi-user.target") == wanted
    texts = "".join(unit.read_text() for unit in UNITS.iterdir())
    ours = re.findall(r"^(?:Conflicts|Unit)=(.*)$", texts, re.MULTILINE)
    assert set(ours) <= names
    assert (
        "/var/lib/preempt" == tomllib.loads(configurations()["collect.toml"])["collect"]["output"]
    )


def test_a_unit_has_room_for_every_thread(tmp_path: Path) -> None:
    """Ours, those of asyncio, and one of polars, which else takes one for each core of a host."""
    asyncios, main = 32, 1
    ours = begin.DISKS + begin.READERS + begin.RESOLVERS
    for unit in UNITS.glob("*.service"):
        (most,) = re.findall(r"^TasksMax=([0-9]+)$", unit.read_text(), re.MULTILINE)
        assert int(most) >= main + asyncios + ours + 8
    config = tmp_path / "c.toml"
    config.write_text('[collect]\noutput = "o"\n[[targets]]\nname = "a"\nurl = "http://h:1"\n')
    program = (
        "import os\nfrom preempt.main import main\ntry:\n"
        f"    main(['collect', 'run', '--check', '--quiet', {str(config)!r}])\n"
        "finally:\n    print(os.environ['POLARS_MAX_THREADS'])"
    )
    environment = {k: v for k, v in os.environ.items() if k != "POLARS_MAX_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "1\n", "") == (done.returncode, done.stdout, done.stderr)


def test_both_services_are_confined_alike() -> None:
    """The timer's service has every restriction of the long-running one."""
    own = ("ExecStart", "ExecReload", "Restart", "TimeoutSt", "KillMode", "Type", "#", "[")
    kept = []
    for name in ("preempt-collect.service", "preempt-collect-once.service"):
        section = (UNITS / name).read_text().split("[Service]\n")[1].split("[Install]")[0]
        lines = section.splitlines()
        kept.append([line for line in lines if line and not line.startswith(own)])
    assert kept[0] == kept[1]
    assert {"DynamicUser=yes", "ProtectSystem=strict", "NoNewPrivileges=yes"} <= set(kept[0])


@pytest.mark.parametrize(
    ("name", "document"), documents(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_kubernetes_accepts_the_manifests(name: str, document: dict[str, Any]) -> None:
    """By the schemas of its API, in which an unknown key is an error."""
    found = [error.json_path for error in validator(document["kind"]).iter_errors(document)]
    assert [] == found, name


def test_the_schemas_notice_a_mistake() -> None:
    """A misspelled key deep inside, a wrong type and a missing one."""
    (_, cronjob), *_ = [one for one in documents() if one[0].endswith("CronJob")]
    text = json.dumps(cronjob)
    for old, new in (
        ('"runAsNonRoot"', '"runAsNotRoot"'),
        ('"backoffLimit": 0', '"backoffLimit": "0"'),
        ('"schedule"', '"shedule"'),
    ):
        assert old in text
        broken = json.loads(text.replace(old, new))
        assert not validator("CronJob").is_valid(broken), new


def test_our_containers_may_do_nothing_but_collect() -> None:
    """No root, no privileges, a read-only file system, and a bound on memory."""
    found = containers()
    assert 2 == len(found)
    for container in found:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert {"drop": ["ALL"]} == security["capabilities"]
        assert "memory" in container["resources"]["limits"]
        # What it would take out of service is the engine.
        assert "readinessProbe" not in container


def configurations() -> dict[str, str]:
    """Every configuration file in deploy/, by where it is."""
    found = {"collect.toml": (ROOT / "deploy" / "collect.toml").read_text()}
    for name, document in documents():
        if document["kind"] == "ConfigMap":
            found[name] = document["data"]["collect.toml"]
    return found


@pytest.mark.parametrize("name", configurations())
def test_the_configurations_keep_every_rule(name: str) -> None:
    """They are read as the service reads them, also with the examples switched on."""
    text = configurations()[name]
    for shown in (text, re.sub(r"^# (?=\[\[|[a-z_]+ = )", "", text, flags=re.MULTILINE)):
        settings = parse_settings(tomllib.loads(shown), name, Path("/etc/preempt"))
        assert settings.targets


def test_units_and_manifests_call_a_command_that_is_there() -> None:
    """Their arguments are those of `preempt collect run`."""
    lines = [
        line.split(" ")[1:]
        for unit in UNITS.glob("*.service")
        for line in re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    ]
    lines += [container["args"] for container in containers()]
    assert 4 == len(lines)
    for arguments in lines:
        assert ["collect", "run"] == arguments[:2]
        assert run_command.make_context("run", arguments[2:])


def test_what_the_manifests_share_fits_together() -> None:
    """Volumes are mounted where the configuration writes, and the claims and maps are there."""
    by_kind: dict[str, set[str]] = {}
    for _, document in documents():
        by_kind.setdefault(document["kind"], set()).add(document["metadata"]["name"])
    text = json.dumps([document for _, document in documents()])
    assert by_kind["PersistentVolumeClaim"] == set(re.findall(r'"claimName": "([^"]+)"', text))
    used = re.findall(r'"configMap": \{"name": "([^"]+)"', text)
    assert by_kind["ConfigMap"] == set(used)
    for name, shown in configurations().items():
        wanted = "/var/lib/preempt" if name == "collect.toml" else "/data"
        assert wanted == tomllib.loads(shown)["collect"]["output"]
