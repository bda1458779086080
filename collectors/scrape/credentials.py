"""Secrets for one target: read from files or the environment, and never given to anybody to print.

A token is read again before each scrape, and certificates once their files have changed, because
orchestrators replace such files while we run.
"""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from replay.errors import InputError
from replay.strict import open_regular

TOKEN_VARIABLE = "PREEMPT_BEARER_TOKEN"  # noqa: S105 (a name, no token)
_MOST_BYTES = 64 * 2**10


@dataclass(frozen=True)
class Credentials:
    """Where a target's secrets lie; holds none itself except a token from the environment."""

    token_file: Path | None = None
    token_variable: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def headers(self) -> dict[str, str]:
        """The request header that carries the token, or none; `InputError` if it is unreadable."""
        token, place = None, ""
        if self.token_file is not None:
            place = str(self.token_file)
            with open_regular(self.token_file) as file:
                token = file.read(_MOST_BYTES).decode("latin-1").strip()
        elif self.token_variable is not None:
            place = f"environment variable {self.token_variable}"
            token = os.environ.get(self.token_variable, "").strip()
        if token is None:
            return {}
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise InputError(place, "", "must hold one token of printable ASCII")
        return {"Authorization": f"Bearer {token}"}

    def tls_stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        """What changes when a file that `tls` reads is replaced; None for one that is not there."""
        return tuple(map(_stamp, filter(None, (self.ca_file, self.cert_file, self.key_file))))

    def tls(self) -> ssl.SSLContext:
        """What an https target is checked by; files that do not fit are an `InputError`."""
        if self.key_file is not None and self.cert_file is None:
            raise InputError(str(self.key_file), "", "needs a client certificate beside it")
        for path in filter(None, (self.ca_file, self.cert_file, self.key_file)):
            open_regular(path).close()
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (ssl.SSLError, OSError) as exc:
            raise InputError(str(self.ca_file), "", "must hold certificates in PEM") from exc
        if self.cert_file is not None:
            try:
                # Asked for a password it would wait at the terminal.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except (ssl.SSLError, OSError, ValueError) as exc:
                rule = "must hold a client certificate in PEM, with its key and no password"
                raise InputError(str(self.cert_file), "", rule) from exc
        return context


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
