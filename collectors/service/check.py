"""What the file names, tried before anything is collected: `preempt collect run --check`.

Nothing is made, deleted or asked of an engine. What would fail later is an `InputError` that names
the file, the table and the field.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from collectors.durations import about_bytes, size_text
from collectors.scrape.urls import urls_of
from collectors.service.discover import file_sd_urls
from collectors.service.housekeeping import runs_of, size_of
from collectors.service.settings import Settings, Target
from replay.errors import InputError

LEAST_FREE_BYTES = 256 * 2**20
_ALL = os.R_OK | os.W_OK | os.X_OK


def check(settings: Settings, place: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Where each target's engines are, in words; raises `InputError` for what will not do."""
    _check_output(settings, place)
    targets = {}
    for number, target in enumerate(settings.targets):
        name = f"targets[{number}]"
        _check_secrets(target, place, name, environment)
        if target.spool is not None:
            _check_spool(target.spool, place, f"{name}.spool")
        targets[target.name] = _where(target, place, name)
    return targets


def _check_output(settings: Settings, place: str) -> None:
    collect, name = settings.collect, "collect.output"
    there = collect.output
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise InputError(place, name, "must be a directory, or one that can be made", str(there))
    if not os.access(there, _ALL):
        what = "" if there == collect.output else f"; {collect.output} is to be made in it"
        raise InputError(place, name, f"must be writable by user {os.getuid()}{what}", str(there))
    free = shutil.disk_usage(there).free
    targets = [target.name for target in settings.targets]
    runs = sum(size_of(run) for run in runs_of(collect.output, targets))
    found = f"{about_bytes(free)} free" + (f" beside {about_bytes(runs)} of runs" if runs else "")
    if free < LEAST_FREE_BYTES:
        rule = f"must have at least {size_text(LEAST_FREE_BYTES)} free on its disk"
        raise InputError(place, name, rule, found)
    if collect.keep_bytes is not None and free + runs < collect.keep_bytes:
        rule = f"must fit on the disk of {collect.output}: {size_text(collect.keep_bytes)}"
        raise InputError(place, "collect.keep_bytes", rule, found)


def _check_secrets(target: Target, place: str, name: str, environment: Mapping[str, str]) -> None:
    """Files of secrets can be read and are what they should be; a token is not shown."""
    credentials = target.credentials(environment)
    try:
        credentials.headers()
    except InputError as exc:
        field = f"{name}.bearer_token_file" if target.bearer_token_file else name
        raise _in_file(exc, place, field) from exc
    for field in ("ca_file", "cert_file", "key_file"):
        path: Path | None = getattr(target, field)
        if path is not None and not os.access(path, os.R_OK):
            rule = "must be a file that can be read"
            raise InputError(place, f"{name}.{field}", rule, str(path))
    if (target.url and urls_of(target.url).base.startswith("https:")) or target.ca_file:
        try:
            credentials.tls()
        except InputError as exc:
            field = "cert_file" if exc.place == str(target.cert_file) else "ca_file"
            raise _in_file(exc, place, f"{name}.{field}") from exc


def _check_spool(spool: Path, place: str, name: str) -> None:
    """The recorder makes it 0700, and what is packed is deleted there."""
    if not spool.is_dir():
        rule = "must be the recorder's directory, which it makes when the engine starts"
        raise InputError(place, name, rule, str(spool))
    if not os.access(spool, _ALL):
        rule = f"must be readable and writable by user {os.getuid()}: packed parts are deleted"
        raise InputError(place, name, rule, str(spool))


def _where(target: Target, place: str, name: str) -> str:
    if target.url is not None:
        return f"the engine at {target.url}"
    if target.file_sd is None:
        return f"every address of {target.dns}, port {target.port}, {target.scheme}"
    try:
        count = len(file_sd_urls(target.file_sd))
    except InputError as exc:
        raise _in_file(exc, place, f"{name}.file_sd") from exc
    return f"{count} engine{'s' * (count != 1)} now in {target.file_sd}"


def _in_file(exc: InputError, place: str, name: str) -> InputError:
    """The same fault, by the field that names the file."""
    return InputError(place, name, f"cannot be used: {exc}")
