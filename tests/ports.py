"""Ports of loopback that nobody else gets between two moments of a test."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held() -> Iterator[int]:
    """A port that refuses whoever asks, but while a server with SO_REUSEPORT listens there.

    One that was only free a moment ago may have become another test's server meanwhile.
    """
    with socket.socket() as holding:
        holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holding.bind(("127.0.0.1", 0))
        yield holding.getsockname()[1]
